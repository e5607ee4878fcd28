/* What is sent to a GPU for a step, and what comes back. A step's rows are written where each array
 * has room for any number of them; what is sent has no room between. Tokens are drawn into the
 * host's memory, so that no copy comes back. */
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "infer/engine_private.h"

void engine_point_batch(struct batch *b, const struct step_parts *p)
{
    b->position = p->position;
    b->sequence = p->sequence;
    b->output_rows = p->output_rows;
    b->token = p->token;
    b->previous = p->previous;
}

/* The kernel that sends is loaded here, where nobody waits for it. */
static enum sol_status prepare_ahead(struct engine *e)
{
    const size_t outputs = (size_t)e->params.max_outputs;
    e->ahead.saved = calloc(outputs, sizeof *e->ahead.saved);
    if (!e->ahead.saved) return status_set(SOL_E_MEMORY, "no memory for the engine's tables");
    SOL_TRY(gpu_send_load(e->gpu));
    return gpu_event_create(e->gpu, &e->ahead.before);
}

enum sol_status engine_turns_create(struct engine *e)
{
    struct engine_turns *t = &e->turns;
    const size_t outputs = (size_t)e->params.max_outputs;
    const size_t tokens = ENGINE_TURNS * outputs * sizeof(int32_t);
    const size_t step = buffers_step_bytes(&e->buffers);
    t->draws = calloc(outputs, sizeof *t->draws);
    if (!t->draws) return status_set(SOL_E_MEMORY, "no memory for the engine's tables");
    SOL_TRY(gpu_alloc_pinned(e->gpu, ENGINE_TURNS * step + tokens, &t->pinned));
    for (int i = 0; i < ENGINE_TURNS; i++)
        t->step[i] = (int32_t *)(void *)((char *)t->pinned + (size_t)i * step);
    e->buffers.at.token = (int32_t *)(void *)((char *)t->pinned + ENGINE_TURNS * step);
    if (e->params.n_features) SOL_TRY(gpu_event_create(e->gpu, &e->stepped));
    return buffers_go_ahead(&e->model->config, &e->params) ? prepare_ahead(e) : SOL_OK;
}

void engine_turns_destroy(struct engine *e)
{
    gpu_event_destroy(e->ahead.before);
    gpu_event_destroy(e->stepped);
    free(e->ahead.saved);
    free(e->turns.draws);
    gpu_free_pinned(e->gpu, e->turns.pinned);
}

/* ---- what is sent ---- */

struct step_parts engine_parts_of(const struct engine *e, int turn)
{
    return buffers_step_parts(&e->buffers, e->turns.step[turn], e->host.n_tokens,
                              e->host.n_outputs);
}

void engine_pack_rows(struct engine *e, int turn)
{
    const struct step_parts p = engine_parts_of(e, turn);
    const struct batch *b = &e->host;
    const size_t bytes = (size_t)b->n_tokens * sizeof(int32_t);
    memcpy(p.position, b->position, bytes);
    memcpy(p.sequence, b->sequence, bytes);
    memcpy(p.output_rows, b->output_rows, (size_t)b->n_outputs * sizeof(int32_t));
    memcpy(p.token, b->token, bytes);
    memcpy(p.previous, b->previous, bytes);
}

void engine_pack_draws(struct engine *e, int turn)
{
    const struct step_parts p = engine_parts_of(e, turn);
    for (int64_t i = 0; i < e->host.n_outputs; i++) {
        p.draws[i] = e->turns.draws[i];
        p.draws[i].place = engine_place_of(e, turn, i);
    }
}

void *engine_there(const struct engine *e, int turn, const void *part)
{
    return (char *)e->buffers.step + ((const char *)part - (const char *)e->turns.step[turn]);
}

static enum sol_status send(struct engine *e, const void *first, const int32_t *end)
{
    return gpu_copy_in(e->context.stream, engine_there(e, e->turns.now, first), first,
                       (size_t)((const char *)end - (const char *)first));
}

enum sol_status engine_send_batch(struct engine *e, bool draws)
{
    const struct step_parts p = engine_parts_of(e, e->turns.now);
    const int64_t previous = forward_of(&e->model->config)->previous ? e->host.n_tokens : 0;
    engine_pack_rows(e, e->turns.now);
    if (draws) engine_pack_draws(e, e->turns.now);
    return send(e, draws ? (const void *)p.draws : p.position, p.previous + previous);
}

enum sol_status engine_send_draws(struct engine *e)
{
    const struct step_parts p = engine_parts_of(e, e->turns.now);
    engine_pack_draws(e, e->turns.now);
    return send(e, p.draws, p.position);
}

const int32_t *engine_drawn(const struct engine *e, int turn)
{
    return e->buffers.at.token + engine_place_of(e, turn, 0);
}
