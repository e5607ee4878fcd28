/* Figures that makers publish, for machines that are not at hand. Dense rates; a figure that is
 * published only with sparsity is halved, which the source says. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/json_file.h"
#include "bench/device.h"

struct datasheet {
    const char *name, *match, *architecture;
    double memory_gib, memory_gb_s;
    int sms;
    double l2_mib, watts;
    double f32, bf16, fp8, fp4, int8; /* TFLOP/s; 0: not there or not published */
    const char *source;
};

static const char a100[] = "NVIDIA A100 datasheet (SXM)";
static const char h100[] = "NVIDIA H100 datasheet (SXM), sparse rates halved";
static const char h200[] = "NVIDIA H200 datasheet (SXM), sparse rates halved";
static const char ada[] = "NVIDIA Ada architecture whitepaper, fp32 accumulation";
static const char blackwell[] = "NVIDIA RTX Blackwell architecture whitepaper, fp32 accumulation";
static const char spark[] = "NVIDIA DGX Spark product page; 1 PFLOP/s of fp4 with sparsity, "
                            "halved; f32 as told at Hot Chips "
                            "2025";

static const struct datasheet datasheets[] = {
    {"A100 SXM 40GB", "A100-SXM4-40GB", "sm_80", 40, 1555, 108, 40, 400, 19.5, 312, 0, 0, 624,
     a100},
    {"A100 SXM 80GB", "A100-SXM4-80GB", "sm_80", 80, 2039, 108, 40, 400, 19.5, 312, 0, 0, 624,
     a100},
    {"H100 SXM", "H100 80GB HBM3", "sm_90", 80, 3350, 132, 50, 700, 66.9, 989.4, 1978.9, 0, 1978.9,
     h100},
    {"H200 SXM", "H200", "sm_90", 141, 4800, 132, 50, 700, 66.9, 989.4, 1978.9, 0, 1978.9, h200},
    {"DGX Spark (GB10)", "GB10", "sm_121", 128, 273, 48, 24, 140, 31, 0, 0, 500, 0, spark},
    {"RTX 4090", "RTX 4090", "sm_89", 24, 1008, 128, 72, 450, 82.6, 165.2, 330.3, 0, 660.6, ada},
    {"RTX 5090", "RTX 5090", "sm_120", 32, 1792, 170, 96, 575, 104.8, 209.5, 419, 1676, 838,
     blackwell},
};

static json_t *known(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

json_t *device_datasheets(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof datasheets / sizeof *datasheets; i++) {
        const struct datasheet *d = &datasheets[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:f, s:f, s:{s:o, s:o, s:o, s:o, s:o}, "
                      "s:s, s:s}",
                      "name", d->name, "match", d->match, "architecture", d->architecture,
                      "memory_gib", d->memory_gib, "memory_gb_s", d->memory_gb_s, "sms", d->sms,
                      "l2_mib", d->l2_mib, "watts", d->watts, "tflops", "f32", known(d->f32),
                      "bf16", known(d->bf16), "fp8", known(d->fp8), "fp4", known(d->fp4), "int8",
                      known(d->int8), "origin", "datasheet", "source", d->source));
    }
    return list;
}

static enum sol_status check_rates(json_t *rates)
{
    const char *name;
    json_t *value;
    json_object_foreach(rates, name, value)
    {
        if (!json_is_null(value) && !(json_is_number(value) && json_number_value(value) > 0))
            return status_set(SOL_E_FORMAT, "tflops.%s must be a positive number or null", name);
    }
    return SOL_OK;
}

static enum sol_status check_description(json_t *entry)
{
    const char *text[5] = {NULL};
    double number[4] = {1, 1, 1, 1};
    int sms = 1;
    json_error_t error;
    json_t *rates = NULL;
    if (json_unpack_ex(entry, &error, JSON_STRICT,
                       "{s:s, s:s, s?s, s?F, s:F, s?i, s?F, s?F, s:o, s?s, s?s}", "name", &text[0],
                       "match", &text[1], "architecture", &text[2], "memory_gib", &number[0],
                       "memory_gb_s", &number[1], "sms", &sms, "l2_mib", &number[2], "watts",
                       &number[3], "tflops", &rates, "origin", &text[3], "source", &text[4]) != 0)
        return status_set(SOL_E_FORMAT, "%s", error.text);
    if (!json_is_object(rates)) return status_set(SOL_E_FORMAT, "tflops must be an object");
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!(number[i] > 0)) return status_set(SOL_E_FORMAT, "figures must be positive");
    return check_rates(rates);
}

enum sol_status device_descriptions_read(const char *path, json_t **out)
{
    SOL_TRY(json_file_read(path, out));
    enum sol_status status = SOL_OK;
    if (!json_is_array(*out))
        status = status_set(SOL_E_FORMAT, "%s: an array of devices is expected", path);
    for (size_t i = 0; i < json_array_size(*out) && status == SOL_OK; i++) {
        status = check_description(json_array_get(*out, i));
        if (status != SOL_OK) status = status_prefix(status, "%s: entry %zu", path, i + 1);
    }
    if (status == SOL_OK) return SOL_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}
