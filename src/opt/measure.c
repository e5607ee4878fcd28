/* sol opt benchmark, profile and compare. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/table.h"
#include "compare/live.h"
#include "compare/metrics.h"
#include "compare/report.h"
#include "compare/store.h"
#include "opt/opt.h"
#include "store/environment.h"
#include "store/store_json.h"

enum { FIGURES_MAX = 64 };

struct reading {
    char name[120]; /* as a metric is written: "test:tg64" */
    const char *unit;
    bool rate;
    double value;
};
struct readings {
    struct reading items[FIGURES_MAX];
    size_t count;
};

/* ---- stored runs ---- */

static enum sol_status begin_run(const struct opt *o, const char *kind, const char *folder,
                                 const char *side, char id[STORE_ID_SIZE])
{
    char *environment, *payload, hash[STORE_HASH_SIZE], label[64];
    char command[64];
    bool bench = strcmp(kind, "bench") == 0;
    snprintf(label, sizeof label, "opt%lld-%s", (long long)o->it.number, bench ? side : kind);
    snprintf(command, sizeof command, "[\"opt\", \"%s\"]", bench ? "benchmark" : kind);
    SOL_TRY(store_json_text(environment_json(folder, NULL), &environment));
    enum sol_status status = store_environment_add(o->store, environment, hash);
    json_t *json = json_loads(environment, 0, NULL);
    free(environment);
    if (status == SOL_OK)
        status = store_json_text(json_pack("{s:s, s:s, s:I}", "iteration", o->it.id, "side", side,
                                           "number", (json_int_t)o->it.number),
                                 &payload);
    if (status == SOL_OK) {
        const char *cpu = json_string_value(json_object_get(json, "cpu"));
        status = store_run_begin(o->store,
                                 &(struct store_run){.kind = kind,
                                                     .label = label,
                                                     .argv_json = command,
                                                     .cwd = folder,
                                                     .environment = hash,
                                                     .device = cpu,
                                                     .payload_json = payload},
                                 id);
        free(payload);
    }
    json_decref(json);
    return status;
}

static enum sol_status store_record(const struct opt *o, const char *id, const struct record *r)
{
    struct store_sample *samples = calloc(r->n_samples + 1, sizeof *samples);
    if (!samples) return status_set(SOL_E_MEMORY, "no memory for the samples");
    for (size_t i = 0; i < r->n_samples; i++) {
        samples[i].value = r->samples[i].value;
        samples[i].process = r->samples[i].start;
    }
    struct store_metric metric = {.name = r->name,
                                  .unit = "ns/token",
                                  .better = STORE_LOWER,
                                  .samples = samples,
                                  .n_samples = r->n_samples};
    enum sol_status status =
        store_run_add(o->store, id, &(struct store_batch){.metrics = &metric, .n_metrics = 1});
    free(samples);
    return status;
}

static enum sol_status store_output(const struct opt *o, const char *id,
                                    const struct metric_run *run, const struct readings *figures)
{
    for (size_t i = 0; i < run->records.count; i++)
        SOL_TRY(store_record(o, id, &run->records.items[i]));
    for (size_t i = 0; i < figures->count; i++) {
        const struct reading *f = &figures->items[i];
        if (strncmp(f->name, "test:", 5) == 0) continue;
        struct store_sample sample = {.value = f->value};
        struct store_metric metric = {.name = f->name,
                                      .unit = *f->unit ? f->unit : "1",
                                      .better = f->rate ? STORE_HIGHER : STORE_LOWER,
                                      .samples = &sample,
                                      .n_samples = 1};
        SOL_TRY(
            store_run_add(o->store, id, &(struct store_batch){.metrics = &metric, .n_metrics = 1}));
    }
    return store_artifact_write(o->store, id, "output", "output.txt", run->process.output,
                                run->process.output_size);
}

/* ---- benchmark ---- */

