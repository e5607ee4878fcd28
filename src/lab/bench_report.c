#include "lab/bench_report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"

static const double mib = 1 << 20;

bool bench_format_from_name(const char *name, enum bench_format *out)
{
    static const char *const names[] = {"text", "md", "csv", "json", "jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bench_format)i;
            return true;
        }
    return false;
}

/* ---- derived figures, of the median repetition ---- */

static double seconds_of(const struct bench_result *r)
{
    return r->ns.median * 1e-9;
}

static double gigabytes_per_s(const struct bench_result *r)
{
    return r->cost.bytes * 1e-9 / seconds_of(r);
}

static double gigaflops(const struct bench_result *r)
{
    return r->cost.flops * 1e-9 / seconds_of(r);
}

/* Of the limits; NAN where they were not measured. */
static double memory_percent(const struct bench_report *report, const struct bench_result *r)
{
    double rate = ceiling_read_rate(report->ceiling);
    return rate > 0 ? 100 * r->cost.bytes / rate / seconds_of(r) : (double)NAN;
}

static double arithmetic_percent(const struct bench_report *report, const struct bench_result *r)
{
    double seconds = 0;
    for (int n = 0; n < NUMERICS_COUNT; n++) {
        double rate = ceiling_flop_rate(report->ceiling, (enum op_numerics)n);
        if (rate <= 0) return (double)NAN;
        seconds += r->flops[n] / rate;
    }
    return 100 * seconds / seconds_of(r);
}

/* Of the time that its bytes or its arithmetic need at best, whichever is more. */
static double kernel_percent(const struct bench_report *report, const struct bench_kernel *k)
{
    double bytes = ceiling_read_rate(report->ceiling);
    double flops = ceiling_flop_rate(report->ceiling, k->numerics);
    if (bytes <= 0 || flops <= 0) return (double)NAN;
    return 100 * fmax(k->cost.bytes / bytes, k->cost.flops / flops) / k->seconds;
}

static bool too_few(const struct bench_result *r)
{
    return r->ns.count < BENCH_REPETITIONS;
}

static bool disturbed(const struct bench_result *r)
{
    /* The system counts in ticks of 10 ms. */
    if (r->watch.seconds < 0.2) return false;
    return r->watch.other_cores > 0.1 || r->watch.stolen_cores > 0.05 ||
           r->watch.throttled_share > 0.01;
}

/* ---- tables ---- */

static enum sol_status add_percent(struct table *table, double value)
{
    return isnan(value) ? table_cell(table, "-") : table_cell(table, "%.1f", value);
}

static enum sol_status add_experts(struct table *table, const struct bench_experts *e)
{
    if (e->count == 0) return table_cell(table, "-");
    return table_cell(table, "%.1f/%lld, %.3g", e->touched, (long long)e->count,
                      e->even > 0 ? e->busiest / e->even : 0);
}

static enum sol_status add_row(struct table *table, const struct bench_report *report,
                               const struct bench_result *r)
{
    char name[80];
    SOL_TRY(table_cell(table, "%s%s%s", bench_test_name(&r->test, name), too_few(r) ? " *" : "",
                       disturbed(r) ? " !" : ""));
    SOL_TRY(table_cell(table, "%.2f", r->ts.mean));
    if (r->ts.has_interval)
        SOL_TRY(table_cell(table, "%.2f", (r->ts.ci_high - r->ts.ci_low) / 2));
    else
        SOL_TRY(table_cell(table, "-"));
    SOL_TRY(table_cell(table, "%.2f", r->ts.median));
    SOL_TRY(table_cell(table, "%.2f", r->ts.sd));
    SOL_TRY(table_cell(table, "%.0f", r->ns.median / (double)r->tokens));
    SOL_TRY(table_cell(table, "%.2f", gigabytes_per_s(r)));
    SOL_TRY(add_percent(table, memory_percent(report, r)));
    SOL_TRY(table_cell(table, "%.2f", gigaflops(r)));
    SOL_TRY(add_percent(table, arithmetic_percent(report, r)));
    SOL_TRY(table_cell(table, "%.1f", (double)r->memory_engine / mib));
    SOL_TRY(table_cell(table, "%.1f", (double)r->memory_peak / mib));
    return add_experts(table, &r->experts);
}

