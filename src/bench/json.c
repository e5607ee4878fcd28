/* One record per test is made as JSON; CSV and SQL print a list of its fields. Those that
 * llama-bench has carry its names, in its order, so that its users' scripts read them; what
 * llama-bench knows and we have nothing like is given as it would be on a processor alone. */
#include "bench/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/json_value.h"
#include "bench/figures.h"
#include "gpu/device.h"
#include "infer/team.h"
#include "stats/statistics.h"
#include "store/environment.h"
#include "store/store_json.h"

/* The columns of llama-bench's database. */
static const struct {
    const char *name, *type;
} shared_fields[] = {
    {"build_commit", "TEXT"},
    {"build_number", "INTEGER"},
    {"cpu_info", "TEXT"},
    {"gpu_info", "TEXT"},
    {"backends", "TEXT"},
    {"model_filename", "TEXT"},
    {"model_type", "TEXT"},
    {"model_size", "INTEGER"},
    {"model_n_params", "INTEGER"},
    {"n_batch", "INTEGER"},
    {"n_ubatch", "INTEGER"},
    {"n_threads", "INTEGER"},
    {"cpu_mask", "TEXT"},
    {"cpu_strict", "INTEGER"},
    {"poll", "INTEGER"},
    {"type_k", "TEXT"},
    {"type_v", "TEXT"},
    {"n_gpu_layers", "INTEGER"},
    {"n_cpu_moe", "INTEGER"},
    {"split_mode", "TEXT"},
    {"main_gpu", "INTEGER"},
    {"no_kv_offload", "INTEGER"},
    {"flash_attn", "INTEGER"},
    {"devices", "TEXT"},
    {"tensor_split", "TEXT"},
    {"tensor_buft_overrides", "TEXT"},
    {"load_mode", "TEXT"},
    {"embeddings", "INTEGER"},
    {"no_op_offload", "INTEGER"},
    {"no_host", "INTEGER"},
    {"fit_target", "INTEGER"},
    {"fit_min_ctx", "INTEGER"},
    {"n_prompt", "INTEGER"},
    {"n_gen", "INTEGER"},
    {"n_depth", "INTEGER"},
    {"test_time", "TEXT"},
    {"avg_ns", "INTEGER"},
    {"stddev_ns", "INTEGER"},
    {"avg_ts", "REAL"},
    {"stddev_ts", "REAL"},
};
enum { SHARED_FIELDS = sizeof shared_fields / sizeof *shared_fields };

/* CSV has these behind them; a dot goes into an object. */
static const char *const own_fields[] = {
    "run",
    "n_parallel",
    "repetitions",
    "stopped",
    "outliers",
    "repeated",
    "starts",
    "ts",
    "half_width_percent",
    "ns_per_token",
    "limit_ns_per_token",
    "limit_percent",
    "limited_by",
    "flops_per_token",
    "bytes_per_token",
    "gb_s",
    "gflop_s",
    "read_limit_gb_s",
    "memory_limit_percent",
    "arithmetic_limit_percent",
    "step_ns.median",
    "step_ns.p90",
    "step_ns.p99",
    "memory.engine",
    "memory.anonymous",
    "memory.peak",
    "memory.device_model",
    "memory.device_peak",
    "load_s",
    "upload_s",
    "joules_per_token",
    "joules_half_width_percent",
    "energy_source",
    "rating",
    "proved",
    "noise",
    "disturbance.other_cores",
};
enum { OWN_FIELDS = sizeof own_fields / sizeof *own_fields };

/* ---- the record ---- */

static json_t *text_json(const char *text)
{
    return text ? store_json_string(text) : json_null();
}

static json_t *features_json(void)
{
    json_t *list = json_array();
    for (unsigned bit = 1; bit; bit <<= 1)
        if (cpu_info()->features & bit)
            json_array_append_new(list, json_string(cpu_feature_name(bit)));
    return list;
}