static enum sol_status add_figure(struct readings *to, const char *name,
                                  const struct metric_run *run, const char *whose)
{
    struct metric_spec spec;
    if (to->count == FIGURES_MAX) return SOL_OK;
    SOL_TRY(metric_spec_parse(name, true, &spec));
    struct reading *f = &to->items[to->count];
    f->unit = metric_unit(&spec);
    f->rate = spec.rate;
    snprintf(f->name, sizeof f->name, "%s", spec.name);
    enum sol_status status = metric_value(&spec, run, whose, &f->value);
    metric_spec_free(&spec);
    if (status == SOL_OK) to->count++;
    return status;
}

/* What is configured, else every test, else wall time. */
static enum sol_status read_figures(const struct opt *o, const struct metric_run *run,
                                    const char *whose, struct readings *out)
{
    const struct string_list *named = &o->config.metrics;
    char name[120];
    *out = (struct readings){.count = 0};
    for (size_t i = 0; i < named->count; i++)
        SOL_TRY(add_figure(out, named->values[i], run, whose));
    for (size_t i = 0; i < run->records.count && named->count == 0; i++) {
        snprintf(name, sizeof name, "test:%s", run->records.items[i].name);
        SOL_TRY(add_figure(out, name, run, whose));
    }
    return out->count ? SOL_OK : add_figure(out, "wall", run, whose);
}

/* One run of the benchmark, kept in the store. */
static enum sol_status measure(struct opt *o, const char *folder, const char *side,
                               struct readings *figures, const char **run_id)
{
    struct process_result process;
    struct metric_run run = {.json = NULL};
    char id[STORE_ID_SIZE], what[64];
    snprintf(what, sizeof what, "the benchmark of the %s", side);
    enum sol_status status =
        opt_tree_must(folder, what, o->config.benchmark, o->config.timeout_s, &process);
    if (status != SOL_OK)
        return folder == o->tree.path ? opt_gate_failed(o, "benchmark", status) : status;
    metric_run_read(&process, &run);
    status = read_figures(o, &run, what, figures);
    if (status == SOL_OK) status = begin_run(o, "bench", folder, side, id);
    if (status == SOL_OK) status = store_output(o, id, &run, figures);
    if (status == SOL_OK) status = store_run_finish(o->store, id, STORE_OK, NULL, NULL);
    metric_run_free(&run);
    if (status != SOL_OK) return status;
    *run_id = arena_strndup(o->arena, id, strlen(id));
    return *run_id ? SOL_OK : SOL_E_MEMORY;
}

static json_t *figures_json(const struct readings *f)
{
    json_t *json = json_object();
    for (size_t i = 0; i < f->count; i++)
        json_object_set_new(json, f->items[i].name, json_real(f->items[i].value));
    return json;
}

/* The baseline is measured once; what decides is the comparison in turn. */
static enum sol_status measure_baseline(struct opt *o, json_t **values)
{
    struct readings figures;
    *values = json_object_get(o->notes, "baseline");
    if (*values) return SOL_OK;
    SOL_TRY(opt_baseline(o));
    SOL_TRY(measure(o, o->tree.baseline, "baseline", &figures, &o->it.baseline_run));
    *values = figures_json(&figures);
    json_object_set_new(o->notes, "baseline", *values);
    return opt_save(o);
}

static enum sol_status print_figures(const struct opt *o, const json_t *old,
                                     const struct readings *figures)
{
    struct table *table;
    json_t *list = json_array();
    SOL_TRY(table_create("~metric|unit|>baseline|>now|>change", &table));
    for (size_t i = 0; i < figures->count; i++) {
        const struct reading *f = &figures->items[i];
        double before = json_number_value(json_object_get(old, f->name));
        double change = 100 * (f->value / before - 1);
        table_cell(table, "%s", f->name);
        table_cell(table, "%s", f->unit);
        table_number(table, before, 5);
        table_number(table, f->value, 5);
        table_cell(table, "%+.1f %%", change);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:f, s:f, s:o}", "metric", f->name, "unit", f->unit,
                            "better", f->rate ? "higher" : "lower", "baseline", before, "now",
                            f->value, "change_percent", opt_number(change)));
    }
    table_print(table, TABLE_TEXT, o->answer->text);
    table_destroy(table);
    json_object_set_new(o->answer->json, "figures", list);
    return SOL_OK;
}