static enum sol_status fill_main(const struct bench_report *report, struct table *table)
{
    for (size_t i = 0; i < report->n_results; i++)
        SOL_TRY(add_row(table, report, &report->results[i]));
    return SOL_OK;
}

static enum sol_status write_main(const struct bench_report *report, enum table_format format,
                                  FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("test|>t/s|>+-95%|>median|>sd|>ns/token|>GB/s|>% mem|>GFLOP/s|>% arith|"
                         ">own MiB|>peak MiB|>experts, load",
                         &table));
    enum sol_status status = fill_main(report, table);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    return status;
}

static enum sol_status add_kernel(struct table *table, const struct bench_report *report,
                                  const char *test, const struct bench_kernel *k)
{
    SOL_TRY(table_cell(table, "%s", test));
    SOL_TRY(table_cell(table, "%s", k->op->name));
    SOL_TRY(table_cell(table, "%s", k->variant));
    SOL_TRY(table_cell(table, "%s", op_numerics_name(k->numerics)));
    SOL_TRY(table_cell(table, "%d", k->calls));
    if (k->seconds <= 0) {
        for (int i = 0; i < 5; i++) SOL_TRY(table_cell(table, "-"));
        return SOL_OK;
    }
    SOL_TRY(table_cell(table, "%.1f", 1e6 * k->seconds));
    SOL_TRY(table_cell(table, "%.1f", 100 * k->share));
    SOL_TRY(table_cell(table, "%.2f", 1e-9 * k->cost.bytes / k->seconds));
    SOL_TRY(table_cell(table, "%.2f", 1e-9 * k->cost.flops / k->seconds));
    return add_percent(table, kernel_percent(report, k));
}

static enum sol_status fill_kernels(const struct bench_report *report, struct table *table)
{
    for (size_t i = 0; i < report->n_results; i++) {
        const struct bench_result *r = &report->results[i];
        char name[80], label[120];
        for (int j = 0; j < r->n_kernels; j++) {
            bool both = r->test.n_prompt && r->test.n_gen;
            snprintf(label, sizeof label, "%s%s%s", bench_test_name(&r->test, name),
                     both ? " " : "", both ? r->kernels[j].phase : "");
            SOL_TRY(add_kernel(table, report, label, &r->kernels[j]));
        }
    }
    return SOL_OK;
}

static enum sol_status write_kernels(const struct bench_report *report, enum table_format format,
                                     FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("test|op|variant|numerics|>calls|>us/step|>% time|>GB/s|>GFLOP/s|>% limit",
                         &table));
    enum sol_status status = fill_kernels(report, table);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    return status;
}

static void write_rate(FILE *to, const char *name, const struct ceiling_rate *rate,
                       const char *unit)
{
    if (rate->best > 0)
        fprintf(to, ", %s %.4g %s (%s)", name, 1e-9 * rate->best, unit, rate->kernel);
}

static void write_limits(const struct ceiling *c, FILE *to)
{
    if (c->memory.best <= 0) {
        fputs("limits not measured", to);
        return;
    }
    fprintf(to, "limits measured in this run: memory read %.4g GB/s (%s)", 1e-9 * c->memory.best,
            c->memory.kernel);
    write_rate(to, "from cache at the model's size", &c->cache, "GB/s");
    write_rate(to, "f32", &c->arithmetic[NUMERICS_EXACT], "GFLOP/s");
    write_rate(to, "bf16", &c->arithmetic[NUMERICS_BF16], "GFLOP/s");
    write_rate(to, "int8", &c->arithmetic[NUMERICS_I8], "GFLOP/s");
    if (c->watch.other_cores > 0.1)
        fprintf(to, "; other programs kept %.1f cores busy meanwhile", c->watch.other_cores);
}

