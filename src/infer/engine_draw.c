/* Tokens from a step's logits, and steps in two halves. On a GPU tokens are drawn there where the
 * op can do what all samplers of the step ask for; otherwise logits come to the host, where rows
 * are drawn in parallel. Where nothing but bans says what may be drawn, and these are the same, the
 * draw is a part of the step. Else it is started when the step is finished, so that who has to say
 * what is allowed can take until then. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/finite.h"

/* ---- on a GPU ---- */

/* The list stays there until a sampler with another comes: lists are compared, as a sampler may be
 * gone and another be where it was. */
static enum sol_status send_banned(struct engine *e, const struct sampler *sampler)
{
    const struct buffers *b = &e->buffers;
    size_t bytes = ((size_t)e->model->config.vocab + 31) / 32 * sizeof *b->at.banned;
    sampler_banned(sampler, e->banned);
    if (e->banned_there && memcmp(e->banned, b->host.banned, bytes) == 0) return SOL_OK;
    memcpy(b->host.banned, e->banned, bytes);
    SOL_TRY(gpu_copy_in(e->context.stream, b->at.banned, b->host.banned, bytes));
    e->banned_there = true;
    return SOL_OK;
}

static const struct sampler *first_of(struct sampler *const *samplers, int64_t n)
{
    for (int64_t i = 0; samplers && i < n; i++)
        if (samplers[i]) return samplers[i];
    return NULL;
}

/* Where the op cannot, or nobody draws, not at all. */
static enum forward_draw draw_of(const struct engine *e, struct sampler *const *samplers, int64_t n,
                                 bool later)
{
    const struct sampler *first = first_of(samplers, n);
    if (!e->gpu || !first) return FORWARD_NO_DRAW;
    for (int64_t i = 0; i < n; i++) {
        if (!samplers[i]) continue;
        if (!sampler_can_request(samplers[i])) return FORWARD_NO_DRAW;
        later |= sampler_is_restricted(samplers[i]) || !sampler_bans_as(first, samplers[i]);
    }
    return later ? FORWARD_DRAW_LISTS : FORWARD_DRAW;
}

static void place_draw(struct engine *e, struct sampler *sampler, int64_t i, int64_t list)
{
    struct sample_draw draw;
    if (!sampler || !sampler_request(sampler, &draw))
        draw = (struct sample_draw){.inverse_temperature = (double)INFINITY};
    draw.list = list;
    char *to = (char *)(e->buffers.host.step + 4 * e->params.max_batch);
    memcpy(to + (size_t)i * sizeof draw, &draw, sizeof draw);
}

static enum sol_status place_draws(struct engine *e, struct sampler *const *samplers, int64_t n)
{
    SOL_TRY(send_banned(e, first_of(samplers, n)));
    for (int64_t i = 0; i < n; i++) place_draw(e, samplers[i], i, -1);
    return SOL_OK;
}

/* Whoever may not draw what the first one may has a list. */
static enum sol_status draw_by_lists(struct engine *e)
{
    const struct buffers *b = &e->buffers;
    const int64_t n = e->host.n_outputs;
    const size_t words = ((size_t)e->model->config.vocab + 31) / 32;
    const struct sampler *first = first_of(e->samplers, n);
    int64_t lists = 0;
    SOL_TRY(send_banned(e, first));
    for (int64_t i = 0; i < n; i++) {
        struct sampler *s = e->samplers[i];
        bool listed = s && (sampler_is_restricted(s) || !sampler_bans_as(first, s));
        if (listed) sampler_list(s, b->host.lists + (size_t)lists * words);
        place_draw(e, s, i, listed ? lists++ : -1);
    }
    if (lists)
        SOL_TRY(gpu_copy_in(e->context.stream, b->at.lists, b->host.lists,
                            (size_t)lists * words * sizeof *b->at.lists));
    return engine_start_draw(e);
}

/* ---- on the host ---- */

struct drawing {
    struct sampler *const *samplers;
    const float *logits;
    int64_t vocab;
    int32_t *tokens;
};

static void draw_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct drawing *d = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *row = d->logits + i * d->vocab;
        d->tokens[i] = ENGINE_NOT_DRAWN;
        if (!d->samplers || !d->samplers[i]) continue;
        if (!finite_row(row, d->vocab) ||
            sampler_next(d->samplers[i], row, &d->tokens[i]) != SOL_OK)
            d->tokens[i] = ENGINE_NO_TOKEN;
    }
}

