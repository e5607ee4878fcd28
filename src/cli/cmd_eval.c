/* sol eval: how good a model is: CORE, and bits per byte of a text. */
#include <math.h>
#include <stdio.h>

#include "base/json_value.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/input.h"
#include "infer/perplexity.h"
#include "train/core_eval.h"
#include "train/core_score.h"

struct eval_options {
    struct engine_options engine;
    struct input_options input;
    const char *core;
    int64_t max_per_task;
    bool json, quiet, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "What is measured", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "core", "FOLDER",
                 "CORE of the tasks in it: core.yaml, eval_meta_data.csv and eval_data, as "
                 "nanochat's eval_bundle has them",
                 offsetof(struct eval_options, core), 0, 0),
    OPTION_ENTRY(INT, 0, "max-per-task", "N",
                 "items of each task, drawn as nanochat draws them (default -1: all)",
                 offsetof(struct eval_options, max_per_task), -1, 1LL << 31),
    OPTION_ENTRY(STRING, 'f', "file", "FILE", "bits per byte of this text, - for standard input",
                 offsetof(struct eval_options, input.file), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Results", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "print one JSON object",
                 offsetof(struct eval_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct eval_options, quiet), 0, 0),
    WIDE_OPTION(struct eval_options, wide),
    ENGINE_SIZE_OPTIONS(struct eval_options, engine,
                        "tokens of a prompt and of the text's windows (default: the model's, up to "
                        "4096)"),
    ENGINE_OPTIONS(struct eval_options, engine),
    ENGINE_LOAD_OPTION(struct eval_options, engine),
    ENGINE_BACKEND_OPTION(struct eval_options, engine),
    ENGINE_GPUS_OPTION(struct eval_options, engine),
    {0},
};

static const struct command_example examples[] = {
    {"sol eval --core eval_bundle --max-per-task 12", "the built-in model on a few items of CORE",
     NULL},
    {"sol eval -m gpt-oss-20b.gguf --core eval_bundle --max-per-task 12 -f text.txt --json",
     "and bits per byte of a text, as JSON", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "eval",
    .summary = "score a model on CORE's tasks, and its bits per byte",
    .arguments = "",
    .notes =
        "CORE is the mean over its tasks of (accuracy - baseline) / (1 - baseline), where "
        "baseline\n"
        "is what guessing gets. Prompts, examples in them and their order are nanochat's; a "
        "prompt\n"
        "longer than the context keeps its end. Intervals are of 95 %, for the items that a task\n"
        "might have had. Bits per byte are those of sol perplexity with the same -c.",
    .examples = examples,
    .options = options,
};

struct eval_run {
    struct eval_options options;
    struct model *model;
    struct engine_params params;
    struct engine *engine;
    struct token_list ids;
    struct core_bundle *bundle;
    struct perplexity_params how;
    struct perplexity_result text;
    struct core_result core;
};

/* ---- measuring ---- */

/* One engine serves both; the text alone needs a smaller one. */
static enum sol_status make_engine(struct eval_run *run)
{
    perplexity_params_init(&run->how);
    if (run->options.core) {
        core_scorer_prepare(run->model, run->options.engine.context, &run->params);
        run->how.context = run->params.context;
        run->how.step = run->params.max_outputs;
    } else {
        run->how.context = core_scorer_context(run->model, run->options.engine.context);
        perplexity_prepare(run->model, &run->how, &run->params);
    }
    run->how.progress = true;
    SOL_TRY(engine_options_team(&run->options.engine, run->model, &run->params));
    return engine_create(run->model, &run->params, &run->engine);
}

static enum sol_status set_up(struct eval_run *run)
{
    struct eval_options *o = &run->options;
    if (!o->core && !o->input.file)
        return status_set(SOL_E_ARGUMENT,
                          "sol eval wants --core, a folder of tasks, or -f, a text (see sol eval "
                          "--help)");
    if (o->core) SOL_TRY(core_bundle_open(o->core, &run->bundle));
    SOL_TRY(engine_options_params(&o->engine, &run->params));
    SOL_TRY(engine_options_open(&o->engine, &run->params, &run->model));
    if (o->input.file) SOL_TRY(input_tokens(&o->input, "-f", run->model, &run->ids));
    return make_engine(run);
}

static enum sol_status measure(struct eval_run *run)
{
    const struct core_eval_params params = {
        .bundle = run->bundle,
        .max_per_task = run->options.max_per_task > 0 ? (size_t)run->options.max_per_task : 0,
        .progress = true};
    if (run->options.input.file)
        SOL_TRY(perplexity_measure(run->engine, NULL, run->ids.ids, (int64_t)run->ids.count,
                                   &run->how, &run->text));
    if (!run->bundle) return SOL_OK;
    return core_eval(run->engine, &run->params, &params, &run->core);
}

static void tear_down(struct eval_run *run)
{
    core_result_free(&run->core);
    engine_destroy(run->engine);
    engine_options_close(&run->options.engine);
    token_list_free(&run->ids);
    core_bundle_close(run->bundle);
    model_close(run->model);
}

/* ---- showing ---- */

static enum sol_status print_tasks(const struct core_result *r)
{
    struct table *table;
    SOL_TRY(table_create("task|---kind|->shots|>items|-->right|>accuracy|>95 %|->baseline|>centred",
                         &table));
    for (size_t i = 0; i < r->count; i++) {
        const struct core_task_result *t = &r->tasks[i];
        table_cell(table, "%s", t->label);
        table_cell(table, "%s", core_kind_name(t->kind));
        table_cell(table, "%u", t->few_shot);
        table_cell(table, "%zu", t->items);
        table_cell(table, "%zu", t->correct);
        table_cell(table, "%.4f", t->accuracy);
        table_cell(table, "%.3f to %.3f", t->low, t->high);
        table_cell(table, "%.3f", t->baseline);
        table_cell(table, "%.4f", t->centered);
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    return SOL_OK;
}

static double core_rate(const struct core_result *r)
{
    return r->seconds > 0 ? (double)r->rows / r->seconds : 0;
}

static enum sol_status print_core(const struct eval_run *run)
{
    const struct core_result *r = &run->core;
    size_t cropped = 0;
    if (!r->count) return SOL_OK;
    SOL_TRY(print_tasks(r));
    for (size_t i = 0; i < r->count; i++) cropped += r->tasks[i].cropped;
    if (r->complete)
        printf("\nCORE           %.4f, 95 %% interval %.4f to %.4f\n", r->core, r->low, r->high);
    else
        printf("\n%zu of %zu tasks, so no CORE\n", r->count, run->bundle->count);
    if (cropped)
        printf("cropped        %zu items had prompts of more than %lld tokens\n", cropped,
               (long long)run->params.context);
    printf("speed          %zu items, %lld tokens, %.1f tokens/s, %.1f s\n", r->items,
           (long long)r->rows, core_rate(r), r->seconds);
    return SOL_OK;
}

static enum sol_status print_text(const struct eval_run *run)
{
    const struct perplexity_result *t = &run->text;
    SOL_TRY(print_core(run));
    if (!t->scored) return SOL_OK;
    if (t->bits_per_byte > 0) printf("bits per byte  %.4f\n", t->bits_per_byte);
    printf("nll            %.6f +- %.6f nats per token\n", t->nll, t->nll_error);
    printf("text           %lld tokens scored of %zu, %lld windows of %lld\n", (long long)t->scored,
           run->ids.count, (long long)t->windows, (long long)run->how.context);
    return SOL_OK;
}

static json_t *task_json(const struct core_task_result *t)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:[f, f], s:f, s:f, s:f}", "label",
                     t->label, "kind", core_kind_name(t->kind), "few_shot", (json_int_t)t->few_shot,
                     "items", (json_int_t)t->items, "correct", (json_int_t)t->correct, "cropped",
                     (json_int_t)t->cropped, "accuracy", t->accuracy, "ci95", t->low, t->high,
                     "baseline", t->baseline, "centered", t->centered, "seconds", t->seconds);
}