static void note_build(struct opt *o, const char *hash)
{
    if (o->config.build) gates_note(o->gates, hash, "build", GATE_PASSED, o->config.build);
}

enum sol_status opt_benchmark(struct opt *o)
{
    struct readings figures;
    struct opt_snapshot now;
    json_t *old;
    SOL_TRY(opt_build(o));
    SOL_TRY(measure_baseline(o, &old));
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = measure(o, o->tree.path, "candidate", &figures, &o->it.bench_run);
    if (status == SOL_OK) status = print_figures(o, old, &figures);
    if (status == SOL_OK) {
        json_object_set_new(
            o->notes, "benchmarked",
            json_pack("{s:s, s:o}", "tree", now.hash, "figures", figures_json(&figures)));
        note_build(o, now.hash);
        gates_note(o->gates, now.hash, "benchmark", GATE_PASSED, o->config.benchmark);
        status = opt_save(o);
    }
    if (status == SOL_OK) opt_choose_next(o, &now);
    opt_snapshot_free(&now);
    fprintf(o->answer->text, "\none look at each, at different times: this decides nothing\n");
    return status;
}

/* ---- profile ---- */

enum sol_status opt_profile(struct opt *o)
{
    struct process_result p;
    struct opt_snapshot now;
    char id[STORE_ID_SIZE];
    if (!o->config.profile)
        return status_set(SOL_E_ARGUMENT,
                          "there is nothing to profile with: set \"profile\" in %s to a command",
                          OPT_CONFIG_FILE);
    SOL_TRY(opt_build(o));
    SOL_TRY(opt_snapshot(o, &now));
    SOL_TRY(opt_tree_must(o->tree.path, "profiling", o->config.profile, o->config.timeout_s, &p));
    fwrite(p.output, 1, p.output_size, o->answer->text);
    json_t *output = json_loadb(p.output, p.output_size, 0, NULL);
    json_object_set_new(o->answer->json, "profile", output ? output : opt_text(p.output));
    enum sol_status status = begin_run(o, "profile", o->tree.path, "candidate", id);
    if (status == SOL_OK)
        status =
            store_artifact_write(o->store, id, "output", "output.txt", p.output, p.output_size);
    if (status == SOL_OK) status = store_run_finish(o->store, id, STORE_OK, NULL, NULL);
    process_result_free(&p);
    if (status == SOL_OK) {
        o->it.profile_run = arena_strndup(o->arena, id, strlen(id));
        json_object_set_new(o->notes, "profiled", json_pack("{s:s}", "tree", now.hash));
        status = o->it.profile_run ? opt_save(o) : SOL_E_MEMORY;
    }
    if (status == SOL_OK) opt_choose_next(o, &now);
    opt_snapshot_free(&now);
    return status;
}

/* ---- compare ---- */

/* Exploratory tests that became slower: a gain elsewhere does not make that good unseen. */
static json_t *slower_tests(const struct compare_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        if (!m->deciding && m->rate && m->verdict == VERDICT_SLOWER)
            json_array_append_new(list, json_string(m->name));
    }
    return list;
}