/* `end` closes each line: Markdown needs two blanks for a line break. */
static void write_heading(const struct bench_report *report, const char *end, FILE *to)
{
    const struct model *m = report->model;
    fprintf(to, "sol %s, %s: %.1f MiB of weights, %.4g million parameters%s\n", report->version,
            m->name, (double)m->weight_bytes / mib, 1e-6 * (double)m->parameters, end);
    fprintf(to, "%s, %d threads, cache in %s%s\n", cpu_info()->model,
            report->n_results ? report->results[0].threads : 0,
            dtype_info(report->params->engine.kv_dtype)->name, end);
    write_limits(report->ceiling, to);
    fprintf(to, "%s\n\n", end);
}

static void write_notes(const struct bench_report *report, FILE *to)
{
    bool few = false, noisy = false, experts = false;
    for (size_t i = 0; i < report->n_results; i++) {
        few = few || too_few(&report->results[i]);
        noisy = noisy || disturbed(&report->results[i]);
        experts = experts || report->results[i].experts.count > 0;
    }
    bool cached = report->ceiling->cache.best > 0;
    fprintf(to,
            "\n%% mem and %% arith: of the %s limit, and of the limit of the numerics that ran; "
            "own: memory beyond the model\n",
            cached ? "cache's read" : "memory's read");
    if (experts)
        fputs(
            "experts: touched per layer and step, and the busiest one's rows over an even share\n",
            to);
    if (few) fprintf(to, "* fewer than %d repetitions\n", BENCH_REPETITIONS);
    for (size_t i = 0; noisy && i < report->n_results; i++) {
        const struct bench_result *r = &report->results[i];
        char name[80];
        if (!disturbed(r)) continue;
        fprintf(to,
                "! %s: other programs kept %.1f cores busy, %.1f were stolen, throttled %.0f %%\n",
                bench_test_name(&r->test, name), r->watch.other_cores, r->watch.stolen_cores,
                100 * r->watch.throttled_share);
    }
}

static enum sol_status write_text(const struct bench_report *report, enum table_format format,
                                  FILE *to)
{
    write_heading(report, format == TABLE_MARKDOWN ? "  " : "", to);
    SOL_TRY(write_main(report, format, to));
    if (report->params->ops) {
        fputc('\n', to);
        SOL_TRY(write_kernels(report, format, to));
    }
    write_notes(report, to);
    return SOL_OK;
}

/* ---- CSV: the same figures with units that a program reads ---- */

static enum sol_status add_csv_row(struct table *table, const struct bench_report *report,
                                   const struct bench_result *r)
{
    const struct bench_test *t = &r->test;
    SOL_TRY(table_cell(table, "%s", report->model->name));
    SOL_TRY(table_cell(table, "CPU"));
    SOL_TRY(table_cell(table, "%d", r->threads));
    SOL_TRY(table_cell(table, "%lld", (long long)t->n_prompt));
    SOL_TRY(table_cell(table, "%lld", (long long)t->n_gen));
    SOL_TRY(table_cell(table, "%lld", (long long)t->n_depth));
    SOL_TRY(table_cell(table, "%lld", (long long)t->n_parallel));
    SOL_TRY(table_cell(table, "%zu", r->ns.count));
    const double values[] = {
        r->ns.mean,
        r->ns.sd,
        r->ts.mean,
        r->ts.sd,
        r->ts.median,
        r->ts.ci_low,
        r->ts.ci_high,
        r->ns.median / (double)r->tokens,
        r->cost.flops / (double)r->tokens,
        r->cost.bytes / (double)r->tokens,
        gigabytes_per_s(r),
        gigaflops(r),
        1e-9 * ceiling_read_rate(report->ceiling),
        memory_percent(report, r),
        arithmetic_percent(report, r),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        SOL_TRY(isnan(values[i]) ? table_cell(table, "%s", "")
                                 : table_cell(table, "%.6g", values[i]));
    SOL_TRY(table_cell(table, "%zu", r->memory_engine));
    SOL_TRY(table_cell(table, "%zu", r->memory_anonymous));
    SOL_TRY(table_cell(table, "%zu", r->memory_peak));
    SOL_TRY(table_cell(table, "%.6g", r->experts.touched));
    SOL_TRY(table_cell(table, "%.6g", r->experts.busiest));
    return table_cell(table, "%.3g", r->watch.other_cores);
}

static enum sol_status write_csv(const struct bench_report *report, FILE *to)
{
    if (report->params->ops) return write_kernels(report, TABLE_CSV, to);
    struct table *table;
    SOL_TRY(table_create("model_filename|backends|n_threads|n_prompt|n_gen|n_depth|n_parallel|"
                         "repetitions|avg_ns|stddev_ns|avg_ts|stddev_ts|median_ts|ci95_low_ts|"
                         "ci95_high_ts|ns_per_token|flops_per_token|bytes_per_token|gb_s|gflop_s|"
                         "read_limit_gb_s|memory_limit_percent|arithmetic_limit_percent|"
                         "memory_engine|memory_anonymous|memory_peak|experts_touched|"
                         "expert_busiest_rows|other_cores",
                         &table));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results && status == SOL_OK; i++)
        status = add_csv_row(table, report, &report->results[i]);
    if (status == SOL_OK) table_print(table, TABLE_CSV, to);
    table_destroy(table);
    return status;
}