static json_t *core_json(const struct core_result *r)
{
    json_t *tasks = json_array();
    if (!r->count) {
        json_decref(tasks);
        return json_null();
    }
    for (size_t i = 0; i < r->count; i++) json_array_append_new(tasks, task_json(&r->tasks[i]));
    return json_pack("{s:o, s:[o, o], s:o, s:I, s:I, s:f, s:f}", "core",
                     r->complete ? json_number(r->core) : json_null(), "ci95",
                     r->complete ? json_number(r->low) : json_null(),
                     r->complete ? json_number(r->high) : json_null(), "tasks", tasks, "items",
                     (json_int_t)r->items, "tokens", (json_int_t)r->rows, "tokens_per_s",
                     core_rate(r), "seconds", r->seconds);
}

static json_t *text_json(const struct eval_run *run)
{
    const struct perplexity_result *t = &run->text;
    if (!t->scored) return json_null();
    return json_pack("{s:o, s:f, s:f, s:I, s:I, s:f}", "bits_per_byte",
                     t->bits_per_byte > 0 ? json_real(t->bits_per_byte) : json_null(), "nll",
                     t->nll, "nll_error", t->nll_error, "tokens", (json_int_t)run->ids.count,
                     "scored", (json_int_t)t->scored, "seconds", t->seconds);
}

/* What was measured before an interruption is shown, and marked. */
static enum sol_status report(const struct eval_run *run, enum sol_status status)
{
    if (status != SOL_OK && status != SOL_E_INTERRUPTED) return status;
    if (!run->options.json) {
        SOL_TRY(print_text(run));
        return status;
    }
    SOL_TRY(json_print(json_pack(
        "{s:o, s:o, s:I, s:b, s:o, s:o, s:o}", "core", core_json(&run->core), "text",
        text_json(run), "context", (json_int_t)run->params.context, "complete", status == SOL_OK,
        "model", model_json(run->model), "settings", engine_settings_json(&run->params), "kernels",
        plan_kernels_json(engine_last_plan(run->engine)))));
    return status;
}

static int run_command(int argc, char **argv)
{
    struct eval_run run = {.options.max_per_task = -1};
    int exit_status;
    engine_options_init(&run.options.engine);
    if (!parse_options_only(&spec, argc, argv, &run.options, &exit_status)) return exit_status;
    progress_quiet(run.options.quiet);
    enum sol_status status = set_up(&run);
    if (status == SOL_OK) status = report(&run, measure(&run));
    tear_down(&run);
    return cli_fail(status);
}

const struct command cmd_eval = {&spec, run_command, false};
