/* Tokens from a step's logits, and steps in two halves. On a GPU a token is drawn there where the
 * op can do what its sampler asks for; otherwise its logits come to the host, where rows are drawn
 * in parallel. Where nothing but bans says what may be drawn there, and these are the same, the
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
    engine_forget_ahead(e);
    memcpy(b->host.banned, e->banned, bytes);
    SOL_TRY(gpu_copy_in(e->context.stream, b->at.banned, b->host.banned, bytes));
    e->banned_there = true;
    return SOL_OK;
}

static bool drawn_there(const struct engine *e, int64_t output)
{
    const struct sampler *sampler = e->drawing[output];
    return e->gpu && sampler && sampler_can_request(sampler);
}

/* Of those whose tokens are drawn there; NULL: there are none. */
static const struct sampler *first_there(const struct engine *e)
{
    for (int64_t i = 0; i < e->host.n_outputs; i++)
        if (drawn_there(e, i)) return e->drawing[i];
    return NULL;
}

/* What the first one may draw, this one may too, and nothing else. */
static bool draws_as(const struct sampler *first, const struct sampler *sampler)
{
    return !sampler_is_restricted(sampler) && sampler_bans_as(first, sampler);
}

static enum forward_draw draw_of(const struct engine *e, bool later)
{
    const struct sampler *first = first_there(e);
    if (!first) return FORWARD_NO_DRAW;
    for (int64_t i = 0; i < e->host.n_outputs; i++)
        if (drawn_there(e, i)) later |= !draws_as(first, e->drawing[i]);
    return later ? FORWARD_DRAW_LISTS : FORWARD_DRAW;
}

/* Of who draws nothing there too: the op draws a row for each output. */
void engine_set_draw(struct engine *e, int64_t i, int32_t list)
{
    struct sample_draw *draw = &e->turns.draws[i];
    if (!drawn_there(e, i) || !sampler_request(e->drawing[i], draw))
        *draw = (struct sample_draw){.inverse_temperature = 1};
    draw->list = list;
}

static enum sol_status place_draws(struct engine *e)
{
    SOL_TRY(send_banned(e, first_there(e)));
    for (int64_t i = 0; i < e->host.n_outputs; i++) engine_set_draw(e, i, -1);
    return SOL_OK;
}

/* Whoever may not draw what the first one may has a list. */
static enum sol_status draw_by_lists(struct engine *e)
{
    const struct buffers *b = &e->buffers;
    const int64_t n = e->host.n_outputs;
    const size_t words = ((size_t)e->model->config.vocab + 31) / 32;
    const struct sampler *first = first_there(e);
    int32_t lists = 0;
    SOL_TRY(send_banned(e, first));
    for (int64_t i = 0; i < n; i++) {
        const bool listed = drawn_there(e, i) && !draws_as(first, e->drawing[i]);
        if (listed) sampler_list(e->drawing[i], b->host.lists + (size_t)lists * words);
        engine_set_draw(e, i, listed ? lists++ : -1);
    }
    if (lists)
        SOL_TRY(gpu_copy_in(e->context.stream, b->at.lists, b->host.lists,
                            (size_t)lists * words * sizeof *b->at.lists));
    return engine_start_draw(e);
}

/* ---- on the host ---- */

struct drawing {
    const struct engine *engine;
    int32_t *tokens;
};

static void draw_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct drawing *d = arg;
    const struct engine *e = d->engine;
    const int64_t vocab = e->model->config.vocab;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *row = e->buffers.host.logits + i * vocab;
        if (!e->drawing[i] || drawn_there(e, i)) continue;
        if (!finite_row(row, vocab) || sampler_next(e->drawing[i], row, &d->tokens[i]) != SOL_OK)
            d->tokens[i] = ENGINE_NO_TOKEN;
    }
}

/* ---- a step ---- */

/* Whose tokens are drawn here, and whose logits come for that or for the caller. */
static void take_outputs(struct engine *e, const struct engine_outputs *wanted)
{
    e->draws_here = false;
    for (int64_t i = 0; i < e->host.n_outputs; i++) {
        e->drawing[i] = wanted->samplers ? wanted->samplers[i] : NULL;
        const bool here = e->drawing[i] && !drawn_there(e, i);
        e->fetched[i] = here || (wanted->logits && wanted->logits[i]);
        e->draws_here |= here;
    }
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
                             const struct engine_outputs *outputs)
{
    assert(!e->begun);
    SOL_TRY(check_step(e, rows, n));
    if (engine_fill_batch(e, rows, n) < n) {
        engine_forget_batch(e);
        return status_set(SOL_E_ARGUMENT, "more than %lld rows of one sequence in a step",
                          (long long)e->params.max_run);
    }
    take_outputs(e, outputs);
    e->draw = draw_of(e, outputs->draws_late);
    const bool later = e->draw == FORWARD_DRAW_LISTS;
    enum sol_status status = e->draw == FORWARD_DRAW ? place_draws(e) : SOL_OK;
    if (status != SOL_OK) engine_forget_batch(e);
    if (status == SOL_OK && !engine_take_ahead(e))
        status = engine_start_step(e, later ? FORWARD_NO_DRAW : e->draw);
    if (status == SOL_OK && outputs->goes_on) status = engine_go_on(e, outputs->then);
    e->begun = status == SOL_OK;
    return status;
}

static void take_tokens(struct engine *e, int32_t *tokens)
{
    const int64_t n = e->host.n_outputs;
    const int32_t *drawn = e->gpu ? engine_drawn(e, e->turns.now) : NULL;
    for (int64_t i = 0; i < n; i++) {
        const int32_t token = drawn_there(e, i) ? drawn[i] : ENGINE_NOT_DRAWN;
        tokens[i] = drawn_there(e, i) && token < 0 ? ENGINE_NO_TOKEN : token;
    }
    struct drawing d = {e, tokens};
    if (e->draws_here) pool_for(e->context.pool, n, 1, draw_rows, &d);
}

enum sol_status engine_finish(struct engine *e, int32_t *tokens, const float **logits)
{
    assert(e->begun);
    e->begun = false;
    if (logits) *logits = NULL;
    enum sol_status status = e->draw == FORWARD_DRAW_LISTS ? draw_by_lists(e) : SOL_OK;
    if (status != SOL_OK) {
        gpu_settle(e->context.stream);
        status = engine_join_step(e, status);
        engine_forget_batch(e);
        return status;
    }
    SOL_TRY(engine_end_step(e, true));
    if (logits) *logits = e->buffers.host.logits;
    if (tokens) take_tokens(e, tokens);
    return SOL_OK;
}

enum sol_status engine_eval_token(struct engine *e, const struct engine_row *row,
                                  struct sampler *sampler, bool goes_on, int32_t *token)
{
    if (!e->gpu || !sampler_can_request(sampler)) {
        const float *logits;
        SOL_TRY(engine_eval(e, row, 1, NULL, NULL, &logits));
        return sampler_next(sampler, logits, token);
    }
    SOL_TRY(interrupt_check());
    const struct engine_outputs outputs = {.samplers = &sampler, .goes_on = goes_on};
    SOL_TRY(engine_begin(e, row, 1, &outputs));
    SOL_TRY(engine_finish(e, token, NULL));
    /* Where only some logits are no numbers the op draws from the others. */
    return *token < 0 ? finite_explain(e->original) : SOL_OK;
}