static json_t *gpu_json(const struct gpu *gpu)
{
    if (!gpu) return json_null();
    char arch[16];
    const struct gpu_info *i = gpu_info(gpu);
    gpu_architecture(i, arch);
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:I, s:I, s:i}", "ordinal", i->ordinal, "name",
                     i->name, "pci", i->pci, "architecture", arch, "sms", i->sm_count, "memory",
                     (json_int_t)i->memory_bytes, "l2", (json_int_t)i->l2_bytes, "driver",
                     i->driver_version);
}

static json_t *machine_json(const struct bench_report *report)
{
    const struct cpu_info *cpu = cpu_info();
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:o, s:o}", "cpu", cpu->model, "cores", cpu->cores,
                     "l1d", (json_int_t)cpu->l1d, "l2", (json_int_t)cpu->l2, "l3",
                     (json_int_t)cpu->l3, "features", features_json(), "gpu",
                     gpu_json(report->params->engine.chooser.device.gpu));
}

static json_t *settings_json(const struct bench_report *report)
{
    const struct engine_params *p = &report->params->engine;
    json_t *forced = json_array();
    char text[OP_REASON_MAX];
    for (int i = 0; i < p->chooser.n_forces; i++) {
        chooser_force_text(&p->chooser, i, text);
        json_array_append_new(forced, json_string(text));
    }
    json_t *json = json_pack(
        "{s:s, s:b, s:b, s:o}", "loosest_numerics", op_numerics_name(p->chooser.loosest),
        "reference", p->chooser.reference, "rounded_rope", p->rounded_rope, "forced", forced);
    const int part_of = p->team ? team_alone_of(p->team) : 0;
    if (json && p->team && !part_of)
        json_object_set_new(json, "gpus", json_integer(team_size(p->team)));
    if (json && part_of) json_object_set_new(json, "part_of", json_integer(part_of));
    const char *way = p->team ? shard_way_key(team_way(p->team)) : NULL;
    if (json && way) json_object_set_new(json, way, json_true());
    if (json && p->chooser.tuning) {
        tuning_digest(p->chooser.tuning, text);
        json_object_set_new(json, "tuning", json_string(text));
    }
    if (!json || p->chooser.n_slow == 0) return json;
    /* A planted delay must show wherever the figures go. */
    json_t *slow = json_array();
    for (int i = 0; i < p->chooser.n_slow; i++)
        json_array_append_new(slow, json_sprintf("%s=%g %%", p->chooser.slow[i].op->name,
                                                 100 * p->chooser.slow[i].fraction));
    json_object_set_new(json, "slow", slow);
    return json;
}

static json_t *kernel_json(const struct bench_report *report, const struct bench_kernel *k)
{
    double limit = bench_kernel_limit_ns(report->ceiling, k);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:o, s:I, s:f, s:f, s:o}", "phase", k->phase,
                  "op", k->op->name, "variant", k->variant, "numerics",
                  op_numerics_name(k->numerics), "steps", (json_int_t)k->steps, "calls", k->calls,
                  "expected", k->expected < 0 ? json_null() : json_integer(k->expected), "ran",
                  (json_int_t)k->ran, "flops", k->cost.flops, "bytes", k->cost.bytes,
                  "limit_us_per_step", json_number(1e-3 * limit));
    if (!json || k->seconds <= 0) return json;
    json_object_set_new(json, "us_per_step", json_real(1e6 * k->seconds));
    json_object_set_new(json, "share", json_real(k->share));
    json_object_set_new(json, "gb_s", json_real(1e-9 * k->cost.bytes / k->seconds));
    json_object_set_new(json, "gflop_s", json_real(1e-9 * k->cost.flops / k->seconds));
    json_object_set_new(json, "limit_percent", json_number(1e-7 * limit / k->seconds));
    return json;
}

static json_t *kernels_json(const struct bench_report *report, const struct bench_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_kernels; i++)
        json_array_append_new(list, kernel_json(report, &r->kernels[i]));
    return list;
}

static json_t *experts_json(const struct bench_experts *e)
{
    if (e->count == 0) return json_null();
    return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)e->count, "touched_per_layer",
                     e->touched, "busiest_rows", e->busiest, "even_rows", e->even);
}

