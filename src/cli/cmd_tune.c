/* sol tune: which variant, and which of its choices, is fastest here for each problem of a model;
 * the record is what plans look into from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "check/tune.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/tune_report.h"
#include "model/upload.h"
#include "ops/tuning_file.h"

struct tune_options {
    struct engine_options engine;
    struct int_list rows, sequences, depths;
    double budget;
    bool dry_run, json, clear, again, quiet, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(
        INT_LIST, 0, "rows", "LIST",
        "tokens in a step (default 1,2,4,8,16,32,48,64,128,512,2048): up to 128 of as many "
        "sequences, beyond a prompt",
        offsetof(struct tune_options, rows), 1, 65536),
    OPTION_ENTRY(INT_LIST, 0, "sequences", "LIST",
                 "steps of so many sequences, a token each: 256,512 for a server that is full",
                 offsetof(struct tune_options, sequences), 1, 65536),
    OPTION_ENTRY(INT_LIST, 'd', "depth", "LIST",
                 "tokens in the context before, for attention (default 512,4096)",
                 offsetof(struct tune_options, depths), 0, 1 << 24),
    TUNE_OPTIONS(struct tune_options),
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
        "finished, and what the record has is not timed again unless --again is given. sol train\n"
        "tune adds what training does to the same record. Exit status 7 when results of a kernel "
        "are far from the usual one's: it is not\n"
        "used, and sol verify says more.",
    .examples = examples,
    .options = options,
};

struct tune_command {
    struct tune_options options;
    struct tune_params params;
    struct model *model, *uploaded;
    struct tuning found; /* what is known of before, and more */
    struct tune_report report;
    struct tune_show show;
};

/* ---- command ---- */

/* Those that the model's context has room for. */
static void take_rows(struct tune_command *c)
{
    static const int64_t usual[] = {1, 2, 4, 8, 16, 32, 48, 64, 128, 512, 2048};
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
    c->params.again = o->again;
    c->show.model = c->model->name;
    return tune_show_end(&c->show, &c->found,
                         tune_run(c->model, &c->params, &c->found, &c->report));
}

static enum sol_status clear(struct tune_command *c)
{
    const struct tuning none = {0};
    SOL_TRY(tuning_save(c->show.path, &c->show.key, &none));
    if (!c->options.json)
        printf("nothing is recorded of %s any more\n", c->show.key.device);
    else
        return json_print(
            json_pack("{s:s, s:s}", "cleared", c->show.key.device, "record", c->show.path));
    return SOL_OK;
}

static enum sol_status tune(struct tune_command *c)
{
    struct engine_params *p = &c->params.engine;
    SOL_TRY(engine_options_params(&c->options.engine, p));
    if (p->chooser.reference)
        return status_set(SOL_E_ARGUMENT, "--reference leaves nothing to choose from");
    if (p->threads) p->chooser.device.workers = p->threads;
    c->show.report = &c->report;
    c->show.dry_run = c->options.dry_run;
    c->show.json = c->options.json;
    SOL_TRY(tune_show_begin(&c->show, &p->chooser.device, &c->found));
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
    tuning_clear(&c.found);
    model_upload_destroy(c.uploaded, c.options.engine.gpu);
    model_close(c.model);
    engine_options_close(&c.options.engine);
    return cli_fail(status);
}

const struct command cmd_tune = {&spec, run, false};
