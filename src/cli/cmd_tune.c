/* sol tune: which variant, and which of its choices, is fastest here for each problem of a model;
 * the record is what plans look into from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/table.h"
#include "check/tune.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "model/upload.h"
#include "ops/problem.h"
#include "ops/tuning_file.h"

struct tune_options {
    struct engine_options engine;
    struct int_list rows, sequences, depths;
    double budget;
    bool dry_run, json, clear, quiet, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(INT_LIST, 0, "rows", "LIST",
                 "tokens in a step (default 1,2,4,8,16,32,64,128,512,2048): up to 128 of as many "
                 "sequences, beyond a prompt",
                 offsetof(struct tune_options, rows), 1, 65536),
    OPTION_ENTRY(INT_LIST, 0, "sequences", "LIST",
                 "steps of so many sequences, a token each: 256,512 for a server that is full",
                 offsetof(struct tune_options, sequences), 1, 65536),
    OPTION_ENTRY(INT_LIST, 'd', "depth", "LIST",
                 "tokens in the context before, for attention (default 512,4096)",
                 offsetof(struct tune_options, depths), 0, 1 << 24),
    OPTION_ENTRY(FLOAT, 0, "budget", "SECONDS",
                 "stop measuring then; what is not reached stays as it was (default 120)",
                 offsetof(struct tune_options, budget), 0.001, 1e6),
    OPTION_ENTRY(FLAG, 0, "dry-run", NULL, "list what would be timed, and time nothing",
                 offsetof(struct tune_options, dry_run), 0, 0),
    OPTION_ENTRY(FLAG, 0, "clear", NULL, "forget what is recorded of this device, and end",
                 offsetof(struct tune_options, clear), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "print one JSON object",
                 offsetof(struct tune_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct tune_options, quiet), 0, 0),
    ENGINE_OPTIONS(struct tune_options, engine),
    ENGINE_LOAD_OPTION(struct tune_options, engine),
    ENGINE_BACKEND_OPTION(struct tune_options, engine),
    WIDE_OPTION(struct tune_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol tune -m synth:tiny --rows 1,8 --budget 10 --dry-run",
     "what would be tried, and found within 10 seconds", NULL},
    {"sol tune -m gpt-oss-20b.gguf --rows 1,512 --budget 20",
     "the fastest kernels for this model here, kept", NULL},
    {"sol tune -m gpt-oss-20b.gguf --backend cuda", "on a GPU", "a GPU"},
    {"sol tune -m gpt-oss-20b.gguf --backend cuda --sequences 256,512 -d 1536",
     "what sol serve does when it is full", "a GPU"},
    {0},
};

static const struct command_spec spec = {
    .name = "tune",
    .summary = "find the fastest kernels and tiles for this device and keep them",
    .arguments = "",
    .notes =
        "Every problem of the model's steps is timed with every kernel that can run, and each of "
        "its\n"
        "tiles or splits, on the model's own weights. One replaces the usual choice when it is\n"
        "more than 1 % faster beyond the noise; what rounds activations more than the usual one\n"
        "is marked, and --exact leaves it out. The record lies in $XDG_CACHE_HOME/sol (default\n"
        "~/.cache/sol) and counts for this device, driver and build; commands that run a model "
        "follow\n"
        "it unless --no-tuning is given, and sol kernels --explain says where. Ctrl-C keeps what "
        "is\n"
        "finished. Exit status 7 when results of a kernel are far from the usual one's: it is not\n"
        "used, and sol verify says more.",
    .examples = examples,
    .options = options,
};

struct tune_command {
    struct tune_options options;
    struct tune_params params;
    struct model *model, *uploaded;
    struct tune_report report;
    struct device_key key;
    char path[4200];
    bool written;
};

/* ---- text ---- */

enum { TEXT_MAX = 160 };

static void describe_kernel(const char *variant, const char *choice, char text[TEXT_MAX])
{
    snprintf(text, TEXT_MAX, "%s%s%s", variant, *choice ? ":" : "", choice);
}

/* NULL for `composed`, whose numerics are those of what it calls. */
static const char *numerics_of(const struct op *op, const char *variant)
{
    for (int v = 0; v < op->n_variants; v++)
        if (strcmp(op->variants[v]->name, variant) == 0)
            return op_numerics_name(op->variants[v]->numerics);
    return NULL;
}

/* What the fastest kernel does to activations where the usual one does something else. */
static const char *changed_numerics(const struct tuning_entry *e)
{
    const char *usual = numerics_of(e->op, e->usual), *now = numerics_of(e->op, e->variant);
    return now && (!usual || strcmp(usual, now) != 0) ? now : NULL;
}

static void describe_state(const struct tune_result *r, char text[TEXT_MAX])
{
    static const char *const texts[] = {"", "usual", "faster", "not reached"};
    const char *numerics = changed_numerics(&r->entry);
    snprintf(text, TEXT_MAX, "%s%s%s", r->wrong ? "WRONG" : texts[r->state], numerics ? ", " : "",
             numerics ? numerics : "");
}