/* What llama-bench calls by these names. */
static json_t *test_json(const struct bench_report *report, const struct bench_result *r)
{
    const char *kv = dtype_info(report->params->engine.kv_dtype)->name;
    const struct model *m = report->model;
    const struct gpu *gpu = report->params->engine.chooser.device.gpu;
    char when[32] = "", type[48];
    struct tm utc;
    if (gmtime_r(&r->started, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:s, s:s, "
        "s:I, s:I, s:I, s:I, s:s, s:f, s:f}",
        "sol_version", report->version, "run", text_json(report->run), "cpu_info",
        cpu_info()->model, "gpu_info", gpu ? gpu_info(gpu)->name : "", "backends",
        gpu ? "CUDA" : "CPU", "model_filename", text_json(m->name), "model_type",
        bench_model_type(m, type), "model_size", (json_int_t)m->weight_bytes, "model_n_params",
        (json_int_t)m->parameters, "n_batch", (json_int_t)report->params->engine.max_batch,
        "n_ubatch", (json_int_t)report->params->engine.max_batch, "step_rows", (json_int_t)r->batch,
        "n_threads", r->threads, "type_k", kv, "type_v", kv, "n_prompt",
        (json_int_t)r->test.n_prompt, "n_gen", (json_int_t)r->test.n_gen, "n_depth",
        (json_int_t)r->test.n_depth, "n_parallel", (json_int_t)r->test.n_parallel, "test_time",
        when, "load_s", report->load_s, "upload_s", report->upload_s);
}

static json_t *fixed_json(const struct bench_report *report)
{
    const struct gpu *gpu = report->params->engine.chooser.device.gpu;
    int all_layers = 99; /* llama-bench's way to say it */
    return json_pack("{s:s, s:i, s:s, s:b, s:i, s:i, s:i, s:s, s:i, s:b, s:i, s:s, s:s, s:s, s:s, "
                     "s:b, s:i, s:b, s:i, s:i}",
                     "build_commit", environment_build_commit(), "build_number", 0, "cpu_mask",
                     "0x0", "cpu_strict", 0, "poll", 50, "n_gpu_layers", gpu ? all_layers : 0,
                     "n_cpu_moe", 0, "split_mode", "none", "main_gpu",
                     gpu ? gpu_info(gpu)->ordinal : 0, "no_kv_offload", 0, "flash_attn", 1,
                     "devices", "auto", "tensor_split", "0.00", "tensor_buft_overrides", "none",
                     "load_mode", "auto", "embeddings", 0, "no_op_offload", 0, "no_host", 0,
                     "fit_target", 0, "fit_min_ctx", 0);
}

/* Warm-ups and labels are in "samples"; the two lists that llama-bench has hold what counts. */
static void add_samples(json_t *json, const struct bench_result *r)
{
    json_t *ns = json_array(), *ts = json_array(), *all = json_array();
    for (size_t i = 0; i < r->n_counted; i++) {
        double value = bench_counted(r)[i].ns;
        json_array_append_new(ns, json_integer((json_int_t)value));
        json_array_append_new(ts, json_real(1e9 * (double)r->tokens / value));
    }
    for (size_t i = 0; i < r->n_samples; i++) {
        const struct sample *s = &r->samples[i];
        json_array_append_new(all, json_pack("{s:f, s:o, s:i, s:I, s:b, s:b, s:o}", "ns", s->ns,
                                             "joules", json_number(s->joules), "start", s->start,
                                             "started_ns", (json_int_t)s->started_ns, "warmup",
                                             s->warmup, "outlier", s->outlier, "cause",
                                             text_json(s->cause)));
    }
    json_object_set_new(json, "samples_ns", ns);
    json_object_set_new(json, "samples_ts", ts);
    json_object_set_new(json, "samples", all);
}

/* llama-bench's means, of the counted repetitions and of their rates. */
static enum sol_status means_json(const struct bench_result *r, json_t *json)
{
    struct statistics ns = {.count = 0}, ts = {.count = 0};
    double *values = calloc(2 * r->n_counted + 1, sizeof *values);
    if (!values) return status_set(SOL_E_MEMORY, "no memory for the JSON results");
    for (size_t i = 0; i < r->n_counted; i++) {
        values[i] = bench_counted(r)[i].ns;
        values[r->n_counted + i] = 1e9 * (double)r->tokens / values[i];
    }
    enum sol_status status = statistics_of(values, r->n_counted, &ns);
    if (status == SOL_OK) status = statistics_of(values + r->n_counted, r->n_counted, &ts);
    free(values);
    json_object_update_new(json, json_pack("{s:I, s:I, s:f, s:f}", "avg_ns", (json_int_t)ns.mean,
                                           "stddev_ns", (json_int_t)ns.sd, "avg_ts", ts.mean,
                                           "stddev_ts", ts.sd));
    return status;
}

/* The figure of a test: sol's own fields, which every other reader of the run shows. */
static json_t *figure_json(const struct bench_report *report, const struct bench_result *r)
{
    struct figure speed = bench_speed(report->ceiling, r), rate = bench_rate(report->ceiling, r);
    json_t *interval = isnan(rate.half) ? json_null() : json_pack("[f, f]", rate.low, rate.high);
    return json_pack("{s:f, s:o, s:o, s:f, s:o, s:o, s:s, s:o}", "ts", rate.value, "ci95_ts",
                     interval, "half_width_percent", json_number(100 * rate.half), "ns_per_token",
                     speed.value, "limit_ns_per_token", json_number(speed.limit), "limit_percent",
                     json_number(100 * speed.reached), "limited_by",
                     bench_bound(report->ceiling, r), "sd_percent", json_number(100 * speed.sd));
}

static json_t *times_json(const struct bench_report *report, const struct bench_result *r)
{
    char noise[160];
    json_t *json = figure_json(report, r);
    if (!json || means_json(r, json) != SOL_OK) return json;
    json_object_update_new(
        json,
        json_pack("{s:o, s:I, s:I, s:b, s:s, s:b, s:I, s:I, s:o}", "wanted_percent",
                  r->precision > 0 ? json_real(100 * r->precision) : json_null(), "repetitions",
                  (json_int_t)r->n_counted, "starts", (json_int_t)r->speed.starts,
                  "enough_repetitions", !bench_too_few(r), "stopped", stop_reason_name(r->stopped),
                  "warmup_settled", r->settled, "outliers", (json_int_t)bench_outliers(r),
                  "repeated", (json_int_t)bench_repeated(r), "noise",
                  *bench_noise(r, noise) ? json_string(noise) : json_null()));
    add_samples(json, r);
    return json;
}

/* What the work took, and which sensor said so. */
static json_t *energy_json(const struct bench_report *report, const struct bench_result *r)
{
    const struct figure *j = &r->energy;
    bool gpu = report->params->engine.chooser.device.gpu != NULL, known = j->count > 0;
    return json_pack("{s:o, s:o, s:o}", "joules_per_token",
                     known ? json_real(j->value) : json_null(), "joules_half_width_percent",
                     known ? json_number(100 * j->half) : json_null(), "energy_source",
                     known ? json_string(gpu ? "NVML, the GPU" : "RAPL, the processor packages")
                           : json_null());
}

/* Times of single generation steps: what a user waits between tokens. */
static json_t *steps_json(const struct bench_result *r)
{
    if (r->n_steps == 0) return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)r->n_steps, "min",
                     bench_step_ns(r, 0), "median", bench_step_ns(r, 0.5), "p90",
                     bench_step_ns(r, 0.9), "p99", bench_step_ns(r, 0.99), "max",
                     bench_step_ns(r, 1));
}

