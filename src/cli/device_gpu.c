#include "cli/device_gpu.h"

#include <string.h>

#include "base/number.h"
#include "base/status.h"
#include "bench/gpu_ceiling.h"
#include "cli/engine_options.h"
#include "gpu/kernel.h"
#include "ops/device_key.h"

/* ---- JSON ---- */

/* Two cards of a kind have limits of their own. Of the program, the loops alone matter. */
enum sol_status gpu_limits_key(const struct gpu *gpu, char key[64])
{
    struct device_key device;
    char card[128], digest[DEVICE_KEY_DIGEST];
    const struct gpu_info *i = gpu_info(gpu);
    SOL_TRY(device_key_of_gpu(gpu, &device));
    SOL_TRY(gpu_sources_hash(gpu, "ceiling/", device.kernels));
    device.build[0] = '\0';
    snprintf(card, sizeof card, "%s %d %zu", i->pci, i->sm_count, i->memory_bytes);
    device_key_digest(&device, card, digest);
    snprintf(key, 64, "gpu:%s", digest);
    return SOL_OK;
}

enum sol_status gpu_limits_measure(struct gpu *gpu, double seconds, json_t **out)
{
    struct gpu_ceiling measured;
    *out = NULL;
    SOL_TRY(gpu_ceiling_measure(gpu, seconds, &measured));
    *out = gpu_ceiling_json(&measured);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the limits");
}

static json_t *info_json(const struct gpu_info *i)
{
    char arch[16];
    gpu_architecture(i, arch);
    return json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:b, s:i}", "gpu", i->name,
                     "ordinal", i->ordinal, "pci", i->pci, "architecture", arch, "sms", i->sm_count,
                     "memory", (json_int_t)i->memory_bytes, "l2", (json_int_t)i->l2_bytes,
                     "clock_mhz_most", 1e-3 * i->clock_khz, "memory_gb_s_nominal",
                     1e-9 * i->memory_bytes_per_s, "integrated", i->integrated, "driver",
                     i->driver_version);
}

json_t *gpu_machine_json(const struct gpu *gpu)
{
    struct gpu_reading reading;
    const char *why = NULL;
    json_t *json = info_json(gpu_info(gpu));
    if (!json) return NULL;
    bool known = gpu_sensors_read(gpu_info(gpu), &reading, &why);
    json_object_set_new(json, "now", known ? gpu_reading_json(&reading) : json_null());
    if (!known) json_object_set_new(json, "no_sensors", json_string(why ? why : "no sensors"));
    return json;
}

json_t *gpu_list_json(void)
{
    enum { MOST = 16 };
    struct gpu_info infos[MOST];
    int count;
    json_t *list = json_array();
    if (gpu_list(infos, MOST, &count) != SOL_OK) return list;
    for (int i = 0; i < count && i < MOST; i++) json_array_append_new(list, info_json(&infos[i]));
    return list;
}

/* ---- tables ---- */

static double number(const json_t *json, const char *name)
{
    return json_number_value(json_object_get(json, name));
}

static double best(const json_t *json, const char *name)
{
    return number(json_object_get(json, name), "best");
}

static void add_rate(struct table *table, double value)
{
    if (value > 0)
        table_number(table, value, 4);
    else
        table_cell(table, "-");
}

static void print_reading(const char *what, const json_t *r)
{
    const char *throttle = json_string_value(json_object_get(r, "throttle"));
    if (!json_is_object(r)) return;
    printf("%s: SMs at %.0f MHz, memory at %.0f, %.0f degrees C, %.0f of %.0f W%s%s\n", what,
           number(r, "sm_mhz"), number(r, "memory_mhz"), number(r, "temperature_c"),
           number(r, "watts"), number(r, "watts_limit"),
           throttle && *throttle ? ", held back by " : "", throttle ? throttle : "");
}

