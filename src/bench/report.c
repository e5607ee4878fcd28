#include "bench/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/notes.h"
#include "bench/figures.h"
#include "bench/json.h"
#include "gpu/device.h"

static const double mib = 1 << 20;

bool bench_format_from_name(const char *name, enum bench_format *out)
{
    static const char *const names[] = {"text", "md", "csv", "json", "jsonl", "sql"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bench_format)i;
            return true;
        }
    if (strcmp(name, "table") != 0) return false;
    *out = BENCH_TEXT;
    return true;
}

const char *bench_invalid(const struct bench_report *report, const struct bench_result *r)
{
    if (!r->proved && r->stopped != STOP_INTERRUPTED)
        return "the kernels that ran are not those that the plan calls for";
    if (bench_impossible(report->ceiling, r))
        return "it is over 5 % faster than the measured limit; measure again on a quiet machine";
    return NULL;
}

const char *bench_device(const struct bench_report *report)
{
    const struct gpu *gpu = report->params->engine.chooser.device.gpu;
    return gpu ? gpu_info(gpu)->name : cpu_info()->model;
}

const struct rating *bench_rating(const struct bench_report *report, const struct bench_result *r)
{
    char name[80], type[48];
    return rating_find(report->ratings, bench_device(report), bench_model_type(report->model, type),
                       bench_test_name(&r->test, name));
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

/* "0.0123 +-2.1 %". */
static enum sol_status add_energy(struct table *table, const struct figure *joules)
{
    if (joules->count == 0) return table_cell(table, "-");
    if (isnan(joules->half)) return table_cell(table, "%.4g", joules->value);
    char half[24];
    return table_cell(table, "%.4g +-%s %%", joules->value,
                      figure_percent_text(joules->half, half));
}

static enum sol_status add_speed(struct table *table, const struct bench_report *report,
                                 const struct bench_result *r)
{
    struct figure speed = bench_speed(report->ceiling, r);
    char text[24];
    SOL_TRY(table_cell(table, "%.2f", bench_rate(report->ceiling, r).value));
    SOL_TRY(table_cell(table, "%s", figure_percent_text(speed.half, text)));
    SOL_TRY(table_cell(table, "%.0f", speed.value));
    SOL_TRY(add_percent(table, 100 * speed.reached));
    SOL_TRY(table_cell(table, "%s", bench_bound(report->ceiling, r)));
    return table_cell(table, "%s", figure_percent_text(speed.sd, text));
}

static enum sol_status add_row(struct table *table, const struct bench_report *report,
                               const struct bench_result *r)
{
    char name[80];
    SOL_TRY(table_cell(table, "%s%s%s", bench_test_name(&r->test, name),
                       bench_too_few(r) ? " *" : "", bench_disturbed(r) ? " !" : ""));
    SOL_TRY(add_speed(table, report, r));
    SOL_TRY(table_cell(table, "%.2f", bench_gigabytes_per_s(r)));
    SOL_TRY(table_cell(table, "%.2f", bench_gigaflops(r)));
    if (r->speed.starts > 1)
        SOL_TRY(table_cell(table, "%zu in %zu starts", r->n_counted, r->speed.starts));
    else
        SOL_TRY(table_cell(table, "%zu", r->n_counted));
    SOL_TRY(table_cell(table, "%.1f", (double)r->memory_engine / mib));
    size_t peak = r->memory_device_peak ? r->memory_device_peak : r->memory_peak;
    SOL_TRY(table_cell(table, "%.1f", (double)peak / mib));
    SOL_TRY(add_experts(table, &r->experts));
    SOL_TRY(add_energy(table, &r->energy));
    const struct rating *rating = bench_rating(report, r);
    return table_cell(table, "%s",
                      rating ? rating_name(rating, bench_rate(report->ceiling, r).value) : "-");
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
    SOL_TRY(table_create("test|>t/s|>+-%|>ns/token|>% limit|-by|>---sd %|>--GB/s|>--GFLOP/s|>-n|"
                         ">---own MiB|>-peak MiB|>--experts, load|>J/token|rating",
                         &table));
    enum sol_status status = fill_main(report, table);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    return status;
}

/* What passes between two tokens of a sequence. */
static enum sol_status write_steps(const struct bench_report *report, enum table_format format,
                                   FILE *to)
{
    static const double parts[] = {0.5, 0.9, 0.99, 1};
    struct table *table;
    bool any = false;
    SOL_TRY(table_create("test|>steps|>median ms|>p90|>p99|>max", &table));
    for (size_t i = 0; i < report->n_results; i++) {
        const struct bench_result *r = &report->results[i];
        char name[80];
        if (r->n_steps == 0) continue;
        any = true;
        table_cell(table, "%s", bench_test_name(&r->test, name));
        table_cell(table, "%zu", r->n_steps);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            table_cell(table, "%.4g", 1e-6 * bench_step_ns(r, parts[p]));
    }
    if (any) {
        fputc('\n', to);
        table_print(table, format, to);
    }
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status add_kernel(struct table *table, const struct bench_report *report,
                                  const char *test, const struct bench_kernel *k)
{
    SOL_TRY(table_cell(table, "%s", test));
    SOL_TRY(table_cell(table, "%s", k->op->name));
    SOL_TRY(table_cell(table, "%s", k->variant));
    SOL_TRY(table_cell(table, "%s", op_numerics_name(k->numerics)));
    SOL_TRY(table_cell(table, "%.3g", k->calls));
    if (k->seconds <= 0) {
        for (int i = 0; i < 5; i++) SOL_TRY(table_cell(table, "-"));
        return SOL_OK;
    }
    SOL_TRY(table_cell(table, "%.1f", 1e6 * k->seconds));
    SOL_TRY(table_cell(table, "%.1f", 100 * k->share));
    SOL_TRY(table_cell(table, "%.2f", 1e-9 * k->cost.bytes / k->seconds));
    SOL_TRY(table_cell(table, "%.2f", 1e-9 * k->cost.flops / k->seconds));
    return add_percent(table, 1e-7 * bench_kernel_limit_ns(report->ceiling, k) / k->seconds);
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
    SOL_TRY(table_create(
        "test|op|=variant|--numerics|>-calls|>us/step|>% time|>-GB/s|>-GFLOP/s|>% limit", &table));
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

static void write_device(const struct bench_report *report, FILE *to)
{
    const struct gpu *gpu = report->params->engine.chooser.device.gpu;
    fputs(bench_device(report), to);
    if (!gpu) {
        int threads = report->n_results ? report->results[0].threads : 0;
        fprintf(to, ", %d thread%s", threads, threads == 1 ? "" : "s");
        return;
    }
    const struct gpu_info *info = gpu_info(gpu);
    fprintf(to, " (GPU %d), %d SMs, %.1f GiB, CUDA %d.%d", info->ordinal, info->sm_count,
            (double)info->memory_bytes / (1 << 30), info->driver_version / 1000,
            info->driver_version % 1000 / 10);
}

/* `end` closes each line: Markdown needs two blanks for a line break. */
static void write_heading(const struct bench_report *report, const char *end, FILE *to)
{
    const struct model *m = report->model;
    enum dtype kv = report->params->engine.kv_dtype;
    fprintf(to, "sol %s, %s: %.1f MiB of weights, %.4g million parameters%s\n", report->version,
            m->name, (double)m->weight_bytes / mib, 1e-6 * (double)m->parameters, end);
    write_device(report, to);
    fprintf(to, ", cache in %s; model opened in %.3g s", dtype_info(kv)->name, report->load_s);
    if (report->upload_s > 0) fprintf(to, ", copied to the GPU in %.3g s", report->upload_s);
    fprintf(to, "%s\n", end);
    write_limits(report->ceiling, to);
    fprintf(to, "%s\n\n", end);
}

static void write_notes(const struct bench_report *report, FILE *to)
{
    bool few = false, disturbed = false, experts = false;
    for (size_t i = 0; i < report->n_results; i++) {
        few = few || bench_too_few(&report->results[i]);
        disturbed = disturbed || bench_disturbed(&report->results[i]);
        experts = experts || report->results[i].experts.count > 0;
    }
    bool cached = report->ceiling->cache.best > 0;
    fprintf(to,
            "\nt/s: median of the repetitions, +-%%: half of its 95 %% interval; limit: by the "
            "bytes at the %s rate or by the arithmetic of the numerics that ran, whichever takes "
            "longer; own: memory beyond the model\n",
            cached ? "cache's" : "memory's");
    if (experts)
        fputs(
            "experts: touched per layer and step, and the busiest one's rows over an even share\n",
            to);
    if (report->n_results && report->results[0].event_ns > 0)
        fprintf(to,
                "kernels: by events around each, less %.3g us that these add; in a test they run "
                "as one graph and overlap\n",
                1e-3 * report->results[0].event_ns);
    if (few) fprintf(to, "* fewer than %d repetitions\n", BENCH_REPETITIONS);
    if (disturbed) fputs("! disturbed: the remarks say by what\n", to);
    for (size_t i = 0; i < report->n_results; i++) {
        const struct bench_result *r = &report->results[i];
        char name[80], held[160];
        if (!r->memory_device_peak || isnan(r->reading.sm_mhz)) continue;
        gpu_throttle_text(r->reading.throttle, held);
        fprintf(to, "%s: SMs at %.0f MHz, %.0f degrees C, %.0f W%s%s\n",
                bench_test_name(&r->test, name), r->reading.sm_mhz, r->reading.temperature_c,
                r->reading.watts, *held ? "; held back by " : "", held);
    }
}

/* Remarks about one test. What is said of several is printed once, with their names. */
static enum sol_status add_remarks(const struct bench_result *r, struct notes *notes)
{
    char name[80], noise[160], half[24], text[120], about[300];
    bench_test_name(&r->test, name);
    if (*bench_noise(r, noise)) {
        snprintf(about, sizeof about, "%s: %s", name, noise);
        SOL_TRY(notes_add(notes, about, "noisy"));
    }
    if (r->precision > 0 && r->speed.half > r->precision) {
        snprintf(text, sizeof text, "not within %.2g %%: %s", 100 * r->precision,
                 r->stopped == STOP_NOISE  ? "the noise is steady; more would not help"
                 : r->stopped == STOP_TIME ? "the time for a test is over: --max-time"
                 : r->stopped == STOP_MOST ? "no more repetitions are made than these"
                                           : stop_reason_name(r->stopped));
        snprintf(about, sizeof about, "%s: +-%s %% after %zu", name,
                 figure_percent_text(r->speed.half, half), r->n_counted);
        SOL_TRY(notes_add(notes, about, text));
    }
    if (!r->settled) SOL_TRY(notes_add(notes, name, "the warm-up did not settle within 1 %"));
    if (!bench_outliers(r) && !bench_repeated(r)) return SOL_OK;
    snprintf(about, sizeof about, "%s: %zu, %zu", name, bench_outliers(r), bench_repeated(r));
    return notes_add(notes, about, "outliers, and disturbed from outside; all are counted");
}

/* Why repetitions ended where the wanted precision was not reached, and what else a reader must
 * know before using a figure. */
static enum sol_status write_verdicts(const struct bench_report *report, FILE *to)
{
    struct notes notes = {.items = NULL};
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < report->n_results && status == SOL_OK; i++) {
        const struct bench_result *r = &report->results[i];
        char name[80];
        if (bench_invalid(report, r))
            fprintf(to, "INVALID %s: %s\n", bench_test_name(&r->test, name),
                    bench_invalid(report, r));
        status = add_remarks(r, &notes);
    }
    notes_print(&notes, "", to);
    notes_free(&notes);
    return status;
}

static enum sol_status write_text(const struct bench_report *report, enum table_format format,
                                  FILE *to)
{
    write_heading(report, format == TABLE_MARKDOWN ? "  " : "", to);
    SOL_TRY(write_main(report, format, to));
    SOL_TRY(write_steps(report, format, to));
    if (report->params->ops) {
        fputc('\n', to);
        SOL_TRY(write_kernels(report, format, to));
    }
    write_notes(report, to);
    SOL_TRY(write_verdicts(report, to));
    if (report->run) fprintf(to, "run %s\n", report->run);
    return SOL_OK;
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
        status = report->params->ops ? write_kernels(report, TABLE_CSV, to)
                                     : bench_write_csv(report, to);
        break;
    case BENCH_JSON:
        status = bench_write_json(report, false, to);
        break;
    case BENCH_JSONL:
        status = bench_write_json(report, true, to);
        break;
    case BENCH_SQL:
        status = bench_write_sql(report, to);
        break;
    }
    if (status == SOL_OK && (fflush(to) != 0 || ferror(to)))
        status = status_set(SOL_E_IO, "cannot write the results: %s", strerror(errno));
    return status;
}
