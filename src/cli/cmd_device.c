/* sol device: the machine, and what it can do at best. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/number.h"
#include "base/progress.h"
#include "base/table.h"
#include "bench/device.h"
#include "cli/cli.h"
#include "cli/device_gpu.h"
#include "cli/device_links.h"
#include "cli/engine_options.h"
#include "store/environment.h"
#include "store/store_json.h"

struct device_options {
    int64_t threads;
    double seconds;
    const char *format, *store, *descriptions, *backend;
    const char *gpus; /* NULL: no links */
    int64_t most;     /* MiB of a message */
    int n_gpus;
    struct gpu *gpu; /* NULL: the processor */
    bool json, measure, known, quiet, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "measure", NULL, "measure again, even if this machine is known",
                 offsetof(struct device_options, measure), 0, 0),
    OPTION_ENTRY(INT, 't', "threads", "N", "threads to measure with (default: every core)",
                 offsetof(struct device_options, threads), 1, 1024),
    OPTION_ENTRY(FLOAT, 0, "seconds", "S", "for each loop in each place (default 0.05)",
                 offsetof(struct device_options, seconds), 0.0001, 10),
    OPTION_ENTRY(STRING, 0, "backend", "NAME", BACKEND_HELP,
                 offsetof(struct device_options, backend), 0, 0),
    OPTION_ENTRY(STRING, 0, "gpus", "N",
                 "links between the first N GPUs (or all), and collectives by size, instead",
                 offsetof(struct device_options, gpus), 0, 0),
    OPTION_ENTRY(INT, 0, "most", "MIB", "largest message with --gpus (default 256)",
                 offsetof(struct device_options, most), 1, 1024),
    OPTION_ENTRY(FLAG, 0, "known", NULL, "list known GPUs with their published figures instead",
                 offsetof(struct device_options, known), 0, 0),
    OPTION_ENTRY(STRING, 0, "descriptions", "FILE",
                 "list the devices of this file, in the format of --known --json, before them",
                 offsetof(struct device_options, descriptions), 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json",
                 offsetof(struct device_options, format), 0, 0),
    JSON_OPTION(struct device_options, json),
    OPTION_ENTRY(STRING, 0, "store", "FOLDER",
                 "where measured limits are kept (default $SOL_STORE, or sol in $XDG_DATA_HOME)",
                 offsetof(struct device_options, store), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct device_options, quiet), 0, 0),
    WIDE_OPTION(struct device_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol device", "what this machine can do at best; measured once and kept", NULL},
    {"sol device --measure --seconds 0.01", "again, and quickly", NULL},
    {"sol device --known", "published figures of GPUs", NULL},
    {"sol device --backend cuda", "of the first GPU", "a GPU"},
    {"sol device --gpus 2", "what two GPUs can pass to each other", "two GPUs"},
    {0},
};

static const struct command_spec spec = {
    .name = "device",
    .summary = "show this machine and its measured limits",
    .arguments = "",
    .notes =
        "Bandwidth of each cache level and of memory, arithmetic, and how long threads take to\n"
        "wake, with one thread and with all. Limits are measured once and kept; a machine that\n"
        "changed (processor, cores, memory, kernel, clocks) is measured again.\n"
        "With --backend cuda of a GPU: memory and L2, float32 and tensor cores, what a launch "
        "costs.\n"
        "With --gpus of several: each link by copy engine and by kernels, one way and both, a\n"
        "word's way, and every kernel of the collectives by size, in a graph. Bus GB/s is what a\n"
        "GPU's link has to carry at least, in float32; what passes in bf16 takes half of it.",
    .examples = examples,
    .options = options,
};

/* ---- keeping ---- */

static enum sol_status fact_key(const struct device_options *o, char key[64])
{
    char machine[STORE_HASH_SIZE];
    if (o->gpus) return device_links_key(o->n_gpus, (size_t)o->most << 20, key);
    if (o->gpu) return gpu_limits_key(o->gpu, key);
    environment_machine_key(machine);
    snprintf(key, 64, "cpu:%s:t%d", machine, (int)o->threads);
    return SOL_OK;
}

