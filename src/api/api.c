/* The public C API over the inner modules: checks what callers may get wrong and hides the types.
 */
#include "sol/sol.h"

#include <stdlib.h>
#include <string.h>

#include "api/api_private.h"
#include "base/status.h"
#include "check/backend.h"
#include "generate/generate.h"
#include "model/model.h"
#include "model/upload.h"

struct sol_session {
    struct engine *engine;
    int64_t context;
    const float *logits; /* the engine's, NULL before the first eval */
};

struct sol_sampler {
    struct sampler *sampler;
};

/* ---- model ---- */

static const struct model *inner(const struct sol_model *model)
{
    return model->model;
}

void sol_model_params_init(struct sol_model_params *params)
{
    *params = (struct sol_model_params){0};
}

/* What `auto` wants to have room for: a session of the usual size. */
static struct engine_params usual_run(const struct model_config *config)
{
    struct engine_params p;
    engine_params_init(&p);
    if (p.context > config->context) p.context = config->context;
    p.max_batch = ENGINE_BATCH_GPU;
    return p;
}

/* A GPU gets the weights straight from the files. */
static enum sol_status open_weights(const char *source, const char *backend, struct sol_model *m)
{
    if (m->gpu) {
        SOL_TRY(model_open_with(source, &(struct model_params){.later = true}, &m->model));
        const struct engine_params run = usual_run(&m->model->config);
        backend_fit(backend, m->model, &run, &m->gpu);
        if (m->gpu) return model_upload(m->model, m->gpu, &m->uploaded);
        model_close(m->model);
        m->model = NULL;
    }
    return model_open(source, &m->model);
}

enum sol_status sol_model_open(const char *source, const struct sol_model_params *params,
                               struct sol_model **out)
{
    const char *backend = params ? params->backend : NULL;
    *out = NULL;
    struct sol_model *m = calloc(1, sizeof *m);
    if (!m) return status_set(SOL_E_MEMORY, "no memory for a model");
    enum sol_status status = backend_open(backend, NULL, true, &m->gpu);
    if (status == SOL_OK) status = open_weights(source, backend, m);
    if (status == SOL_OK)
        *out = m;
    else
        sol_model_close(m);
    return status;
}

void sol_model_close(struct sol_model *model)
{
    if (!model) return;
    model_upload_destroy(model->uploaded, model->gpu);
    gpu_close(model->gpu);
    model_close(model->model);
    free(model);
}

void sol_model_get_info(const struct sol_model *model, struct sol_model_info *info)
{
    const struct model_config *c = &inner(model)->config;
    *info = (struct sol_model_info){
        .layers = c->n_layers,
        .hidden = c->hidden,
        .heads = c->n_heads,
        .kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .experts = c->n_experts,
        .experts_used = c->top_k,
        .vocab = c->vocab,
        .context = c->context,
        .parameters = inner(model)->parameters,
        .weight_bytes = inner(model)->weight_bytes,
        .tokenizer = inner(model)->tokenizer != NULL,
        .device = model->gpu ? gpu_info(model->gpu)->name : "cpu",
    };
}

/* ---- tokens ---- */

static enum sol_status need_tokenizer(const struct sol_model *model)
{
    if (inner(model)->tokenizer) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "%s has no vocabulary: work with token ids",
                      inner(model)->name);
}

enum sol_status sol_model_encode(const struct sol_model *model, const char *text, size_t length,
                                 bool special, int32_t *ids, size_t capacity, size_t *count)
{
    *count = 0;
    SOL_TRY(need_tokenizer(model));
    struct token_list list = {0};
    enum sol_status status =
        tokenizer_encode(inner(model)->tokenizer, length ? text : "", length, special, &list);
    if (status == SOL_OK) {
        size_t fits = list.count < capacity ? list.count : capacity;
        if (fits) memcpy(ids, list.ids, fits * sizeof *ids);
        *count = list.count;
    }
    token_list_free(&list);
    return status;
}

enum sol_status sol_model_decode(const struct sol_model *model, const int32_t *ids, size_t n,
                                 char *text, size_t capacity, size_t *length)
{
    *length = 0;
    SOL_TRY(need_tokenizer(model));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        struct token_bytes bytes = tokenizer_bytes(inner(model)->tokenizer, ids[i]);
        if (!bytes.length) return status_set(SOL_E_ARGUMENT, "%d is no token", ids[i]);
        size_t room = at < capacity ? capacity - at : 0;
        size_t fits = bytes.length < room ? bytes.length : room;
        if (fits) memcpy(text + at, bytes.data, fits);
        at += bytes.length;
    }
    *length = at;
    return SOL_OK;
}

bool sol_model_is_stop(const struct sol_model *model, int32_t id)
{
    return generate_is_stop(inner(model), id);
}

int32_t sol_model_begin(const struct sol_model *model)
{
    const struct tokenizer *tokenizer = inner(model)->tokenizer;
    return tokenizer && tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : -1;
}

/* ---- session ---- */

void sol_session_params_init(struct sol_session_params *params)
{
    struct engine_params defaults;
    engine_params_init(&defaults);
    *params = (struct sol_session_params){
        .context = defaults.context,
        .threads = defaults.threads,
    };
}