/* ---- a step ---- */

static enum wanted wanted_of(const struct engine *e)
{
    if (e->draw) return WANT_TOKENS;
    return e->samplers || e->fetches ? WANT_LOGITS : WANT_NOTHING;
}

static enum sol_status check_step(const struct engine *e, const struct engine_row *rows, int64_t n)
{
    int64_t outputs = 0;
    for (int64_t i = 0; i < n; i++) outputs += rows[i].output;
    if (n < 1 || n > e->params.max_batch || outputs > e->params.max_outputs)
        return status_set(SOL_E_ARGUMENT,
                          "a step of %lld rows and %lld outputs; the engine has room for 1 to %lld "
                          "and %lld",
                          (long long)n, (long long)outputs, (long long)e->params.max_batch,
                          (long long)e->params.max_outputs);
    return engine_check_rows(e, rows, n);
}

enum sol_status engine_begin(struct engine *e, const struct engine_row *rows, int64_t n,
                             struct sampler *const *samplers, enum engine_draws draws)
{
    assert(!e->begun);
    SOL_TRY(check_step(e, rows, n));
    if (engine_fill_batch(e, rows, n) < n) {
        engine_forget_batch(e);
        return status_set(SOL_E_ARGUMENT, "more than %lld rows of one sequence in a step",
                          (long long)e->params.max_run);
    }
    int64_t outputs = e->host.n_outputs;
    e->draw = FORWARD_NO_DRAW;
    e->fetches = draws == ENGINE_FETCH;
    if (!e->fetches) e->draw = draw_of(e, samplers, outputs, draws == ENGINE_DRAW_LATER);
    e->samplers = NULL; /* where none draws, logits need not come */
    for (int64_t i = 0; samplers && i < outputs; i++)
        if ((e->drawing[i] = samplers[i])) e->samplers = e->drawing;
    bool later = e->draw == FORWARD_DRAW_LISTS;
    enum sol_status status = e->draw == FORWARD_DRAW ? place_draws(e, samplers, outputs) : SOL_OK;
    if (status != SOL_OK) engine_forget_batch(e);
    if (status == SOL_OK) status = engine_start_step(e, later ? WANT_NOTHING : wanted_of(e));
    e->begun = status == SOL_OK;
    return status;
}

enum sol_status engine_finish(struct engine *e, int32_t *tokens, const float **logits)
{
    assert(e->begun);
    int64_t n = e->host.n_outputs;
    e->begun = false;
    if (logits) *logits = NULL;
    enum sol_status status = e->draw == FORWARD_DRAW_LISTS ? draw_by_lists(e) : SOL_OK;
    if (status != SOL_OK) {
        gpu_settle(e->context.stream);
        status = engine_join_step(e, status);
        engine_forget_batch(e);
        return status;
    }
    SOL_TRY(engine_end_step(e, wanted_of(e)));
    if (logits && e->fetches) *logits = e->buffers.host.logits;
    if (!tokens) return SOL_OK;
    if (!e->draw) {
        struct drawing d = {e->samplers, e->buffers.host.logits, e->model->config.vocab, tokens};
        pool_for(e->context.pool, n, 1, draw_rows, &d);
        return SOL_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t token = e->buffers.host.token[i];
        tokens[i] = !e->samplers[i] ? ENGINE_NOT_DRAWN : token < 0 ? ENGINE_NO_TOKEN : token;
    }
    return SOL_OK;
}

enum sol_status engine_eval_token(struct engine *e, const struct engine_row *row,
                                  struct sampler *sampler, int32_t *token)
{
    if (!e->gpu || !sampler_can_request(sampler)) {
        const float *logits;
        SOL_TRY(engine_eval(e, row, 1, NULL, NULL, &logits));
        return sampler_next(sampler, logits, token);
    }
    SOL_TRY(interrupt_check());
    SOL_TRY(engine_begin(e, row, 1, &sampler, ENGINE_DRAW));
    SOL_TRY(engine_finish(e, token, NULL));
    /* Where only some logits are no numbers the op draws from the others. */
    return *token < 0 ? finite_explain(e->original) : SOL_OK;
}
