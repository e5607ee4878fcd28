/* See probe.h. */
#include "train/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "generate/generate.h"
#include "infer/fit.h"
#include "train/core_score.h"

enum { SAMPLE_CONTEXT = 512 };

/* The beginnings of things that a model of texts comes to know, from facts to sums. */
static const char *const own_prompts[] = {
    "The largest planet of the solar system is",
    "Water is made of hydrogen and",
    "If today is Monday, then tomorrow is",
    "The opposite of big is",
    "The four seasons of the year are:",
    "What I like to eat most is",
    "If 3*x = 12, then x is",
};

struct probe {
    const struct probe_params *params;
    struct trainer *trainer;
    struct model model; /* the one in training, with its vocabulary */
    struct engine_params engine_params;
    struct engine *engine;
    struct sampler *sampler;
};

/* ---- the engine ---- */

/* The cache is as exact as activations are. */
static void set_engine(const struct probe_params *params, const struct trainer_params *trainer,
                       const struct model *model, struct engine_params *out)
{
    const int64_t context = model->config.context;
    engine_params_init(out);
    out->chooser = trainer->chooser;
    out->threads = trainer->threads;
    out->kv_dtype = trainer->bf16 ? DTYPE_BF16 : DTYPE_F32;
    if (trainer->chooser.device.gpu) out->max_batch = ENGINE_BATCH_GPU;
    if (params->core) {
        core_scorer_prepare(model, 0, out);
        return;
    }
    out->context = context < SAMPLE_CONTEXT ? context : SAMPLE_CONTEXT;
    engine_params_settle(out);
}

enum sol_status probe_memory(const struct probe_params *params,
                             const struct trainer_params *trainer, size_t *out)
{
    const struct params_options outline = {.recipe = trainer->recipe,
                                           .gpu = trainer->chooser.device.gpu,
                                           .bf16 = trainer->bf16,
                                           .outline = true};
    struct engine_params engine;
    struct engine_parts parts;
    struct params *weights;
    *out = 0;
    SOL_TRY(params_create(&outline, &weights));
    set_engine(params, trainer, &weights->model, &engine);
    enum sol_status status = fit_engine(&weights->model, &engine, &parts);
    if (status == SOL_OK) *out = engine_parts_total(&parts);
    params_destroy(weights);
    return status;
}

static struct core_eval_params core_params(const struct probe_params *params)
{
    return (struct core_eval_params){
        .bundle = params->core, .max_per_task = params->core_max_per_task, .progress = true};
}

enum sol_status probe_check(const struct probe_params *params)
{
    const struct core_eval_params core = core_params(params);
    return params->core ? core_eval_check(&core) : SOL_OK;
}

enum sol_status probe_create(const struct probe_params *params, struct trainer *trainer,
                             struct probe **out)
{
    *out = NULL;
    struct probe *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for samples");
    p->params = params;
    p->trainer = trainer;
    p->model = trainer_weights(trainer)->model;
    p->model.tokenizer = (struct tokenizer *)(uintptr_t)params->tokenizer; /* it is only read */
    set_engine(params, trainer_params(trainer), &p->model, &p->engine_params);
    if (p->engine_params.chooser.device.gpu) p->engine_params.uploaded = &p->model;
    enum sol_status status = engine_create(&p->model, &p->engine_params, &p->engine);
    struct sampler_params greedy;
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    if (status == SOL_OK) status = generate_sampler(&p->model, &greedy, false, &p->sampler);
    if (status == SOL_OK)
        *out = p;
    else
        probe_destroy(p);
    return status;
}

void probe_destroy(struct probe *p)
{
    if (!p) return;
    engine_destroy(p->engine);
    sampler_destroy(p->sampler);
    free(p);
}

/* ---- CORE ---- */

enum sol_status probe_core(struct probe *p, struct core_result *out)
{
    const struct core_eval_params params = core_params(p->params);
    *out = (struct core_result){.tasks = NULL};
    SOL_TRY(trainer_wait(p->trainer));
    enum sol_status status = core_eval(p->engine, &p->engine_params, &params, out);
    if (status != SOL_OK) core_result_free(out);
    return status;
}

/* ---- samples ---- */

/* What begins a text, then the prompt, as much of its end as leaves room. */
static enum sol_status encode(const struct probe *p, const char *prompt, struct token_list *ids)
{
    const struct tokenizer *t = p->model.tokenizer;
    const int64_t context = p->engine_params.context, half = context / 2;
    const int64_t room = half < PROBE_SAMPLE_TOKENS ? half : PROBE_SAMPLE_TOKENS;
    const size_t most = (size_t)(context - room);
    struct token_list text = {0};
    enum sol_status status = tokenizer_encode(t, prompt, strlen(prompt), false, &text);
    const size_t begin = tokenizer_begin(t) >= 0;
    const size_t kept = text.count + begin > most ? most - begin : text.count;
    ids->ids = malloc((most + 1) * sizeof *ids->ids);
    if (status == SOL_OK && !ids->ids) status = status_set(SOL_E_MEMORY, "no memory for a prompt");
    if (status == SOL_OK) {
        if (begin) ids->ids[0] = tokenizer_begin(t);
        if (kept) memcpy(ids->ids + begin, text.ids + text.count - kept, kept * sizeof *ids->ids);
        ids->count = begin + kept;
        if (!ids->count) status = status_set(SOL_E_ARGUMENT, "a prompt without a token");
    }
    token_list_free(&text);
    return status;
}

static enum sol_status write_text(struct probe *p, const struct token_list *ids, FILE *to)
{
    struct generation g = {.engine = p->engine,
                           .sampler = p->sampler,
                           .limit = PROBE_SAMPLE_TOKENS,
                           .context = p->engine_params.context};
    const float *logits;
    engine_reset(p->engine, 0);
    SOL_TRY(generate_prefill(p->engine, 0, ids->ids, (int64_t)ids->count, 0, &logits));
    SOL_TRY(generate_first(&g, logits));
    for (int64_t written = 0; written < g.count;) {
        const struct token_bytes bytes = tokenizer_bytes(p->model.tokenizer, g.token);
        fwrite(bytes.data, 1, bytes.length, to);
        written++;
        if (!g.end) SOL_TRY(generate_next(&g));
    }
    return SOL_OK;
}

static enum sol_status sample(struct probe *p, const char *prompt, probe_sample_fn each, void *arg)
{
    struct token_list ids = {0};
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    if (!to) return status_set(SOL_E_MEMORY, "no memory for a sample");
    enum sol_status status = encode(p, prompt, &ids);
    if (status == SOL_OK) status = write_text(p, &ids, to);
    if (fclose(to) != 0 && status == SOL_OK)
        status = status_set(SOL_E_MEMORY, "no memory for a sample");
    if (status == SOL_OK) status = each(arg, prompt, text);
    token_list_free(&ids);
    free(text);
    return status;
}

enum sol_status probe_samples(struct probe *p, probe_sample_fn each, void *arg)
{
    const struct string_list *more = p->params->prompts;
    SOL_TRY(trainer_wait(p->trainer));
    for (size_t i = 0; i < sizeof own_prompts / sizeof *own_prompts; i++)
        SOL_TRY(sample(p, own_prompts[i], each, arg));
    for (size_t i = 0; more && i < more->count; i++) SOL_TRY(sample(p, more->values[i], each, arg));
    return SOL_OK;
}