/* Microseconds; nothing where there is no time. */
static void time_cell(double ns, struct table *table)
{
    char text[32] = "";
    if (ns > 0) snprintf(text, sizeof text, "%.1f", ns / 1e3);
    table_cell(table, "%s", text);
}

static void print_line(const struct tune_result *r, struct table *table)
{
    const struct tuning_entry *e = &r->entry;
    bool faster = r->state == TUNE_FASTER;
    char text[TEXT_MAX];
    table_cell(table, "%lld", (long long)r->step_rows);
    table_cell(table, "%s", e->op->name);
    op_problem_describe(&e->problem, text, sizeof text);
    table_cell(table, "%s", text);
    table_cell(table, "%d", r->calls);
    table_cell(table, "%d", r->candidates);
    describe_kernel(e->usual, e->usual_choice, text);
    table_cell(table, "%s", text);
    time_cell(e->usual_ns, table);
    describe_kernel(e->variant, e->choice, text);
    table_cell(table, "%s", faster ? text : "");
    time_cell(faster ? e->ns : 0, table);
    if (faster)
        snprintf(text, sizeof text, "%.1f (%.1f to %.1f)", 100 * r->gain, 100 * r->low,
                 100 * r->high);
    table_cell(table, "%s", faster ? text : "");
    describe_state(r, text);
    table_cell(table, "%s", text);
}

static void print_step(const struct tune_step *s)
{
    if (s->expected_ns <= 0) return;
    printf("a step of %lld rows: %.1f us less expected", (long long)s->rows, s->expected_ns / 1e3);
    if (s->usual_ns > 0 && s->ns < s->usual_ns)
        printf("; measured %.1f instead of %.1f us, %.1f %% faster (%.1f to %.1f)", s->ns / 1e3,
               s->usual_ns / 1e3, 100 * (s->usual_ns / s->ns - 1), 100 * s->low, 100 * s->high);
    else if (s->usual_ns > 0)
        printf("; measured: no difference beyond the noise, %.1f us", s->usual_ns / 1e3);
    printf("\n");
}