static void note_gain(struct opt *o, const struct compare_result *r)
{
    const struct compare_metric *first = NULL;
    for (size_t i = 0; i < r->n_metrics && !first; i++)
        if (r->metrics[i].deciding && r->metrics[i].count[0]) first = &r->metrics[i];
    o->it.verdict = verdict_name(r->verdict);
    o->it.realised = first ? -expm1(first->shift.estimate) : NAN;
    bool known = first && first->shift.has_interval;
    o->it.realised_low = known ? -expm1(first->shift.high) : NAN;
    o->it.realised_high = known ? -expm1(first->shift.low) : NAN;
    if (first) {
        o->it.metric = arena_strndup(o->arena, first->name, strlen(first->name));
        json_object_set_new(o->notes, "figures",
                            json_pack("{s:s, s:s, s:f, s:f, s:I}", "metric", first->name, "unit",
                                      first->unit, "old", first->figure[0].value, "new",
                                      first->figure[1].value, "pairs", (json_int_t)r->pairs));
    }
}

static enum sol_status store_comparison(struct opt *o, const struct compare_result *r)
{
    char id[STORE_ID_SIZE], *payload;
    json_t *report = compare_report_json(r);
    json_object_set(o->answer->json, "comparison", report);
    SOL_TRY(store_json_text(report, &payload));
    enum sol_status status = begin_run(o, "compare", o->tree.path, "both", id);
    if (status == SOL_OK)
        status =
            store_run_finish(o->store, id, r->verdict == VERDICT_INVALID ? STORE_INVALID : STORE_OK,
                             r->verdict == VERDICT_INVALID ? r->reason : NULL, payload);
    free(payload);
    if (status != SOL_OK) return status;
    o->it.compare_run = arena_strndup(o->arena, id, strlen(id));
    return o->it.compare_run ? SOL_OK : SOL_E_MEMORY;
}

/* As many pairs as would decide, a little more; 0 where that is not known or too many. */
static json_int_t pairs_needed(const struct compare_result *r)
{
    size_t needed = 0;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding && r->metrics[i].needed > needed) needed = r->metrics[i].needed;
    needed += needed / 10 + 2;
    return needed > 2 && needed <= COMPARE_PAIRS_MAX ? (json_int_t)needed : 0;
}

static void note_comparison_gates(struct opt *o, const struct compare_result *r, const char *hash,
                                  const json_t *slower)
{
    char text[400];
    bool faster = r->verdict == VERDICT_FASTER;
    bool open = r->verdict == VERDICT_INCONCLUSIVE || r->verdict == VERDICT_INVALID;
    note_build(o, hash);
    opt_comparison_text(o, text, sizeof text);
    gates_note(o->gates, hash, "comparison",
               faster ? GATE_PASSED
               : open ? GATE_MISSING
                      : GATE_FAILED,
               r->reason && !faster ? r->reason : text);
    if (r->verdict == VERDICT_INVALID && strstr(r->reason, "expected kernel"))
        gates_note(o->gates, hash, "manifest", GATE_FAILED, r->reason);
    if (json_array_size(slower))
        gates_note(o->gates, hash, "other tests", GATE_FAILED,
                   json_string_value(json_array_get(slower, 0)));
}

/* As sol compare does: at least 1 %, and what calibration found for what may decide. */
static enum sol_status choose_delta(const struct opt *o, struct compare_params *common)
{
    static const char *const kinds[] = {"wall", "user", "cpu", "test", "other"};
    const struct opt_config *c = &o->config;
    common->delta = c->delta_percent > 0 ? c->delta_percent / 100 : COMPARE_DELTA_PPM * 1e-6;
    common->delta_source = c->delta_percent > 0 ? OPT_CONFIG_FILE : "the least on any machine";
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !(c->delta_percent > 0); k++) {
        bool decides = c->metrics.count == 0 && (k == 0 || k == 3);
        for (size_t i = 0; i < c->metrics.count; i++) {
            const char *m = c->metrics.values[i];
            bool test = strncmp(m, "test:", 5) == 0;
            decides = decides || strcmp(m, kinds[k]) == 0 || (k == 3 && test) ||
                      (k == 4 && !test && strchr(m, ':'));
        }
        double found = 0;
        if (decides) SOL_TRY(compare_store_delta(o->store, kinds[k], &found));
        if (found <= common->delta) continue;
        common->delta = found;
        common->delta_source = "this machine's calibration";
    }
    return SOL_OK;
}

