/* A step that is begun before it is known to be wanted: while a GPU draws the tokens of one step,
 * the next, of the same sequences, waits there already, with those tokens. So the GPU does not wait
 * for the host between them. For the engine nothing has happened: positions are as if there were no
 * such step, until the next call asks for just that one, byte for byte. Then it is that step. If it
 * asks for another, or something else is done with the engine, nobody looks at it again: it wrote
 * beyond what its sequences hold, where they have room, and all that follows comes behind it. */
#include <string.h>

#include "base/rng.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "infer/engine_private.h"

/* ---- whether there can be one ---- */

static bool fetches_logits(const struct engine *e)
{
    for (int64_t i = 0; i < e->host.n_outputs; i++)
        if (e->fetched[i]) return true;
    return false;
}

/* The next row of a sequence that had one in this step. New pages would have to be sent first. */
static bool row_goes_on(const struct engine *e, int64_t i, const int32_t *then)
{
    const int32_t sequence = e->host.sequence[i];
    const int64_t position = e->position[sequence];
    if (then && (then[i] < 0 || then[i] >= e->model->config.vocab)) return false;
    if (!then && (e->draw != FORWARD_DRAW || !e->drawing[i])) return false;
    return position == e->oldest[sequence] + 1 && position < e->params.context &&
           kv_pages_missing(&e->pages, sequence, position + 1) == 0;
}

static bool can_go_on(const struct engine *e, const int32_t *then)
{
    if (!e->ahead.before || e->ahead.in_vain || e->timed || e->trace || e->pages.unsent)
        return false;
    if (e->draw == FORWARD_DRAW_LISTS || fetches_logits(e)) return false;
    if (e->host.n_outputs != e->host.n_tokens) return false;
    for (int64_t i = 0; i < e->host.n_tokens; i++)
        if (!row_goes_on(e, i, then)) return false;
    return true;
}

/* ---- beginning it ---- */

/* Random numbers are taken again when the step is asked for. A sampler may draw for two rows, so
 * they are put back the other way round. */
static void set_draws(struct engine *e)
{
    const int64_t n = e->host.n_outputs;
    struct rng *saved = e->ahead.saved;
    for (int64_t i = 0; i < n; i++) {
        if (e->drawing[i]) sampler_save(e->drawing[i], &saved[i]);
        engine_set_draw(e, i, -1);
    }
    for (int64_t i = n - 1; i >= 0; i--)
        if (e->drawing[i]) sampler_restore(e->drawing[i], &saved[i]);
}

/* Drawn tokens are there already, where op sample puts them. */
static enum sol_status send_next(struct engine *e, int turn, const int32_t *then)
{
    const struct step_parts p = engine_parts_of(e, turn);
    const void *first = p.position;
    const int32_t *end = then ? p.previous : p.token;
    engine_pack_rows(e, turn);
    for (int64_t i = 0; i < e->host.n_tokens; i++) p.position[i]++;
    if (then) memcpy(p.token, then, (size_t)e->host.n_tokens * sizeof *then);
    if (e->draw == FORWARD_DRAW) {
        set_draws(e);
        engine_pack_draws(e, turn);
        first = p.draws;
    }
    return gpu_send(e->context.stream, engine_there(e, turn, first), first,
                    (size_t)((const char *)end - (const char *)first));
}

static enum sol_status begin(struct engine *e, int turn, const int32_t *then)
{
    SOL_TRY(gpu_event_record(e->ahead.before, e->context.stream));
    SOL_TRY(send_next(e, turn, then));
    return plan_run(e->plans->plan, &e->context, false, NULL);
}

enum sol_status engine_go_on(struct engine *e, const int32_t *then)
{
    struct engine_ahead *a = &e->ahead;
    if (!can_go_on(e, then)) return SOL_OK;
    const enum sol_status status = begin(e, 1 - e->turns.now, then);
    if (status != SOL_OK) {
        gpu_settle(e->context.stream);
        engine_forget_batch(e);
        return status;
    }
    a->turn = 1 - e->turns.now;
    a->drawn = !then;
    a->draw = e->draw;
    a->n = e->host.n_tokens;
    return SOL_OK;
}

/* ---- taking it ---- */

static bool same(const struct engine *e, const int32_t *a, const int32_t *b)
{
    return memcmp(a, b, (size_t)e->host.n_tokens * sizeof *a) == 0;
}

static bool same_draws(const struct engine *e, const struct sample_draw *sent)
{
    for (int64_t i = 0; i < e->host.n_outputs; i++) {
        const struct sample_draw *a = &e->turns.draws[i], *b = &sent[i];
        if (a->key != b->key || a->inverse_temperature != b->inverse_temperature ||
            a->min_p != b->min_p || a->list != b->list)
            return false;
    }
    return true;
}

static bool is_asked_for(const struct engine *e)
{
    const struct engine_ahead *a = &e->ahead;
    const struct batch *b = &e->host;
    if (a->turn == ENGINE_NO_TURN || e->pages.unsent || a->draw != e->draw) return false;
    if (a->n != b->n_tokens || a->n != b->n_outputs || fetches_logits(e)) return false;
    const struct step_parts p = engine_parts_of(e, a->turn);
    const int32_t *tokens = a->drawn ? engine_drawn(e, e->turns.now) : p.token;
    return same(e, tokens, b->token) && same(e, p.position, b->position) &&
           same(e, p.sequence, b->sequence) && same(e, p.output_rows, b->output_rows) &&
           (a->draw != FORWARD_DRAW || same_draws(e, p.draws));
}

bool engine_take_ahead(struct engine *e)
{
    if (!is_asked_for(e)) {
        engine_forget_ahead(e);
        return false;
    }
    e->turns.now = e->ahead.turn;
    e->ahead.turn = ENGINE_NO_TURN;
    return true;
}

enum sol_status engine_wait(struct engine *e)
{
    if (e->ahead.turn != ENGINE_NO_TURN && gpu_put_status(e->context.stream) == SOL_OK)
        return gpu_event_wait(e->ahead.before);
    if (e->follows && gpu_put_status(e->context.stream) == SOL_OK) {
        e->follows = false;
        return gpu_event_wait(e->stepped);
    }
    e->follows = e->ahead.in_vain = false;
    return gpu_wait(e->context.stream);
}