static void print_gpu(const json_t *m, const json_t *limits)
{
    char memory[16], l2[16];
    int driver = (int)json_integer_value(json_object_get(m, "driver"));
    const char *no_sensors = json_string_value(json_object_get(m, "no_sensors"));
    printf("%s (GPU %d, sm_%s), %d SMs up to %.0f MHz, %s, L2 %s, CUDA %d.%d\n",
           json_string_value(json_object_get(m, "gpu")),
           (int)json_integer_value(json_object_get(m, "ordinal")),
           json_string_value(json_object_get(m, "architecture")),
           (int)json_integer_value(json_object_get(m, "sms")), number(m, "clock_mhz_most"),
           format_bytes((size_t)json_integer_value(json_object_get(m, "memory")), memory),
           format_bytes((size_t)json_integer_value(json_object_get(m, "l2")), l2), driver / 1000,
           driver % 1000 / 10);
    print_reading("now", json_object_get(m, "now"));
    if (no_sensors) printf("clocks, power and temperature are unknown: %s\n", no_sensors);
    print_reading("while measuring", json_object_get(limits, "while_measuring"));
    printf("limits measured %s%s\n\n", json_string_value(json_object_get(limits, "measured")),
           json_is_true(json_object_get(limits, "reused")) ? " (kept; --measure does it again)"
                                                           : "");
}

static enum sol_status print_memory(const json_t *machine, const json_t *limits,
                                    enum table_format format)
{
    struct table *table;
    const json_t *memory = json_object_get(limits, "memory_gb_s"),
                 *l2 = json_object_get(limits, "l2_gb_s");
    double nominal = number(machine, "memory_gb_s_nominal");
    SOL_TRY(table_create("GB/s|>-buffer|>read|>write|>copy|>nominal|>% read", &table));
    const json_t *rows[] = {l2, memory};
    for (int i = 0; i < 2; i++) {
        char size[16];
        table_cell(table, "%s", i ? "memory" : "L2");
        table_cell(
            table, "%s",
            format_bytes((size_t)json_integer_value(json_object_get(rows[i], "buffer")), size));
        add_rate(table, best(rows[i], "read"));
        add_rate(table, best(rows[i], "write"));
        add_rate(table, best(rows[i], "copy"));
        add_rate(table, i ? nominal : 0);
        add_rate(table, i && nominal > 0 ? 100 * best(rows[i], "read") / nominal : 0);
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status print_arithmetic(const json_t *limits, enum table_format format)
{
    static const char *const names[] = {"f32", "bf16", "fp8", "int8"};
    struct table *table;
    const json_t *all = json_object_get(limits, "gflop_s");
    SOL_TRY(table_create("TFLOP/s|>best|>median|loop", &table));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *rate = json_object_get(all, names[i]);
        const char *loop = json_string_value(json_object_get(rate, "loop"));
        table_cell(table, "%s", names[i]);
        add_rate(table, 1e-3 * number(rate, "best"));
        add_rate(table, 1e-3 * number(rate, "median"));
        table_cell(table, "%s", loop ? loop : "none here");
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

enum sol_status gpu_limits_print(const json_t *machine, const json_t *limits,
                                 enum table_format format)
{
    const json_t *start = json_object_get(limits, "start_ns");
    if (format != TABLE_CSV) print_gpu(machine, limits);
    SOL_TRY(print_memory(machine, limits, format));
    putchar('\n');
    SOL_TRY(print_arithmetic(limits, format));
    if (format == TABLE_CSV) return SOL_OK;
    printf("\nan empty kernel: %.3g us launched alone, %.3g us as a node of a graph, %.3g us where "
           "it may overlap;\nfrom a launch until the host knows that it ended: %.3g us\n",
           1e-3 * number(start, "launch"), 1e-3 * number(start, "graph_node"),
           1e-3 * number(start, "graph_node_overlapped"), 1e-3 * number(start, "answer"));
    return SOL_OK;
}