static enum sol_status run_live(const struct opt *o, struct compare_result *out)
{
    const struct opt_config *c = &o->config;
    struct compare_params common = {.seed = 1};
    struct compare_live_params p;
    SOL_TRY(choose_delta(o, &common));
    compare_live_params_init(&p);
    p.common = &common;
    p.metrics = &c->metrics;
    p.expect = &c->expect;
    p.min_pairs = (size_t)c->min_pairs;
    p.max_pairs = (size_t)(o->options->pairs ? o->options->pairs : c->max_pairs);
    if (p.max_pairs < p.min_pairs) p.max_pairs = p.min_pairs;
    p.max_seconds = o->options->max_seconds > 0 ? o->options->max_seconds : c->max_seconds;
    p.timeout_s = c->timeout_s;
    p.warmup = (size_t)c->warmup;
    p.same_output = c->same_output && !c->correctness;
    p.ignore_lines = c->ignore_lines;
    char *old = opt_tree_command(o->tree.baseline, c->benchmark);
    char *new = opt_tree_command(o->tree.path, c->benchmark);
    p.commands[0] = old;
    p.commands[1] = new;
    enum sol_status status =
        old && new ? compare_live(&p, out) : status_set(SOL_E_MEMORY, "no memory for a command");
    free(old);
    free(new);
    return status;
}

static enum sol_status check_unchanged(const struct opt *o, const struct opt_snapshot *before,
                                       struct compare_result *r)
{
    struct opt_snapshot after;
    SOL_TRY(opt_snapshot(o, &after));
    bool same = strcmp(before->hash, after.hash) == 0;
    opt_snapshot_free(&after);
    if (same) return SOL_OK;
    SOL_TRY(compare_spoil(r, VERDICT_INVALID, "files were edited while they were measured"));
    r->verdict = VERDICT_INVALID;
    return SOL_OK;
}

static enum sol_status compare_content(struct opt *o, const struct opt_snapshot *now)
{
    struct compare_result r = {.live = true};
    SOL_TRY(run_live(o, &r));
    enum sol_status status = check_unchanged(o, now, &r);
    if (status == SOL_OK) status = compare_report_write(&r, TABLE_TEXT, o->answer->text);
    if (status == SOL_OK) status = store_comparison(o, &r);
    if (status == SOL_OK) {
        json_t *slower = slower_tests(&r);
        note_gain(o, &r);
        note_comparison_gates(o, &r, now->hash, slower);
        /* Comparing the same files again and again until one is lucky should be seen. */
        json_int_t times =
            json_integer_value(json_object_get(opt_note_of(o, "compared", now->hash), "times"));
        json_object_set_new(o->notes, "compared",
                            json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:f, s:s}", "tree", now->hash,
                                      "verdict", verdict_name(r.verdict), "run", o->it.compare_run,
                                      "slower", slower, "times", times + 1, "needed",
                                      pairs_needed(&r), "pair_seconds",
                                      r.pairs ? r.seconds / (double)r.pairs : 0.0, "reason",
                                      r.reason ? r.reason : ""));
        status = opt_save(o);
        opt_choose_next(o, now);
        o->answer->exit_status = verdict_exit_status(r.verdict);
    }
    compare_result_free(&r);
    return status;
}

enum sol_status opt_compare(struct opt *o)
{
    struct opt_snapshot now;
    SOL_TRY(opt_build(o));
    SOL_TRY(opt_baseline(o));
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = SOL_OK;
    if (json_array_size(now.files) == 0)
        status = status_set(SOL_E_ARGUMENT,
                            "nothing differs from the base commit %.12s; edit the files first",
                            o->it.base_commit);
    if (status == SOL_OK) status = compare_content(o, &now);
    opt_snapshot_free(&now);
    return status;
}
