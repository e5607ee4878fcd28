/* The life of a running head, its memory, and what it is asked. */
#include "infer/eagle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/places.h"
#include "gpu/device.h"
#include "infer/eagle_private.h"

/* ---- memory ---- */

/* When something is needed, of what the head does in order. */
enum stage { BEGIN, JOIN, EMBED, NORM, PROJECT, MIX, MLP, OUTPUT, END };

struct line {
    size_t pointer; /* in struct eagle_buffers */
    size_t bytes;
    enum stage first, last; /* BEGIN to END: kept */
};

enum { LINES = 22, ALIGN = 256 };

#define AT(name) offsetof(struct eagle_buffers, name)

static void describe(const struct eagle *e, struct line lines[LINES])
{
    const struct model_config *c = &e->head->layer;
    const size_t f = sizeof(float), rows = (size_t)e->most_rows, hidden = (size_t)c->hidden * f;
    const size_t q = (size_t)(c->n_heads * c->head_dim) * f;
    const size_t kv = (size_t)(c->n_kv_heads * c->head_dim) * f;
    const size_t inter = (size_t)c->intermediate * f;
    const size_t cache = (size_t)kv_elements(&e->at.kv) * dtype_info(e->at.kv.dtype)->block_bytes;
    const struct line all[LINES] = {
        {AT(joined), rows * EAGLE_FEATURES * (size_t)e->target_hidden * f, JOIN, JOIN},
        {AT(states), (1 + rows) * hidden, BEGIN, END},
        {AT(embeds), rows * hidden, EMBED, NORM},
        {AT(normed), 2 * rows * hidden, NORM, NORM},
        {AT(both), 2 * rows * hidden, NORM, PROJECT},
        {AT(k), rows * kv, PROJECT, PROJECT},
        {AT(v), rows * kv, PROJECT, PROJECT},
        {AT(qkv), q + 2 * kv, PROJECT, MIX},
        {AT(attn), q, MIX, MIX},
        {AT(x), hidden, BEGIN, END},
        {AT(out), hidden, MIX, MLP},
        {AT(ffn), hidden, MLP, MLP},
        {AT(gate), 2 * inter, MLP, MLP},
        {AT(logits), (size_t)e->head->draft_vocab * f, OUTPUT, END},
        {AT(inv_freq), (size_t)c->head_dim / 2 * f, BEGIN, END},
        {AT(ids), (size_t)e->head->draft_vocab * sizeof(int32_t), BEGIN, END},
        {AT(first), sizeof(int32_t), BEGIN, END},
        {AT(guess), sizeof(struct eagle_guess), OUTPUT, END},
        {AT(turn), sizeof(struct eagle_turn), BEGIN, END},
        {AT(rows), 3 * rows * sizeof(int32_t), BEGIN, END},
        {AT(kv.k), cache, BEGIN, END},
        {AT(kv.v), cache, BEGIN, END},
    };
    memcpy(lines, all, sizeof all);
}