static enum sol_status print_text(const struct tune_command *c)
{
    const struct tune_report *r = &c->report;
    struct table *table;
    size_t counts[4] = {0};
    SOL_TRY(table_create("rows|op|~problem|>-calls|>--tried|=usual|>us|=fastest|>us|>% faster|",
                         &table));
    for (size_t i = 0; i < r->count; i++) {
        counts[r->results[i].state]++;
        print_line(&r->results[i], table);
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    printf("\n");
    for (size_t i = 0; i < r->n_steps; i++) print_step(&r->steps[i]);
    if (c->options.dry_run) {
        printf("%zu problems would be timed\n", r->count);
        return SOL_OK;
    }
    printf("%zu problems timed in %.0f s: %zu served faster, %zu as usual",
           counts[TUNE_FASTER] + counts[TUNE_KEPT], r->seconds, counts[TUNE_FASTER],
           counts[TUNE_KEPT]);
    if (counts[TUNE_NOT_REACHED]) printf(", %zu not reached", counts[TUNE_NOT_REACHED]);
    printf("\n");
    if (c->written) printf("record: %s\n", c->path);
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *result_json(const struct tune_result *r)
{
    static const char *const states[] = {"listed", "usual", "faster", "not_reached"};
    const struct tuning_entry *e = &r->entry;
    char problem[TEXT_MAX];
    op_problem_describe(&e->problem, problem, sizeof problem);
    json_t *json = json_pack("{s:I, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s}", "step_rows",
                             (json_int_t)r->step_rows, "op", e->op->name, "problem", problem,
                             "calls", r->calls, "candidates", r->candidates, "wrong", r->wrong,
                             "state", states[r->state], "usual", e->usual, "usual_choice",
                             e->usual_choice, "fastest", e->variant, "choice", e->choice);
    if (r->state == TUNE_KEPT || r->state == TUNE_FASTER) {
        json_t *times = json_pack("{s:f, s:f, s:f, s:f, s:f}", "usual_ns", e->usual_ns, "ns", e->ns,
                                  "gain", r->gain, "gain_low", r->low, "gain_high", r->high);
        json_object_update(json, times);
        json_decref(times);
        const char *numerics = changed_numerics(e);
        json_object_set_new(json, "changed_numerics",
                            numerics ? json_string(numerics) : json_null());
    }
    return json;
}

static enum sol_status print_json(const struct tune_command *c)
{
    json_t *results = json_array(), *steps = json_array();
    for (size_t i = 0; i < c->report.count; i++)
        json_array_append_new(results, result_json(&c->report.results[i]));
    for (size_t i = 0; i < c->report.n_steps; i++) {
        const struct tune_step *s = &c->report.steps[i];
        json_array_append_new(steps, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "rows",
                                               (json_int_t)s->rows, "expected_ns", s->expected_ns,
                                               "usual_ns", s->usual_ns, "ns", s->ns, "gain_low",
                                               s->low, "gain_high", s->high));
    }
    return json_print(json_pack("{s:{s:s, s:s, s:s, s:s}, s:s, s:s, s:b, s:f, s:o, s:o}", "device",
                                "name", c->key.device, "capability", c->key.capability, "driver",
                                c->key.driver, "build", c->key.build, "model", c->model->name,
                                "record", c->path, "written", c->written, "seconds",
                                c->report.seconds, "steps", steps, "problems", results));
}

/* ---- command ---- */

/* Those that the model's context has room for. */
static void take_rows(struct tune_command *c)
{
    static const int64_t usual[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048};
    struct int_list *rows = &c->options.rows;
    bool chosen = rows->count > 0;
    if (!chosen && c->options.sequences.count) return;
    size_t kept = 0;
    if (!chosen) {
        rows->count = sizeof usual / sizeof *usual;
        memcpy(rows->values, usual, sizeof usual);
    }
    for (size_t i = 0; i < rows->count; i++) {
        int64_t n = rows->values[i];
        bool fits = n <= TUNE_SEQUENCES_MAX || n <= c->model->config.context;
        if (fits)
            rows->values[kept++] = n;
        else if (chosen)
            LOG_WARN("--rows %lld: the model's context has %lld positions", (long long)n,
                     (long long)c->model->config.context);
    }
    rows->count = kept;
}

static enum sol_status write_record(struct tune_command *c, const struct tuning *found)
{
    if (c->options.dry_run || c->report.count == 0 || found->count == 0) return SOL_OK;
    SOL_TRY(tuning_save(c->path, &c->key, found));
    c->written = true;
    return SOL_OK;
}

static enum sol_status search(struct tune_command *c)
{
    struct tune_options *o = &c->options;
    SOL_TRY(engine_options_open(&o->engine, &c->params.engine, &c->model));
    if (o->engine.gpu) SOL_TRY(model_upload(c->model, o->engine.gpu, &c->uploaded));
    take_rows(c);
    c->params.engine.uploaded = c->uploaded;
    c->params.rows = o->rows.values;
    c->params.n_rows = o->rows.count;
    c->params.sequences = o->sequences.values;
    c->params.n_sequences = o->sequences.count;
    c->params.depths = o->depths.values;
    c->params.n_depths = o->depths.count;
    c->params.seconds = o->budget;
    c->params.list_only = o->dry_run;
    /* Earlier findings stay where nothing new is found. */
    enum sol_status status = tune_run(c->model, &c->params, &o->engine.tuning, &c->report);
    enum sol_status written = write_record(c, &o->engine.tuning);
    if (status == SOL_OK) status = written;
    if (status != SOL_OK && !c->report.count) return status;
    enum sol_status printed = o->json ? print_json(c) : print_text(c);
    if (status == SOL_OK) status = printed;
    if (status == SOL_OK && c->report.wrong)
        return status_set(SOL_E_MISMATCH,
                          "%d candidates gave results far from the usual kernels'; they are not "
                          "used, and sol verify says more",
                          c->report.wrong);
    return status;
}

static enum sol_status clear(struct tune_command *c)
{
    const struct tuning none = {0};
    SOL_TRY(tuning_save(c->path, &c->key, &none));
    if (!c->options.json)
        printf("nothing is recorded of %s any more\n", c->key.device);
    else
        return json_print(json_pack("{s:s, s:s}", "cleared", c->key.device, "record", c->path));
    return SOL_OK;
}

static enum sol_status tune(struct tune_command *c)
{
    struct engine_params *p = &c->params.engine;
    SOL_TRY(tuning_path(c->path, sizeof c->path));
    SOL_TRY(engine_options_params(&c->options.engine, p));
    if (p->chooser.reference)
        return status_set(SOL_E_ARGUMENT, "--reference leaves nothing to choose from");
    if (p->threads) p->chooser.device.workers = p->threads;
    SOL_TRY(device_key_of(&p->chooser.device, &c->key));
    if (c->options.engine.tuning.shipped) { /* what is written was measured here */
        tuning_clear(&c->options.engine.tuning);
        p->chooser.tuning = NULL;
    }
    return c->options.clear ? clear(c) : search(c);
}

static int run(int argc, char **argv)
{
    struct tune_command c = {.options.budget = 120};
    int exit_status;
    engine_options_init(&c.options.engine);
    if (!parse_options_only(&spec, argc, argv, &c.options, &exit_status)) return exit_status;
    if (c.options.depths.count == 0) c.options.depths = (struct int_list){{512, 4096}, 2};
    progress_quiet(c.options.quiet);
    enum sol_status status = tune(&c);
    tune_report_free(&c.report);
    model_upload_destroy(c.uploaded, c.options.engine.gpu);
    model_close(c.model);
    engine_options_close(&c.options.engine);
    return cli_fail(status);
}

const struct command cmd_tune = {&spec, run, false};