static json_t *verdict_json(const struct bench_report *report, const struct bench_result *r)
{
    const struct rating *rating = bench_rating(report, r);
    const char *rated = rating ? rating_name(rating, bench_rate(report->ceiling, r).value) : NULL;
    json_t *json =
        json_pack("{s:o, s:o, s:b, s:b, s:o, s:o, s:o}", "step_ns", steps_json(r), "rating",
                  text_json(rated), "proved", r->proved, "layers_complete", r->layers_complete,
                  "invalid", text_json(bench_invalid(report, r)), "clock_mhz",
                  json_number(r->clock_mhz), "temperature_c", json_number(r->temperature_c));
    if (json && r->memory_device_peak)
        json_object_update_new(json,
                               json_pack("{s:o, s:f}", "gpu_state", gpu_reading_json(&r->reading),
                                         "event_ns", r->event_ns));
    if (json && rating)
        json_object_set_new(json, "rated_against",
                            json_pack("{s:s, s:f, s:f, s:f, s:s}", "metric", rating->metric,
                                      "baseline", rating->baseline, "good", rating->good,
                                      "excellent", rating->excellent, "source", rating->source));
    return json;
}

static json_t *memory_json(const struct bench_result *r)
{
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "engine", (json_int_t)r->memory_engine, "cache",
                  (json_int_t)r->memory_parts.cache, "buffers", (json_int_t)r->memory_parts.buffers,
                  "scratch", (json_int_t)r->memory_parts.scratch, "anonymous",
                  (json_int_t)r->memory_anonymous, "peak", (json_int_t)r->memory_peak);
    if (!json || !r->memory_device_peak) return json;
    json_object_update_new(json, json_pack("{s:I, s:I}", "device_model",
                                           (json_int_t)(r->memory_device - r->memory_engine),
                                           "device_peak", (json_int_t)r->memory_device_peak));
    return json;
}

