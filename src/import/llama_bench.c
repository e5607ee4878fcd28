/* llama-bench -o json and -o jsonl, of any version, and sol bench's, which is named alike. A record
 * is one test; tests that differ only in a setting get that setting into their name. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/import_private.h"

enum { NAME_SIZE = 256, SAMPLES_MAX = 100000 };

static int64_t integer(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    double number = json_number_value(value);
    return fabs(number) < 1e15 ? (int64_t)number : 0;
}

static const char *string_of(const json_t *record, const char *key)
{
    return json_string_value(json_object_get(record, key));
}

static bool is_result(const char *key)
{
    static const char *const prefixes[] = {
        "avg_",       "stddev_", "samples_", "n_prompt", "n_gen",    "n_depth",  "n_parallel",
        "test",       "median_", "half_",    "ns_per_",  "limit_",   "flops_",   "bytes_",
        "gb_s",       "gflop_s", "read_",    "memory",   "run",      "repeated", "repetitions",
        "arithmetic", "step_ns", "joules_",  "stopped",  "outliers", "rating",   "proved",
        "ts",         "starts",  "sd_perc",  "noise",    "energy_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

/* "pp512", "tg128 @ d4096", "pp512+tg128", as llama-bench prints them. */
static void base_name(const json_t *r, char name[NAME_SIZE])
{
    int64_t prompt = integer(r, "n_prompt"), gen = integer(r, "n_gen");
    int64_t depth = integer(r, "n_depth"), parallel = integer(r, "n_parallel");
    size_t at = 0;
    name[0] = '\0';
    if (prompt > 0) at += (size_t)snprintf(name, NAME_SIZE, "pp%lld", (long long)prompt);
    if (gen > 0)
        at +=
            (size_t)snprintf(name + at, NAME_SIZE - at, "%stg%lld", at ? "+" : "", (long long)gen);
    if (parallel > 1)
        at += (size_t)snprintf(name + at, NAME_SIZE - at, " x%lld", (long long)parallel);
    if (depth > 0) snprintf(name + at, NAME_SIZE - at, " @ d%lld", (long long)depth);
}

/* Settings that differ among the records of this test: " (n_threads 4, type_k q8_0)". */
static void add_settings(const json_t *records, const json_t *r, char name[NAME_SIZE])
{
    char base[NAME_SIZE];
    const char *key;
    json_t *value;
    bool any = false;
    snprintf(base, sizeof base, "%s", name);
    json_object_foreach((json_t *)(uintptr_t)r, key, value)
    {
        size_t i;
        json_t *other;
        bool differs = false;
        char other_name[NAME_SIZE];
        if (is_result(key) || json_is_array(value) || json_is_object(value)) continue;
        json_array_foreach(records, i, other)
        {
            base_name(other, other_name);
            if (strcmp(other_name, base) == 0 && !json_equal(json_object_get(other, key), value))
                differs = true;
        }
        size_t at = strlen(name);
        if (!differs || at + 2 >= NAME_SIZE) continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        size_t length = text ? strlen(text) : 0;
        if (text && length > 1 && text[0] == '"') text[length - 1] = '\0';
        snprintf(name + at, NAME_SIZE - at, "%s%s %s", any ? ", " : " (", key,
                 text ? text + (text[0] == '"') : "?");
        any = true;
        free(text);
    }
    size_t at = strlen(name);
    if (any && at + 1 < NAME_SIZE) snprintf(name + at, NAME_SIZE - at, ")");
}

static enum sol_status read_samples(struct import *import, const json_t *r, double tokens,
                                    struct store_metric *metric)
{
    const json_t *list = json_object_get(r, "samples_ns");
    size_t n = json_array_size(list), count = 0;
    double mean = json_number_value(json_object_get(r, "avg_ns"));
    if (n > SAMPLES_MAX) n = SAMPLES_MAX;
    struct store_sample *samples = ARENA_NEW(import->arena, struct store_sample, n + 1);
    if (!samples) return SOL_E_MEMORY;
    for (size_t i = 0; i < n; i++) {
        double ns = json_number_value(json_array_get(list, i));
        if (ns > 0 && isfinite(ns)) samples[count++].value = ns / tokens;
    }
    if (count == 0 && mean > 0) {
        samples[count++].value = mean / tokens;
        SOL_TRY(import_note(import, "only the mean of a test is known, no samples"));
    }
    metric->samples = samples;
    metric->n_samples = count;
    return SOL_OK;
}