/* *limits stays NULL where they must be measured. */
static enum sol_status read_kept(struct store *store, const char *key, json_t **limits)
{
    char *text, when[32];
    int64_t created;
    *limits = NULL;
    if (!store) return SOL_OK;
    SOL_TRY(store_fact_read(store, "ceiling", key, &text, &created));
    if (!text) return SOL_OK;
    *limits = json_loads(text, 0, NULL);
    free(text);
    store_time_text(created, when);
    if (*limits) json_object_set_new(*limits, "measured", json_string(when));
    return SOL_OK;
}

static enum sol_status measure_processor(const struct device_options *o, json_t **limits)
{
    struct device_survey survey;
    SOL_TRY(device_measure((int)o->threads, o->seconds, &survey));
    *limits = device_survey_json(&survey);
    if (survey.watch.other_cores > 0.2)
        LOG_WARN("other programs kept %.1f cores busy meanwhile; --measure when it is quiet",
                 survey.watch.other_cores);
    return SOL_OK;
}

static enum sol_status measure(const struct device_options *o, struct store *store, const char *key,
                               json_t **limits)
{
    char *text, when[32];
    SOL_TRY(o->gpus  ? device_links_measure(o->n_gpus, o->seconds, (size_t)o->most << 20, limits)
            : o->gpu ? gpu_limits_measure(o->gpu, o->seconds, limits)
                     : measure_processor(o, limits));
    if (!*limits) return status_set(SOL_E_MEMORY, "no memory for the limits");
    if (store) {
        SOL_TRY(store_json_text(json_deep_copy(*limits), &text));
        enum sol_status status = store_fact_write(store, "ceiling", key, text);
        free(text);
        SOL_TRY(status);
    }
    store_time_text(store_now_ns(), when);
    json_object_set_new(*limits, "measured", json_string(when));
    return SOL_OK;
}

static enum sol_status get_limits(const struct device_options *o, json_t **limits)
{
    struct store *store;
    char key[64];
    *limits = NULL;
    SOL_TRY(fact_key(o, key));
    SOL_TRY(store_open_optional(o->store, &store));
    enum sol_status status = o->measure ? SOL_OK : read_kept(store, key, limits);
    bool kept = *limits != NULL;
    if (status == SOL_OK && !kept) status = measure(o, store, key, limits);
    if (*limits) json_object_set_new(*limits, "reused", json_boolean(kept));
    store_close(store);
    return status;
}

/* ---- tables ---- */

/* A path of members, "all_threads_gb_s.read.best". */
static const json_t *member(const json_t *json, const char *path)
{
    char name[64];
    while (json && *path) {
        size_t length = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        json = json_object_get(json, name);
        path += length + (path[length] == '.');
    }
    return json;
}

static enum sol_status add_number(struct table *table, const json_t *value)
{
    if (json_is_number(value)) return table_number(table, json_number_value(value), 4);
    return table_cell(table, "-");
}

static void add_numbers(struct table *table, const json_t *json, const char *const *paths,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) add_number(table, member(json, paths[i]));
}

