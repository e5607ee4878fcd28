/* sol perplexity: how well a model predicts a text, and what the fast kernels cost in accuracy. */
#include <math.h>
#include <stdio.h>

#include "base/progress.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/input.h"
#include "infer/perplexity.h"

struct perplexity_options {
    struct engine_options engine;
    struct input_options input;
    int64_t stride, limit;
    bool llama, kl, same_experts, kl_one, json, quiet;
};

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Text and method", NULL, NULL, 0, 0, 0),
    INPUT_OPTIONS(struct perplexity_options, input),
    ENGINE_SIZE_OPTIONS(struct perplexity_options, engine, "tokens a window (default 512)"),
    OPTION_ENTRY(INT, 0, "stride", "N",
                 "tokens from window to window (default: -c; less gives each token more context)",
                 offsetof(struct perplexity_options, stride), 1, 1 << 24),
    OPTION_ENTRY(INT, 0, "limit", "N", "use the first N tokens of the text only",
                 offsetof(struct perplexity_options, limit), 2, 1 << 30),
    OPTION_ENTRY(FLAG, 0, "llama", NULL,
                 "llama.cpp's method: whole windows, the second half of each is scored",
                 offsetof(struct perplexity_options, llama), 0, 0),
    OPTION_ENTRY(FLAG, 0, "kl", NULL,
                 "run the float32 reference too and print how far the logits are from it (slow)",
                 offsetof(struct perplexity_options, kl), 0, 0),
    OPTION_ENTRY(FLAG, 0, "same-experts", NULL,
                 "with --kl: the reference takes the experts that were chosen, so that near ties "
                 "of the router do not count, and what it would have chosen is printed",
                 offsetof(struct perplexity_options, same_experts), 0, 0),
    OPTION_ENTRY(FLAG, 0, "kl-one", NULL,
                 "with --gpus: print how far the logits are from what one GPU computes alike",
                 offsetof(struct perplexity_options, kl_one), 0, 0),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "print one JSON object",
                 offsetof(struct perplexity_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct perplexity_options, quiet), 0, 0),
    ENGINE_OPTIONS(struct perplexity_options, engine),
    ENGINE_LOAD_OPTION(struct perplexity_options, engine),
    ENGINE_BACKEND_OPTION(struct perplexity_options, engine),
    ENGINE_GPUS_OPTION(struct perplexity_options, engine),
    {0},
};

