#include "generate/generate.h"

#include <stdlib.h>

#include "base/progress.h"
#include "base/status.h"

/* ---- what may be drawn ---- */

static enum sol_status make_sampler(const struct model *model, const struct sampler_params *params,
                                    bool control, bool stops, struct sampler **out)
{
    const struct tokenizer *t = model->tokenizer;
    int64_t vocab = model->config.vocab;
    *out = NULL;
    if (!t) return sampler_create(params, vocab, NULL, out);
    unsigned char *banned = calloc((size_t)vocab, 1);
    if (!banned) return status_set(SOL_E_MEMORY, "no memory for %lld tokens", (long long)vocab);
    for (int64_t i = 0; i < vocab; i++) {
        int32_t id = (int32_t)i;
        bool token = id < tokenizer_vocab(t) && tokenizer_bytes(t, id).length > 0;
        bool allowed = token && (control || !tokenizer_is_control(t, id));
        banned[i] = tokenizer_is_stop(t, id) ? !stops : !allowed;
    }
    enum sol_status status = sampler_create(params, vocab, banned, out);
    free(banned);
    return status;
}

enum sol_status generate_sampler(const struct model *model, const struct sampler_params *params,
                                 bool control, struct sampler **out)
{
    return make_sampler(model, params, control, true, out);
}

enum sol_status generate_endless_sampler(const struct model *model,
                                         const struct sampler_params *params, struct sampler **out)
{
    return make_sampler(model, params, false, false, out);
}

bool generate_is_stop(const struct model *model, int32_t token)
{
    return model->tokenizer && tokenizer_is_stop(model->tokenizer, token);
}

/* ---- the prompt ---- */

/* Only the last row's logits are wanted. */
enum sol_status generate_prefill(struct engine *engine, int32_t sequence, const int32_t *tokens,
                                 int64_t n, int64_t step, const float **logits)
{
    struct engine_row *rows = calloc((size_t)n, sizeof *rows);
    if (!rows) return status_set(SOL_E_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        rows[i] =
            (struct engine_row){.token = tokens[i], .sequence = sequence, .output = i == n - 1};
    struct progress progress;
    progress_start(&progress, "prompt", "tokens", (uint64_t)n);
    enum sol_status status = SOL_OK;
    for (int64_t at = 0, count; at < n && status == SOL_OK; at += count) {
        count = step > 0 && step < n - at ? step : n - at;
        status = engine_eval(engine, rows + at, count, NULL, NULL, logits);
        if (step > 0) progress_update(&progress, (uint64_t)(at + count));
    }
    progress_end(&progress);
    free(rows);
    return status;
}

/* ---- token by token ---- */

/* Lets the sampler draw only what the text's constraint allows. */
static enum sol_status restrict_draw(struct generation *g)
{
    if (!g->constraint) return SOL_OK;
    SOL_TRY(constraint_mask(g->constraint));
    sampler_allow(g->sampler, g->constraint->mask);
    return SOL_OK;
}

/* What `token`, drawn after what the engine holds, makes of the text. */
static enum sol_status take(struct generation *g, int32_t token)
{
    bool stop = generate_is_stop(engine_model(g->engine), token);
    if (g->constraint && !stop) SOL_TRY(constraint_take(g->constraint, token));
    g->token = token;
    if (stop) {
        g->end = GENERATE_STOP_TOKEN;
        return SOL_OK;
    }
    g->count++;
    if (g->constraint && matcher_ended(g->constraint->matcher))
        g->end = GENERATE_WHOLE;
    else if (g->count == g->limit)
        g->end = GENERATE_LENGTH;
    else if (speculation_position(&g->speculation) == g->context)
        g->end = GENERATE_CONTEXT;
    return SOL_OK;
}

enum sol_status generate_first(struct generation *g, const float *logits)
{
    int32_t token;
    speculation_begin(&g->speculation, g->engine, g->sequence, g->draft);
    g->count = 0;
    g->end = g->limit > 0 ? GENERATE_GOES_ON : GENERATE_LENGTH;
    if (g->end) return SOL_OK;
    SOL_TRY(restrict_draw(g));
    SOL_TRY(sampler_next(g->sampler, logits, &token));
    return take(g, token);
}

enum sol_status generate_next(struct generation *g)
{
    int32_t token;
    SOL_TRY(restrict_draw(g));
    SOL_TRY(speculation_next(&g->speculation, g->token, g->limit - g->count, g->sampler, &token));
    SOL_TRY(take(g, token));
    return g->end ? speculation_end(&g->speculation) : SOL_OK;
}