static json_t *work_json(const struct bench_report *report, const struct bench_result *r)
{
    double tokens = (double)r->tokens;
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:{s:f, s:f, s:f, s:b}}",
        "flops_per_token", r->cost.flops / tokens, "bytes_per_token", r->cost.bytes / tokens,
        "gb_s", bench_gigabytes_per_s(r), "gflop_s", bench_gigaflops(r), "read_limit_gb_s",
        1e-9 * ceiling_read_rate(report->ceiling), "memory_limit_percent",
        json_number(bench_memory_percent(report->ceiling, r)), "arithmetic_limit_percent",
        json_number(bench_arithmetic_percent(report->ceiling, r)), "memory", memory_json(r),
        "experts", experts_json(&r->experts), "kernels", kernels_json(report, r), "disturbance",
        "other_cores", r->watch.other_cores, "stolen_cores", r->watch.stolen_cores,
        "throttled_share", r->watch.throttled_share, "significant", bench_disturbed(r));
}

json_t *bench_record_json(const struct bench_report *report, const struct bench_result *r)
{
    json_t *record = test_json(report, r);
    if (!record) return NULL;
    json_t *parts[] = {fixed_json(report), times_json(report, r), energy_json(report, r),
                       work_json(report, r), verdict_json(report, r)};
    bool complete = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        complete = complete && parts[i] && json_object_update(record, parts[i]) == 0;
        json_decref(parts[i]);
    }
    complete = complete &&
               json_object_set_new(record, "limits", ceiling_json(report->ceiling)) == 0 &&
               json_object_set_new(record, "machine", machine_json(report)) == 0 &&
               json_object_set_new(record, "settings", settings_json(report)) == 0;
    if (complete) return record;
    json_decref(record);
    return NULL;
}

enum sol_status bench_write_json(const struct bench_report *report, bool lines, FILE *to)
{
    json_t *all = json_array();
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results && status == SOL_OK; i++) {
        json_t *record = bench_record_json(report, &report->results[i]);
        if (!record || json_array_append_new(all, record) != 0)
            status = status_set(SOL_E_MEMORY, "no memory for the JSON results");
    }
    size_t flags = JSON_REAL_PRECISION(9);
    for (size_t i = 0; lines && i < json_array_size(all); i++) {
        json_dumpf(json_array_get(all, i), to, flags | JSON_COMPACT);
        fputc('\n', to);
    }
    if (!lines && status == SOL_OK) {
        json_dumpf(all, to, flags | JSON_INDENT(2));
        fputc('\n', to);
    }
    json_decref(all);
    return status;
}