/* Places of all, from `memory` on; their size. */
static size_t point(struct eagle *e, char *memory)
{
    struct line lines[LINES];
    struct place places[LINES];
    size_t size = 0;
    describe(e, lines);
    for (int i = 0; i < LINES; i++) {
        const size_t bytes = (lines[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
        const size_t at = places_add(places, i, (int)lines[i].first, (int)lines[i].last, bytes);
        char *to = memory + at;
        if (lines[i].bytes) memcpy((char *)&e->at + lines[i].pointer, &to, sizeof to);
        if (at + bytes > size) size = at + bytes;
    }
    return size;
}

static struct batch split_rows(int32_t *rows, int64_t most)
{
    return (struct batch){.token = rows, .position = rows + most, .sequence = rows + 2 * most};
}

static void point_rows(struct eagle_rows *r, int32_t *rows, int32_t *host, int64_t most)
{
    r->batch = split_rows(rows, most);
    r->host = split_rows(host, most);
    if (host != rows) r->batch.host = &r->host;
}

/* What of a GPU's is on the host. */
struct pinned {
    struct eagle_turn turn;
    struct eagle_guess guess;
    int32_t rows[];
};

static size_t rows_bytes(int64_t rows)
{
    return (size_t)(3 * rows) * sizeof(int32_t);
}

/* The cache has room for the engine's context, so that it is no ring that comes round. */
static enum sol_status take_memory(struct eagle *e)
{
    const struct model_config *c = &e->head->layer;
    const struct engine_params *p = engine_params_of(e->engine);
    e->at.kv = (struct kv_layer){.dtype = p->kv_dtype,
                                 .n_sequences = 1,
                                 .n_kv_heads = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .capacity = (p->context + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK};
    e->size = point(e, plan_nowhere);
    const int64_t most = e->most_rows;
    if (e->gpu) {
        struct gpu_stream *stream = engine_context(e->engine)->stream;
        SOL_TRY(gpu_alloc(e->gpu, "draft head", e->size, &e->memory));
        SOL_TRY(gpu_alloc_pinned(e->gpu, sizeof(struct pinned) + rows_bytes(most), &e->pinned));
        SOL_TRY(gpu_event_create(e->gpu, &e->sent));
        SOL_TRY(gpu_zero(stream, e->memory, e->size));
    } else {
        SOL_TRY(pages_alloc(e->size, &e->memory));
    }
    point(e, e->memory);
    struct pinned *host = e->pinned;
    if (host) e->at.guess = &host->guess;
    e->turn = host ? &host->turn : e->at.turn;
    point_rows(&e->step, e->at.rows, host ? host->rows : e->at.rows, most);
    point_rows(&e->one, e->at.turn->row, e->turn->row, 1);
    e->one.batch.n_tokens = e->one.host.n_tokens = 1;
    e->one.batch.output_rows = e->at.first;
    return SOL_OK;
}

static enum sol_status set_constants(struct eagle *e)
{
    enum { MOST = 512 };
    const struct model_config *c = &e->head->layer;
    const int64_t half = c->head_dim / 2;
    float inv_freq[MOST];
    for (int64_t i = 0; i < half; i++)
        inv_freq[i] = (float)pow((double)c->rope_theta, -(double)i / (double)half);
    SOL_TRY(eagle_put(e, e->at.inv_freq, inv_freq, (size_t)half * sizeof *inv_freq));
    return eagle_put(e, e->at.ids, e->head->ids,
                     (size_t)e->head->draft_vocab * sizeof *e->head->ids);
}

/* ---- plans ---- */

static enum sol_status make_plan(const struct eagle *e, const float *features, int64_t rows,
                                 bool carried, struct plan **out)
{
    SOL_TRY(plan_create(&engine_params_of(e->engine)->chooser, out));
    if (rows)
        eagle_build_rows(*out, e, features, rows, carried);
    else
        eagle_build_guess(*out, e);
    return plan_finish(*out);
}

static enum sol_status plan_of_rows(struct eagle *e, const float *features, int64_t rows,
                                    bool carried, struct plan **out)
{
    struct eagle_plan *p = e->plans;
    for (; p < e->plans + EAGLE_PLANS; p++)
        if (p->plan && p->rows == rows && p->carried == carried) {
            *out = p->plan;
            return SOL_OK;
        }
    p = &e->plans[e->next_plan];
    if (p->plan && e->gpu) SOL_TRY(gpu_wait(engine_context(e->engine)->stream)); /* it may run */
    plan_destroy(p->plan);
    p->plan = NULL;
    const enum sol_status status = make_plan(e, features, rows, carried, &p->plan);
    if (status != SOL_OK) {
        plan_destroy(p->plan);
        p->plan = NULL;
        return status;
    }
    p->rows = rows;
    p->carried = carried;
    e->next_plan = (e->next_plan + 1) % EAGLE_PLANS;
    *out = p->plan;
    return SOL_OK;
}

static enum sol_status run(const struct eagle *e, struct plan *plan)
{
    return plan_run(plan, engine_context(e->engine), false, NULL);
}

static enum sol_status send(const struct eagle *e, void *to, const void *from, size_t bytes)
{
    return e->gpu ? gpu_copy_in(engine_context(e->engine)->stream, to, from, bytes) : SOL_OK;
}

static enum sol_status copy_state(const struct eagle *e, float *to, const float *from)
{
    const size_t bytes = (size_t)e->head->layer.hidden * sizeof *to;
    if (to == from) return SOL_OK;
    if (e->gpu) return gpu_copy_on(engine_context(e->engine)->stream, to, from, bytes);
    memcpy(to, from, bytes);
    return SOL_OK;
}

/* ---- following the engine ---- */

static bool has_state(const struct eagle *e, int64_t position)
{
    return position >= e->first && position < e->first + e->n;
}

static float *state_of(const struct eagle *e, int64_t position)
{
    return e->at.states + (1 + position - e->first) * e->head->layer.hidden;
}

/* Rows [first, first + n) of a step: each of their tokens with the state of the position before. */
static enum sol_status take_rows(void *arg, const struct batch *rows, const float *features)
{
    struct eagle *e = arg;
    struct plan *plan;
    const struct batch *b = batch_on_host(rows);
    const int64_t n = b->n_tokens, first = b->position[0];
    const bool carried = has_state(e, first - 1);
    SOL_TRY(plan_of_rows(e, features, n, carried, &plan));
    if (carried) SOL_TRY(copy_state(e, e->at.states, state_of(e, first - 1)));
    e->n = 0;
    if (e->sends) SOL_TRY(gpu_event_wait(e->sent));
    for (int64_t i = carried ? 0 : 1, to = 0; i < n; i++, to++) {
        e->step.host.token[to] = b->token[i];
        e->step.host.position[to] = b->position[i] - 1;
        e->step.host.sequence[to] = 0;
    }
    e->step.batch.n_tokens = e->step.host.n_tokens = n - 1 + carried;
    SOL_TRY(send(e, e->at.rows, e->step.host.token, rows_bytes(e->most_rows)));
    if (e->gpu) SOL_TRY(gpu_event_record(e->sent, engine_context(e->engine)->stream));
    e->sends = e->gpu;
    SOL_TRY(run(e, plan));
    e->first = first;
    e->n = n;
    return SOL_OK;
}

/* ---- guessing ---- */

enum sol_status eagle_guess(struct eagle *e, int64_t at, int32_t before,
                            const struct sample_draw *draw, struct eagle_guess *out)
{
    const int64_t last = engine_position(e->engine, 0) - 1;
    *out = (struct eagle_guess){.token = -1};
    if (!has_state(e, last)) return SOL_OK;
    if (at == 0) SOL_TRY(copy_state(e, e->at.x, state_of(e, last)));
    *e->turn = (struct eagle_turn){.draw = *draw, .row = {before, (int32_t)(last + at), 0}};
    SOL_TRY(send(e, e->at.turn, e->turn, sizeof *e->turn));
    SOL_TRY(run(e, e->guessing));
    if (e->gpu) SOL_TRY(gpu_wait(engine_context(e->engine)->stream));
    *out = *e->at.guess;
    return SOL_OK;
}

enum sol_status eagle_logits(struct eagle *e, float *logits)
{
    struct gpu_stream *stream = engine_context(e->engine)->stream;
    const size_t bytes = (size_t)e->head->draft_vocab * sizeof *logits;
    if (!e->gpu) {
        memcpy(logits, e->at.logits, bytes);
        return SOL_OK;
    }
    SOL_TRY(gpu_copy_out(stream, logits, e->at.logits, bytes));
    return gpu_wait(stream);
}

size_t eagle_memory(const struct eagle *e)
{
    return e->size + e->uploaded_bytes;
}

/* ---- life ---- */

_Static_assert((int)EAGLE_FEATURES <= (int)ENGINE_FEATURES_MAX, "an engine keeps as many");

void eagle_engine_params(struct engine_params *params, const struct eagle_head *head)
{
    params->n_features = EAGLE_FEATURES;
    memcpy(params->features, head->features, sizeof head->features);
}

static enum sol_status create(struct eagle *e)
{
    const struct model *target = engine_weights(e->engine);
    const struct engine_params *p = engine_params_of(e->engine);
    if (p->sequences != 1 || p->n_features != EAGLE_FEATURES)
        return status_set(SOL_E_ARGUMENT, "a draft head beside an engine that was not made for it");
    e->gpu = p->chooser.device.gpu;
    e->most_rows = p->max_batch;
    e->target_hidden = target->config.hidden;
    SOL_TRY(take_memory(e));
    SOL_TRY(set_constants(e));
    SOL_TRY(eagle_place_weights(e));
    e->embed = e->weights.embed.data ? e->weights.embed : target->embed;
    SOL_TRY(make_plan(e, NULL, 0, false, &e->guessing));
    engine_set_features(e->engine, take_rows, e);
    return SOL_OK;
}

enum sol_status eagle_create(struct engine *engine, const struct eagle_head *head,
                             struct eagle **out)
{
    *out = NULL;
    struct eagle *e = calloc(1, sizeof *e);
    if (!e) return status_set(SOL_E_MEMORY, "no memory for a draft head");
    e->engine = engine;
    e->head = head;
    const enum sol_status status = create(e);
    if (status == SOL_OK)
        *out = e;
    else
        eagle_destroy(e);
    return status;
}

void eagle_destroy(struct eagle *e)
{
    if (!e) return;
    engine_set_features(e->engine, NULL, NULL);
    if (e->gpu) gpu_settle(engine_context(e->engine)->stream);
    for (int i = 0; i < EAGLE_PLANS; i++) plan_destroy(e->plans[i].plan);
    plan_destroy(e->guessing);
    if (e->gpu) {
        gpu_event_destroy(e->sent);
        gpu_free(e->gpu, e->uploaded);
        gpu_free(e->gpu, e->memory);
        gpu_free_pinned(e->gpu, e->pinned);
    } else {
        pages_free(e->memory, e->size);
    }
    free(e);
}