static enum sol_status print_levels(const json_t *limits, enum table_format format)
{
    static const char *const paths[] = {
        "one_thread_gb_s.read.best",  "one_thread_gb_s.write.best",  "one_thread_gb_s.copy.best",
        "all_threads_gb_s.read.best", "all_threads_gb_s.write.best", "all_threads_gb_s.copy.best"};
    struct table *table;
    json_t *levels = json_object_get(limits, "levels");
    SOL_TRY(table_create("GB/s|>-size|>read, 1 thread|>write|>copy|>read, all threads|>write|>copy",
                         &table));
    for (size_t i = 0; i < json_array_size(levels); i++) {
        const json_t *level = json_array_get(levels, i);
        char size[16];
        long long capacity = json_integer_value(json_object_get(level, "capacity"));
        table_cell(table, "%s", json_string_value(json_object_get(level, "level")));
        table_cell(table, "%s", capacity ? format_bytes((size_t)capacity, size) : "");
        add_numbers(table, level, paths, sizeof paths / sizeof *paths);
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status print_arithmetic(const json_t *limits, enum table_format format)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    struct table *table;
    SOL_TRY(table_create("GFLOP/s|>1 thread|>all threads|loop", &table));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *one = member(limits, "gflop_s.one_thread"),
                     *all = member(limits, "gflop_s.all_threads"),
                     *loop = member(json_object_get(all, names[i]), "loop");
        table_cell(table, "%s", names[i]);
        add_number(table, member(json_object_get(one, names[i]), "best"));
        add_number(table, member(json_object_get(all, names[i]), "best"));
        table_cell(table, "%s", json_is_string(loop) ? json_string_value(loop) : "none here");
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static void print_fact(const char *name, const json_t *value, const char *unit,
                       const json_t *reason)
{
    printf("%-12s ", name);
    if (json_is_string(value))
        printf("%s\n", json_string_value(value));
    else if (json_is_number(value))
        printf("%.6g %s\n", json_number_value(value), unit);
    else
        printf("unknown%s%s\n", json_is_string(reason) ? ": " : " here",
               json_is_string(reason) ? json_string_value(reason) : "");
}

static void print_machine(const json_t *machine, const json_t *limits)
{
    char l1[16], l2[16], l3[16];
    const json_t *c = json_object_get(machine, "caches");
    printf("%s, %lld cores, caches %s, %s, %s\n",
           json_string_value(json_object_get(machine, "cpu")),
           (long long)json_integer_value(json_object_get(machine, "cores")),
           format_bytes((size_t)json_integer_value(json_object_get(c, "l1d")), l1),
           format_bytes((size_t)json_integer_value(json_object_get(c, "l2")), l2),
           format_bytes((size_t)json_integer_value(json_object_get(c, "l3")), l3));
    const json_t *heat = json_object_get(machine, "throttle_events");
    print_fact("clock", member(limits, "clock_mhz"), "MHz while measuring", NULL);
    print_fact("governor", json_object_get(machine, "governor"), "", NULL);
    print_fact("temperature", json_object_get(machine, "temperature_c"), "degrees C", NULL);
    print_fact("throttled", heat, "times by heat since boot", NULL);
    print_fact("power", member(limits, "watts"), "W while measuring", member(limits, "no_watts"));
    const json_t *gpus = json_object_get(machine, "gpus");
    for (size_t i = 0; i < json_array_size(gpus); i++)
        printf("GPU %zu        %s (--backend cuda:%zu)\n", i,
               json_string_value(json_object_get(json_array_get(gpus, i), "gpu")), i);
    printf("limits measured %s%s with %lld threads\n\n",
           json_string_value(json_object_get(limits, "measured")),
           json_is_true(json_object_get(limits, "reused")) ? " (kept; --measure does it again)"
                                                           : "",
           (long long)json_integer_value(json_object_get(limits, "threads")));
}

static void print_wakeup(const json_t *limits)
{
    static const char *const names[] = {"warm_median", "warm_p90", "asleep_median", "asleep_p90"};
    char us[4][NUMBER_SIZE];
    const json_t *w = json_object_get(limits, "wakeup_ns");
    for (int i = 0; i < 4; i++)
        number_text(1e-3 * json_number_value(json_object_get(w, names[i])), 3, us[i]);
    printf("\nall threads at work after %s us (90 %%: %s) when they wait, %s us (%s) when they "
           "sleep\n",
           us[0], us[1], us[2], us[3]);
}

static enum sol_status print_limits(const json_t *machine, const json_t *limits,
                                    enum table_format format)
{
    if (format != TABLE_CSV) print_machine(machine, limits);
    SOL_TRY(print_levels(limits, format));
    putchar('\n');
    SOL_TRY(print_arithmetic(limits, format));
    if (format != TABLE_CSV) print_wakeup(limits);
    return SOL_OK;
}

/* ---- known devices ---- */

static enum sol_status print_known(const json_t *list, enum table_format format)
{
    static const char *const paths[] = {"memory_gib", "memory_gb_s", "sms",         "l2_mib",
                                        "watts",      "tflops.f32",  "tflops.bf16", "tflops.fp8",
                                        "tflops.fp4", "tflops.int8"};
    struct table *table;
    SOL_TRY(
        table_create("device|arch|>GiB|>GB/s|>-SMs|>-L2 MiB|>-W|>f32 TFLOP/s|>bf16|>fp8|>fp4|>int8|"
                     "---origin|---source",
                     &table));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *d = json_array_get(list, i);
        const char *arch = json_string_value(json_object_get(d, "architecture"));
        const char *origin = json_string_value(json_object_get(d, "origin"));
        const char *source = json_string_value(json_object_get(d, "source"));
        table_cell(table, "%s", json_string_value(json_object_get(d, "name")));
        table_cell(table, "%s", arch ? arch : "");
        add_numbers(table, d, paths, sizeof paths / sizeof *paths);
        table_cell(table, "%s", origin ? origin : "described");
        table_cell(table, "%s", source ? source : "");
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status show_known(const struct device_options *o, enum table_format format,
                                  bool json)
{
    json_t *list = NULL, *builtin;
    if (o->descriptions)
        SOL_TRY(device_descriptions_read(o->descriptions, &list));
    else
        list = json_array();
    builtin = device_datasheets();
    json_array_extend(list, builtin);
    json_decref(builtin);
    if (json) return json_print(list);
    enum sol_status status = print_known(list, format);
    json_decref(list);
    return status;
}

static enum sol_status show_links(const struct device_options *o, enum table_format format,
                                  bool json)
{
    json_t *links, *machine = NULL;
    enum sol_status status = get_limits(o, &links);
    if (status == SOL_OK) machine = gpu_list_json();
    while ((int)json_array_size(machine) > o->n_gpus)
        json_array_remove(machine, json_array_size(machine) - 1);
    if (status == SOL_OK && json)
        return json_print(json_pack("{s:o, s:o}", "machine", machine, "links", links));
    if (status == SOL_OK) status = device_links_print(machine, links, format);
    json_decref(machine);
    json_decref(links);
    return status;
}

static enum sol_status show(const struct device_options *o)
{
    enum table_format format;
    bool json;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    if (o->known || o->descriptions) return show_known(o, format, json);
    if (o->gpus) return show_links(o, format, json);
    json_t *limits, *machine;
    enum sol_status status = get_limits(o, &limits);
    if (status != SOL_OK) {
        json_decref(limits);
        return status;
    }
    machine = o->gpu ? gpu_machine_json(o->gpu) : device_machine_json();
    if (!o->gpu) json_object_set_new(machine, "gpus", gpu_list_json());
    if (json) return json_print(json_pack("{s:o, s:o}", "machine", machine, "limits", limits));
    status =
        o->gpu ? gpu_limits_print(machine, limits, format) : print_limits(machine, limits, format);
    json_decref(machine);
    json_decref(limits);
    return status;
}

static int run(int argc, char **argv)
{
    struct device_options o = {.format = "table", .seconds = 0.05, .most = 256};
    int exit_status;
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    if (o.threads == 0) o.threads = cpu_info()->cores;
    progress_quiet(o.quiet);
    enum sol_status status = o.gpus ? device_links_count(o.gpus, &o.n_gpus)
                                    : backend_open(o.backend, NULL, false, &o.gpu);
    if (status == SOL_OK) status = show(&o);
    gpu_close(o.gpu);
    return cli_fail(status);
}

const struct command cmd_device = {&spec, run, false};