static enum sol_status read_record(struct import *import, const json_t *records, const json_t *r,
                                   const char *file, size_t index)
{
    char name[NAME_SIZE], test[256];
    double parallel = integer(r, "n_parallel") > 1 ? (double)integer(r, "n_parallel") : 1;
    double tokens = (double)(integer(r, "n_prompt") + integer(r, "n_gen")) * parallel;
    if (!json_is_object(r) || !(tokens > 0))
        return status_set(SOL_E_FORMAT, "%s: record %zu is no test of llama-bench", file,
                          index + 1);
    base_name(r, name);
    add_settings(records, r, name);
    snprintf(test, sizeof test,
             "{\"n_prompt\": %lld, \"n_gen\": %lld, \"n_depth\": %lld, \"n_parallel\": %.0f, "
             "\"n_threads\": %lld}",
             (long long)integer(r, "n_prompt"), (long long)integer(r, "n_gen"),
             (long long)integer(r, "n_depth"), parallel, (long long)integer(r, "n_threads"));
    struct store_metric metric = {.name = name, .unit = "ns/token", .test_json = test};
    SOL_TRY(read_samples(import, r, tokens, &metric));
    if (metric.n_samples == 0) return import_note(import, "%s: no times", name);
    enum sol_status status = SOL_OK;
    if (!import->noise) import->noise = import_text(import, string_of(r, "noise"), &status);
    SOL_TRY(status);
    return import_metric(import, &metric);
}

/* Old versions say what they were built with, new ones name the backends. */
static const char *backend_of(const json_t *r)
{
    static const char *const flags[] = {"cuda", "vulkan", "kompute", "metal", "sycl", "opencl"};
    const char *named = string_of(r, "backends");
    if (named) return named;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(r, flags[i]))) return flags[i];
    return "CPU";
}

static enum sol_status read_head(struct import *import, const json_t *r)
{
    enum sol_status status = SOL_OK;
    char tool[128];
    const char *gpu = string_of(r, "gpu_info"), *model = string_of(r, "model_filename");
    const char *slash = model ? strrchr(model, '/') : NULL;
    const char *commit = string_of(r, "build_commit");
    import->backend = import_text(import, backend_of(r), &status);
    import->device = import_text(import, gpu && *gpu ? gpu : string_of(r, "cpu_info"), &status);
    import->model = import_text(import, slash ? slash + 1 : model, &status);
    import->model_type = import_text(import, string_of(r, "model_type"), &status);
    import->model_size = integer(r, "model_size");
    import->created_ns = import_time(string_of(r, "test_time"));
    snprintf(tool, sizeof tool, "llama-bench %s (%lld)", commit ? commit : "?",
             (long long)integer(r, "build_number"));
    import->tool = import_text(import, tool, &status);
    return status;
}

enum sol_status import_llama_bench(struct import *import, const json_t *records, const char *name)
{
    json_t *single = NULL;
    if (!json_is_array(records)) {
        single = json_pack("[O]", records);
        if (!single) return status_set(SOL_E_MEMORY, "out of memory for an import");
        records = single;
    }
    enum sol_status status = read_head(import, json_array_get(records, 0));
    for (size_t i = 0; i < json_array_size(records) && status == SOL_OK; i++)
        status = read_record(import, records, json_array_get(records, i), name, i);
    if (status == SOL_OK && import->n_metrics == 0)
        status = status_set(SOL_E_FORMAT, "%s: no test in it has a time", name);
    json_decref(single);
    return status;
}