/* ---- JSON ---- */

static json_t *percent_json(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *features_json(void)
{
    json_t *list = json_array();
    for (unsigned bit = 1; bit; bit <<= 1)
        if (cpu_info()->features & bit)
            json_array_append_new(list, json_string(cpu_feature_name(bit)));
    return list;
}

static json_t *machine_json(void)
{
    const struct cpu_info *cpu = cpu_info();
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:o}", "cpu", cpu->model, "cores", cpu->cores,
                     "l1d", (json_int_t)cpu->l1d, "l2", (json_int_t)cpu->l2, "l3",
                     (json_int_t)cpu->l3, "features", features_json());
}

static json_t *settings_json(const struct bench_report *report)
{
    const struct engine_params *p = &report->params->engine;
    json_t *forced = json_array();
    for (int i = 0; i < p->chooser.n_forces; i++)
        json_array_append_new(forced, json_sprintf("%s=%s", p->chooser.forces[i].op->name,
                                                   p->chooser.forces[i].variant));
    return json_pack("{s:s, s:b, s:b, s:o}", "loosest_numerics",
                     op_numerics_name(p->chooser.loosest), "reference", p->chooser.reference,
                     "rounded_rope", p->rounded_rope, "forced", forced);
}

static json_t *kernel_json(const struct bench_report *report, const struct bench_kernel *k)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:f, s:f}", "phase", k->phase, "op", k->op->name,
                  "variant", k->variant, "numerics", op_numerics_name(k->numerics), "calls",
                  k->calls, "flops", k->cost.flops, "bytes", k->cost.bytes);
    if (!json || k->seconds <= 0) return json;
    json_object_set_new(json, "us_per_step", json_real(1e6 * k->seconds));
    json_object_set_new(json, "share", json_real(k->share));
    json_object_set_new(json, "gb_s", json_real(1e-9 * k->cost.bytes / k->seconds));
    json_object_set_new(json, "gflop_s", json_real(1e-9 * k->cost.flops / k->seconds));
    json_object_set_new(json, "limit_percent", percent_json(kernel_percent(report, k)));
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
    char when[32] = "", type[48];
    struct tm utc;
    if (gmtime_r(&r->started, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(type, sizeof type, "gpt-oss %.4gB", 1e-9 * (double)m->parameters);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:s, s:s, s:I, s:I, "
                     "s:I, s:I, s:s}",
                     "sol_version", report->version, "cpu_info", cpu_info()->model, "gpu_info", "",
                     "backends", "CPU", "model_filename", m->name, "model_type", type, "model_size",
                     (json_int_t)m->weight_bytes, "model_n_params", (json_int_t)m->parameters,
                     "n_batch", (json_int_t)r->batch, "n_ubatch", (json_int_t)r->batch, "n_threads",
                     r->threads, "type_k", kv, "type_v", kv, "n_prompt",
                     (json_int_t)r->test.n_prompt, "n_gen", (json_int_t)r->test.n_gen, "n_depth",
                     (json_int_t)r->test.n_depth, "n_parallel", (json_int_t)r->test.n_parallel,
                     "test_time", when);
}