static const struct command_example examples[] = {
    {"sol perplexity -m gpt-oss-20b.gguf -f text.txt", "how well the model predicts a text", NULL},
    {"sol perplexity -f text.txt -c 256 --kl --json",
     "and how far the fast kernels are from the references", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "perplexity",
    .summary = "measure how well a model predicts a text",
    .arguments = "",
    .notes = "Windows of -c tokens follow each other; every token but the first is scored once.\n"
             "With --kl the reference has a float32 cache and the plain C reference of every op.\n"
             "Where a router has near ties, rounding decides which experts a token has. With\n"
             "--same-experts that is left out: what remains is what the kernels round.",
    .examples = examples,
    .options = options,
};

struct perplexity_run {
    struct perplexity_options options;
    struct model *model;
    struct engine_params params;
    struct engine *engine, *reference;
    struct token_list ids;
    struct perplexity_params how;
    struct perplexity_result result;
};

static enum sol_status create_reference(struct perplexity_run *run)
{
    struct engine_params params = run->params;
    params.team = NULL;
    if (run->options.kl) {
        chooser_init(&params.chooser, params.chooser.device.workers);
        params.chooser.reference = true;
        params.kv_dtype = DTYPE_F32;
    }
    return engine_create(run->model, &params, &run->reference);
}

static enum sol_status set_up(struct perplexity_run *run)
{
    struct perplexity_options *o = &run->options;
    SOL_TRY(engine_options_params(&o->engine, &run->params));
    if (o->kl_one && (o->kl || o->engine.gpus < 2))
        return status_set(SOL_E_ARGUMENT, "--kl-one goes with --gpus of 2 or more, without --kl");
    if (o->same_experts && (!o->kl || o->engine.gpus > 1))
        return status_set(SOL_E_ARGUMENT, "--same-experts goes with --kl, without --gpus");
    /* The reference runs on the CPU. */
    o->engine.host_weights = o->kl || (o->kl_one && !o->engine.gpu);
    SOL_TRY(engine_options_open(&o->engine, &run->params, &run->model));
    SOL_TRY(input_tokens(&o->input, "-f", run->model, &run->ids));
    if (o->limit && (int64_t)run->ids.count > o->limit) run->ids.count = (size_t)o->limit;

    perplexity_params_init(&run->how);
    if (o->engine.context) run->how.context = o->engine.context;
    run->how.stride = o->stride;
    run->how.llama = o->llama;
    run->how.same_experts = o->same_experts;
    run->how.progress = true;
    if (o->llama && run->model->tokenizer && tokenizer_adds_bos(run->model->tokenizer))
        run->how.bos = tokenizer_bos(run->model->tokenizer);
    perplexity_prepare(run->model, &run->how, &run->params);
    SOL_TRY(engine_options_team(&o->engine, run->model, &run->params));
    SOL_TRY(engine_create(run->model, &run->params, &run->engine));
    return o->kl || o->kl_one ? create_reference(run) : SOL_OK;
}

static void tear_down(struct perplexity_run *run)
{
    engine_destroy(run->reference);
    engine_destroy(run->engine);
    engine_options_close(&run->options.engine);
    token_list_free(&run->ids);
    model_close(run->model);
}

static void print_comparison(const struct perplexity_run *run)
{
    const struct perplexity_result *r = &run->result;
    const double tolerance = plan_margin(engine_last_plan(run->engine));
    const double change = exp(r->nll - r->reference_nll) - 1;
    printf("against %s %+.4f %% +- %.4f %% of its perplexity (its nll: %.6f)\n",
           run->options.kl ? "float32" : "one GPU", 100 * change, 100 * r->difference_error,
           r->reference_nll);
    printf("KL divergence  mean %.3g, largest %.3g nats per token\n", r->kl_mean, r->kl_max);
    printf("same top token %.3f %%", 100 * r->top1);
    if (r->top1 < 1)
        printf("; elsewhere the two likeliest are up to %.2g apart (tolerance %.2g), in "
               "standard deviations of the logits",
               r->top_margin, tolerance);
    printf("\n");
    if (!run->how.same_experts) return;
    printf("same experts   %.3f %%", 100 * (1 - r->other_experts));
    if (r->other_experts > 0)
        printf("; elsewhere those taken are up to %.2g behind the likeliest (tolerance %.2g), in "
               "standard deviations of the router's logits",
               r->experts_behind, tolerance);
    printf("\n");
}

static void print_text(const struct perplexity_run *run)
{
    const struct perplexity_result *r = &run->result;
    printf("perplexity     %.4f +- %.4f\n", r->perplexity, r->perplexity_error);
    printf("nll            %.6f +- %.6f nats per token\n", r->nll, r->nll_error);
    if (r->bits_per_byte > 0) printf("bits per byte  %.4f\n", r->bits_per_byte);
    printf("tokens         %lld scored of %zu, %lld windows of %lld\n", (long long)r->scored,
           run->ids.count, (long long)r->windows, (long long)run->how.context);
    if (r->compared) print_comparison(run);
    printf("speed          %.1f tokens/s, %.1f s\n",
           r->seconds > 0 ? (double)r->evaluated / r->seconds : 0, r->seconds);
}

static json_t *reference_json(const struct perplexity_run *run)
{
    const struct perplexity_result *r = &run->result;
    json_t *json = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "nll", r->reference_nll,
                             "difference_error", r->difference_error, "kl_mean", r->kl_mean,
                             "kl_max", r->kl_max, "same_top", r->top1, "top_margin", r->top_margin,
                             "tolerance", plan_margin(engine_last_plan(run->engine)));
    if (!run->how.same_experts) return json;
    json_object_set_new(json, "same_experts", json_real(1 - r->other_experts));
    json_object_set_new(json, "experts_behind", json_real(r->experts_behind));
    return json;
}

static json_t *result_json(const struct perplexity_run *run, bool complete)
{
    const struct perplexity_result *r = &run->result;
    json_t *json = json_pack(
        "{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:b, s:f, s:f, s:o, s:o, s:o}",
        "perplexity", r->perplexity, "perplexity_error", r->perplexity_error, "nll", r->nll,
        "nll_error", r->nll_error, "tokens", (json_int_t)run->ids.count, "scored",
        (json_int_t)r->scored, "windows", (json_int_t)r->windows, "evaluated",
        (json_int_t)r->evaluated, "method", run->how.llama ? "llama" : "all", "context",
        (json_int_t)run->how.context, "stride",
        (json_int_t)(run->how.stride ? run->how.stride : run->how.context), "complete", complete,
        "seconds", r->seconds, "tokens_per_s",
        r->seconds > 0 ? (double)r->evaluated / r->seconds : 0, "model", model_json(run->model),
        "settings", engine_settings_json(&run->params), "kernels",
        plan_kernels_json(engine_last_plan(run->engine)));
    json_object_set_new(json, "bits_per_byte",
                        r->bits_per_byte > 0 ? json_real(r->bits_per_byte) : json_null());
    if (r->compared) json_object_set_new(json, "reference", reference_json(run));
    return json;
}

/* What was measured before an interruption is shown, and marked. */
static enum sol_status report(const struct perplexity_run *run, enum sol_status status)
{
    if (status != SOL_OK && status != SOL_E_INTERRUPTED) return status;
    if (run->options.json)
        SOL_TRY(json_print(result_json(run, status == SOL_OK)));
    else if (run->result.scored)
        print_text(run);
    return status;
}

static int run_command(int argc, char **argv)
{
    struct perplexity_run run = {0};
    int exit_status;
    engine_options_init(&run.options.engine);
    if (!parse_options_only(&spec, argc, argv, &run.options, &exit_status)) return exit_status;
    progress_quiet(run.options.quiet);
    enum sol_status status = set_up(&run);
    if (status == SOL_OK) {
        status = perplexity_measure(run.engine, run.reference, run.ids.ids, (int64_t)run.ids.count,
                                    &run.how, &run.result);
        status = report(&run, status);
    }
    tear_down(&run);
    return cli_fail(status);
}

const struct command cmd_perplexity = {&spec, run_command, false};