static enum sol_status check_params(const struct sol_session_params *p)
{
    enum { CONTEXT_MAX = 1 << 24, BATCH_MAX = 65536, THREADS_MAX = 1024 };
    if (p->context < 1 || p->context > CONTEXT_MAX)
        return status_set(SOL_E_ARGUMENT, "a context of %lld: 1 to %d positions are possible",
                          (long long)p->context, CONTEXT_MAX);
    if (p->batch < 0 || p->batch > BATCH_MAX)
        return status_set(SOL_E_ARGUMENT,
                          "a batch of %lld: 1 to %d tokens are possible, 0 for what is fast",
                          (long long)p->batch, BATCH_MAX);
    if (p->threads < 0 || p->threads > THREADS_MAX)
        return status_set(SOL_E_ARGUMENT, "%d threads: 1 to %d are possible, 0 for every core",
                          p->threads, THREADS_MAX);
    return SOL_OK;
}

enum sol_status api_engine_params(const struct sol_model *model,
                                  const struct sol_session_params *wanted,
                                  struct engine_params *out)
{
    SOL_TRY(check_params(wanted));
    engine_params_init(out);
    out->context = wanted->context;
    out->max_batch = wanted->batch ? wanted->batch
                     : model->gpu  ? ENGINE_BATCH_GPU
                                   : ENGINE_BATCH_CPU;
    out->threads = wanted->threads;
    out->chooser.device.gpu = model->gpu;
    out->uploaded = model->uploaded;
    if (wanted->exact) out->chooser.loosest = NUMERICS_EXACT;
    return SOL_OK;
}

enum sol_status sol_session_create(struct sol_model *model, const struct sol_session_params *params,
                                   struct sol_session **out)
{
    *out = NULL;
    struct sol_session_params defaults;
    struct engine_params engine;
    sol_session_params_init(&defaults);
    if (!params) params = &defaults;
    SOL_TRY(api_engine_params(model, params, &engine));
    struct sol_session *session = calloc(1, sizeof *session);
    if (!session) return status_set(SOL_E_MEMORY, "no memory for a session");
    enum sol_status status = engine_create(inner(model), &engine, &session->engine);
    if (status != SOL_OK) {
        free(session);
        return status;
    }
    session->context = params->context;
    *out = session;
    return SOL_OK;
}

void sol_session_destroy(struct sol_session *session)
{
    if (!session) return;
    engine_destroy(session->engine);
    free(session);
}

enum sol_status sol_session_eval(struct sol_session *session, const int32_t *ids, size_t n)
{
    if (n == 0) return status_set(SOL_E_ARGUMENT, "no tokens to evaluate");
    int64_t room = session->context - engine_position(session->engine, 0);
    if (n > (size_t)room)
        return status_set(SOL_E_ARGUMENT,
                          "%zu more tokens, but only %lld of %lld positions are free", n,
                          (long long)room, (long long)session->context);
    const float *logits = NULL;
    enum sol_status status = generate_prefill(session->engine, 0, ids, (int64_t)n, 0, &logits);
    if (status == SOL_OK) session->logits = logits;
    return status;
}

const float *sol_session_logits(const struct sol_session *session)
{
    return session->logits;
}

int64_t sol_session_position(const struct sol_session *session)
{
    return engine_position(session->engine, 0);
}

void sol_session_reset(struct sol_session *session)
{
    engine_reset(session->engine, 0);
    session->logits = NULL;
}

/* ---- sampling ---- */

void sol_sampler_params_init(struct sol_sampler_params *params)
{
    struct sampler_params defaults;
    sampler_params_init(&defaults);
    *params = (struct sol_sampler_params){
        .temperature = defaults.temperature,
        .top_k = defaults.top_k,
        .top_p = defaults.top_p,
        .min_p = defaults.min_p,
        .seed = defaults.seed,
    };
}

struct sampler_params api_sampler_params(const struct sol_sampler_params *params)
{
    return (struct sampler_params){
        .temperature = params->temperature,
        .top_k = params->top_k,
        .top_p = params->top_p,
        .min_p = params->min_p,
        .seed = params->seed,
    };
}

enum sol_status sol_sampler_create(const struct sol_model *model,
                                   const struct sol_sampler_params *params,
                                   struct sol_sampler **out)
{
    *out = NULL;
    struct sol_sampler_params defaults;
    sol_sampler_params_init(&defaults);
    if (!params) params = &defaults;
    const struct sampler_params how = api_sampler_params(params);
    struct sol_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) return status_set(SOL_E_MEMORY, "no memory for a sampler");
    enum sol_status status =
        generate_sampler(inner(model), &how, params->control, &sampler->sampler);
    if (status == SOL_OK)
        *out = sampler;
    else
        free(sampler);
    return status;
}

void sol_sampler_destroy(struct sol_sampler *sampler)
{
    if (!sampler) return;
    sampler_destroy(sampler->sampler);
    free(sampler);
}

enum sol_status sol_sampler_next(struct sol_sampler *sampler, const float *logits, int32_t *id)
{
    return sampler_next(sampler->sampler, logits, id);
}