static void add_samples(json_t *json, const struct bench_result *r)
{
    json_t *ns = json_array(), *ts = json_array();
    for (size_t i = 0; i < r->ns.count; i++) {
        json_array_append_new(ns, json_integer((json_int_t)r->samples_ns[i]));
        json_array_append_new(ts, json_real(1e9 * (double)r->tokens / r->samples_ns[i]));
    }
    json_object_set_new(json, "samples_ns", ns);
    json_object_set_new(json, "samples_ts", ts);
}

static json_t *times_json(const struct bench_result *r)
{
    json_t *interval =
        r->ts.has_interval ? json_pack("[f, f]", r->ts.ci_low, r->ts.ci_high) : json_null();
    json_t *json = json_pack(
        "{s:I, s:I, s:f, s:f, s:I, s:f, s:o, s:f, s:I, s:b}", "avg_ns", (json_int_t)r->ns.mean,
        "stddev_ns", (json_int_t)r->ns.sd, "avg_ts", r->ts.mean, "stddev_ts", r->ts.sd, "median_ns",
        (json_int_t)r->ns.median, "median_ts", r->ts.median, "ci95_ts", interval, "ns_per_token",
        r->ns.median / (double)r->tokens, "repetitions", (json_int_t)r->ns.count,
        "enough_repetitions", !too_few(r));
    if (json) add_samples(json, r);
    return json;
}

static json_t *work_json(const struct bench_report *report, const struct bench_result *r)
{
    double tokens = (double)r->tokens;
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:{s:I, s:I, s:I}, s:o, s:o, s:{s:f, s:f, s:f, s:b}}",
        "flops_per_token", r->cost.flops / tokens, "bytes_per_token", r->cost.bytes / tokens,
        "gb_s", gigabytes_per_s(r), "gflop_s", gigaflops(r), "read_limit_gb_s",
        1e-9 * ceiling_read_rate(report->ceiling), "memory_limit_percent",
        percent_json(memory_percent(report, r)), "arithmetic_limit_percent",
        percent_json(arithmetic_percent(report, r)), "memory", "engine",
        (json_int_t)r->memory_engine, "anonymous", (json_int_t)r->memory_anonymous, "peak",
        (json_int_t)r->memory_peak, "experts", experts_json(&r->experts), "kernels",
        kernels_json(report, r), "disturbance", "other_cores", r->watch.other_cores, "stolen_cores",
        r->watch.stolen_cores, "throttled_share", r->watch.throttled_share, "significant",
        disturbed(r));
}

static json_t *record_json(const struct bench_report *report, const struct bench_result *r)
{
    json_t *record = test_json(report, r);
    if (!record) return NULL;
    json_t *parts[] = {times_json(r), work_json(report, r)};
    bool complete = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        complete = complete && parts[i] && json_object_update(record, parts[i]) == 0;
        json_decref(parts[i]);
    }
    complete = complete &&
               json_object_set_new(record, "limits", ceiling_json(report->ceiling)) == 0 &&
               json_object_set_new(record, "machine", machine_json()) == 0 &&
               json_object_set_new(record, "settings", settings_json(report)) == 0;
    if (complete) return record;
    json_decref(record);
    return NULL;
}

static enum sol_status write_json(const struct bench_report *report, bool lines, FILE *to)
{
    json_t *all = json_array();
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results && status == SOL_OK; i++) {
        json_t *record = record_json(report, &report->results[i]);
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

enum sol_status bench_report_write(const struct bench_report *report, enum bench_format format,
                                   FILE *to)
{
    enum sol_status status = SOL_OK;
    switch (format) {
    case BENCH_TEXT:
        status = write_text(report, TABLE_TEXT, to);
        break;
    case BENCH_MARKDOWN:
        status = write_text(report, TABLE_MARKDOWN, to);
        break;
    case BENCH_CSV:
        status = write_csv(report, to);
        break;
    case BENCH_JSON:
        status = write_json(report, false, to);
        break;
    case BENCH_JSONL:
        status = write_json(report, true, to);
        break;
    }
    if (status == SOL_OK && (fflush(to) != 0 || ferror(to)))
        status = status_set(SOL_E_IO, "cannot write the results: %s", strerror(errno));
    return status;
}