/* ---- the record as columns ---- */

static const json_t *field_of(const json_t *record, const char *name)
{
    const char *dot = strchr(name, '.');
    char first[64];
    if (!dot) return json_object_get(record, name);
    snprintf(first, sizeof first, "%.*s", (int)(dot - name), name);
    return json_object_get(json_object_get(record, first), dot + 1);
}

static enum sol_status add_field(struct table *table, const json_t *value)
{
    if (json_is_string(value)) return table_cell(table, "%s", json_string_value(value));
    if (json_is_boolean(value)) return table_cell(table, "%d", json_is_true(value));
    if (json_is_integer(value))
        return table_cell(table, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) return table_cell(table, "%.9g", json_real_value(value));
    return table_cell(table, "%s", "");
}

static enum sol_status add_csv_row(struct table *table, const struct bench_report *report,
                                   const struct bench_result *r)
{
    json_t *record = bench_record_json(report, r);
    enum sol_status status = record ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a record");
    for (size_t i = 0; i < SHARED_FIELDS && status == SOL_OK; i++)
        status = add_field(table, json_object_get(record, shared_fields[i].name));
    for (size_t i = 0; i < OWN_FIELDS && status == SOL_OK; i++)
        status = add_field(table, field_of(record, own_fields[i]));
    json_decref(record);
    return status;
}

enum sol_status bench_write_csv(const struct bench_report *report, FILE *to)
{
    char columns[2048] = "";
    struct table *table;
    for (size_t i = 0; i < SHARED_FIELDS + OWN_FIELDS; i++) {
        size_t used = strlen(columns);
        snprintf(columns + used, sizeof columns - used, "%s%s", i ? "|" : "",
                 i < SHARED_FIELDS ? shared_fields[i].name : own_fields[i - SHARED_FIELDS]);
    }
    SOL_TRY(table_create(columns, &table));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results && status == SOL_OK; i++)
        status = add_csv_row(table, report, &report->results[i]);
    if (status == SOL_OK) table_print(table, TABLE_CSV, to);
    table_destroy(table);
    return status;
}

static void write_sql_value(const json_t *value, FILE *to)
{
    if (json_is_boolean(value)) {
        fprintf(to, "'%d'", json_is_true(value));
    } else if (json_is_integer(value)) {
        fprintf(to, "'%lld'", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        fprintf(to, "'%f'", json_real_value(value));
    } else {
        const char *text = json_string_value(value);
        fputc('\'', to);
        for (; text && *text; text++) fprintf(to, *text == '\'' ? "''" : "%c", *text);
        fputc('\'', to);
    }
}

/* Exactly llama-bench's columns, so that both may write into one table. */
enum sol_status bench_write_sql(const struct bench_report *report, FILE *to)
{
    fputs("CREATE TABLE IF NOT EXISTS llama_bench (\n", to);
    for (size_t i = 0; i < SHARED_FIELDS; i++)
        fprintf(to, "  %s %s%s\n", shared_fields[i].name, shared_fields[i].type,
                i + 1 < SHARED_FIELDS ? "," : "");
    fputs(");\n\n", to);
    for (size_t i = 0; i < report->n_results; i++) {
        json_t *record = bench_record_json(report, &report->results[i]);
        if (!record) return status_set(SOL_E_MEMORY, "no memory for a record");
        fputs("INSERT INTO llama_bench (", to);
        for (size_t f = 0; f < SHARED_FIELDS; f++)
            fprintf(to, "%s%s", f ? ", " : "", shared_fields[f].name);
        fputs(") VALUES (", to);
        for (size_t f = 0; f < SHARED_FIELDS; f++) {
            if (f) fputs(", ", to);
            write_sql_value(json_object_get(record, shared_fields[f].name), to);
        }
        fputs(");\n", to);
        json_decref(record);
    }
    return SOL_OK;
}
