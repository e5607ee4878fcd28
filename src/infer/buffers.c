/* See buffers.h and buffer_table.h. Buffers that are never needed at the same time of a step share
 * memory. */
#include "infer/buffer_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/places.h"
#include "gpu/device.h"
#include "infer/kv_pages.h"

/* clang-format off */
static const struct buffer_line common[] = {
    {"x", F32, {ROWS, HIDDEN}, EMBED, HEAD, .pointer = AT(at.x)},
    {"q", F32, {ROWS, WIDTH}, ATTN_IN, ATTENTION, .pointer = AT(at.q)},
    {"attn", F32, {ROWS, WIDTH}, ATTENTION, ATTN_OUT, .pointer = AT(at.attn)},
    {"features", F32, {FEATURES, ROWS, HIDDEN}, EMBED, RESULT, .pointer = AT(at.features)},
    {"logits of ranks", F32, {OUTPUTS, PARTS}, HEAD, HEAD, .pointer = AT(at.parts)},
    {"logits", F32, {OUTPUTS, LOGITS}, HEAD, RESULT, .pointer = AT(at.logits), .host = AT(host.logits)},
    {"scratch", F32, {SCRATCH}, EMBED, SAMPLE, .pointer = AT(scratch_at)},
    {"step", I32, {STEP_WORDS}, INPUT, RESULT, .pointer = AT(step), .host = AT(host.step)},
    {"frequencies", F32, {FREQUENCIES}, INPUT, RESULT, .pointer = AT(at.inv_freq)},
    {"page table", I32, {SEQUENCES, SEQUENCE_PAGES}, INPUT, RESULT, .pointer = AT(page_table), .host = AT(host.page_table)},
    {"banned", I32, {VOCAB_WORDS}, INPUT, RESULT, .gpu_only = true, .pointer = AT(at.banned), .host = AT(host.banned)},
    {"allowed", I32, {OUTPUTS, VOCAB_WORDS}, SAMPLE, RESULT, .gpu_only = true, .pointer = AT(at.lists), .host = AT(host.lists)},
    {"keys", KV, {KV_POSITIONS, KV_HEADS, HEAD_DIM}, INPUT, RESULT, .per_layer = true, .pointer = AT_LAYER(k)},
    {"values", KV, {KV_POSITIONS, KV_HEADS, HEAD_DIM}, INPUT, RESULT, .per_layer = true, .pointer = AT_LAYER(v)},
    {"snapshot keys", KV, {KEPT_POSITIONS, KV_HEADS, HEAD_DIM}, INPUT, RESULT, .kept = true, .pointer = AT_LAYER(k)},
    {"snapshot values", KV, {KEPT_POSITIONS, KV_HEADS, HEAD_DIM}, INPUT, RESULT, .kept = true, .pointer = AT_LAYER(v)},
};
/* clang-format on */

enum { COMMON = sizeof common / sizeof *common, LINES_MAX = COMMON + 16, ALIGN = 256 };

/* The table: what all architectures have, then what this one has. NULL behind the last line. */
static const struct buffer_line *line_at(const struct buffers *b, int i)
{
    const struct forward *forward = forward_of(b->config);
    if (i < COMMON) return &common[i];
    assert(COMMON + forward->n_lines <= LINES_MAX);
    return i < COMMON + forward->n_lines ? &forward->lines[i - COMMON] : NULL;
}

/* ---- sizes ---- */

/* Ranks would have to agree on it; those who run ops again want to find what they read; features
 * are looked at behind the step, with its tokens; and of `previous` the host has what is drawn. */
bool buffers_go_ahead(const struct model_config *c, const struct engine_params *p)
{
    return p->chooser.device.gpu && !p->team && !p->keep && !p->n_features &&
           !forward_of(c)->previous;
}

/* A sliding layer keeps a ring: what the window can see, plus the rows that one step adds. The
 * others share the pages. */
static struct kv_layer describe_layer(const struct buffers *b, int64_t layer)
{
    const struct model_config *c = b->config;
    const struct engine_params *p = b->params;
    struct kv_layer kv = {.dtype = p->kv_dtype,
                          .n_sequences = p->sequences,
                          .n_kv_heads = c->n_kv_heads,
                          .head_dim = c->head_dim,
                          .capacity = b->sequence_pages * KV_PAGE,
                          .n_pages = b->n_pages};
    /* A step of one row, and that of one row begun ahead of it. */
    const int64_t rows = p->max_run < 2 && buffers_go_ahead(c, p) ? 2 : p->max_run;
    int64_t window = model_layer_window(c, layer), ring = window - 1 + rows;
    if (!window) return kv;
    kv.capacity = ((ring < p->context ? ring : p->context) + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    kv.n_pages = 0;
    return kv;
}

/* Whole blocks: the window may begin and end within one. */
static struct kv_layer describe_kept(const struct buffers *b, int64_t layer)
{
    struct kv_layer kv = b->at.kv[layer];
    int64_t seen = model_layer_window(b->config, layer) - 1 + KV_BLOCK - 1;
    seen = (seen + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    if (seen < kv.capacity) kv.capacity = seen;
    if (kv.n_pages) kv.capacity = 0;
    kv.n_pages = 0;
    kv.n_sequences = b->params->snapshots;
    return kv;
}

static int64_t extent_of(const struct buffers *b, enum extent extent, int64_t layer)
{
    const struct model_config *c = b->config;
    const struct engine_params *p = b->params;
    int64_t draw = p->chooser.device.gpu ? sizeof(struct sample_draw) / sizeof(int32_t) : 0;
    int64_t row = c->n_kv_heads * c->head_dim;
    /* clang-format off */
    switch (extent) {
    case ROWS: return p->max_batch;
    case OUTPUTS: return p->max_outputs;
    case SLOTS: return p->max_batch * c->top_k;
    case HIDDEN: return c->hidden;
    case WIDTH: return c->n_heads * c->head_dim;
    case FEATURES: return p->n_features;
    case LOGITS: return forward_is_shared(c) ? c->ranks * c->head_rows : forward_puts_out(c) ? c->vocab : 0;
    case PART: return forward_is_shared(c) ? c->hidden : 0;
    case PARTS: return forward_is_shared(c) && p->max_outputs > 1 ? c->ranks * c->head_rows : 0;
    case GROUP_ENDS: return c->n_experts + 1;
    case OWN_SLOTS: return forward_deals_experts(c) ? p->max_batch * c->top_k : 0;
    case OWN_ENDS: return forward_deals_experts(c) ? c->own_experts + 1 : 0;
    case STEP_WORDS: return 5 * p->max_batch + draw * p->max_outputs;
    case INTERMEDIATE: return c->intermediate;
    case FREQUENCIES: return c->head_dim / 2;
    case SEQUENCES: return p->sequences;
    case SEQUENCE_PAGES: return b->sequence_pages;
    case VOCAB_WORDS: return (c->vocab + 31) / 32;
    case KV_POSITIONS: return kv_elements(&b->at.kv[layer]) / row;
    case KEPT_POSITIONS: return kv_elements(&b->kept[layer]) / row;
    case SCRATCH: return (int64_t)(b->scratch / sizeof(float));
    case KV_HEADS: return c->n_kv_heads;
    case HEAD_DIM: return c->head_dim;
    default: return 1;
    }
    /* clang-format on */
}

static size_t line_bytes(const struct buffers *b, const struct buffer_line *line, int64_t layer)
{
    bool on_gpu = b->params->chooser.device.gpu;
    if (line->gpu_only && !on_gpu) return 0;
    size_t bytes =
        line->type == KV ? dtype_info(b->params->kv_dtype)->block_bytes : sizeof(int32_t);
    for (int i = 0; i < 3; i++) bytes *= (size_t)extent_of(b, line->shape[i], layer);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- places ---- */

static bool of_layers(const struct buffer_line *line)
{
    return line->per_layer || line->kept;
}

static int64_t line_count(const struct buffers *b, const struct buffer_line *line)
{
    return of_layers(line) ? b->config->n_layers : 1;
}

static void point(void *in, size_t offset, uintptr_t to)
{
    memcpy((char *)in + offset, &to, sizeof to);
}

static bool lasts(const struct buffers *b, const struct buffer_line *line)
{
    return b->params->keep || (line->first == INPUT && line->last == RESULT);
}

static void point_routing(struct forward_buffers *at, const struct model_config *c)
{
    if (!forward_deals_experts(c)) at->own = at->routing;
    at->own.weight = at->routing.weight;
    at->own.some_of = forward_deals_experts(c) ? c->n_experts : 0;
}

/* Layers with pages, or those without: one behind the other, so that one copy passes what
 * snapshots have of many (engine_snapshot.c). Returns where they end. */
static size_t place_layers(struct buffers *b, const struct buffer_line *line, uintptr_t base,
                           size_t at, bool paged)
{
    for (int64_t i = 0; i < b->config->n_layers; i++) {
        if ((b->at.kv[i].n_pages > 0) != paged) continue;
        point(line->kept ? &b->kept[i] : &b->at.kv[i], line->pointer, base + at);
        at += line_bytes(b, line, i);
    }
    return at;
}

void buffers_place(struct buffers *b, void *memory, void *pinned)
{
    struct place places[LINES_MAX];
    uintptr_t base = (uintptr_t)memory;
    const struct buffer_line *line;
    size_t top = 0, host = 0;
    int n = 0;
    b->cache = 0;
    for (int k = 0; (line = line_at(b, k)); k++) {
        if (lasts(b, line)) continue;
        size_t bytes = line_bytes(b, line, 0);
        size_t at = places_add(places, n++, (int)line->first, (int)line->last, bytes);
        point(b, line->pointer, base + at);
        if (at + bytes > top) top = at + bytes;
    }
    for (int k = 0; (line = line_at(b, k)); k++) {
        if (!lasts(b, line)) continue;
        if (of_layers(line)) {
            const size_t before = top;
            top = place_layers(b, line, base, place_layers(b, line, base, top, false), true);
            b->cache += top - before;
        } else {
            point(b, line->pointer, base + top);
            top += line_bytes(b, line, 0);
        }
    }
    for (int k = 0; (line = line_at(b, k)); k++) {
        if (!line->host) continue;
        uintptr_t device;
        memcpy(&device, (char *)b + line->pointer, sizeof device);
        point(b, line->host, b->params->chooser.device.gpu ? (uintptr_t)pinned + host : device);
        host += line_bytes(b, line, 0);
    }
    for (int64_t n_layer = 0; n_layer < b->config->n_layers; n_layer++)
        if (b->at.kv[n_layer].n_pages) b->at.kv[n_layer].pages = b->page_table;
    point_routing(&b->at, b->config);
    b->size = b->params->chooser.device.gpu ? gpu_memory_size(top) : pages_size(top);
    b->pinned = host;
}

enum sol_status buffers_describe(const struct model_config *config,
                                 const struct engine_params *params, struct buffers *out)
{
    int64_t row = kv_pages_for(params->context), usual = params->sequences * row;
    int64_t wanted = kv_pages_for(params->cache_positions);
    int64_t most = usual + params->snapshots * row; /* more could never be filled */
    *out = (struct buffers){.config = config, .params = params, .sequence_pages = row};
    out->n_pages = !wanted ? usual : wanted < most ? wanted : most;
    out->at.kv = calloc((size_t)config->n_layers * 2, sizeof *out->at.kv);
    if (!out->at.kv) return status_set(SOL_E_MEMORY, "no memory for an engine's tables");
    out->kept = out->at.kv + config->n_layers;
    for (int64_t n = 0; n < config->n_layers; n++) {
        out->at.kv[n] = describe_layer(out, n);
        out->kept[n] = describe_kept(out, n);
    }
    buffers_place(out, plan_nowhere, plan_nowhere);
    return SOL_OK;
}

size_t buffers_step_bytes(const struct buffers *b)
{
    const size_t bytes = (size_t)extent_of(b, STEP_WORDS, 0) * sizeof *b->step;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Draws end where the rows begin, so that all of it is in one piece. */
struct step_parts buffers_step_parts(const struct buffers *b, int32_t *step, int64_t rows,
                                     int64_t outputs)
{
    const int64_t draws = b->params->chooser.device.gpu ? b->params->max_outputs : 0;
    struct sample_draw *first = (struct sample_draw *)(void *)step;
    int32_t *at = (int32_t *)(void *)(first + draws);
    return (struct step_parts){.draws = draws ? first + draws - outputs : NULL,
                               .position = at,
                               .sequence = at + rows,
                               .output_rows = at + 2 * rows,
                               .token = at + 3 * rows,
                               .previous = at + 4 * rows};
}

/* Costs want the differences alone. */
void buffers_set_offsets(struct buffers *b, const int32_t *offsets)
{
    b->at.routing.host_offsets = offsets;
    b->at.own.host_offsets = offsets + b->config->first_expert;
}

void buffers_free(struct buffers *b)
{
    free(b->at.kv);
    b->at.kv = NULL;
}

struct engine_parts buffers_parts(const struct buffers *b)
{
    bool own_stream = b->params->chooser.device.gpu && !b->params->stream;
    size_t buffers = b->size - b->cache - b->scratch + (own_stream ? gpu_stream_bytes() : 0);
    return (struct engine_parts){b->cache, buffers, b->scratch};
}

void buffers_report(const struct buffers *b,
                    void (*each)(void *arg, const char *name, size_t bytes), void *arg)
{
    const struct buffer_line *line;
    for (int k = 0; (line = line_at(b, k)); k++) {
        size_t bytes = 0;
        for (int64_t i = 0; i < line_count(b, line); i++) bytes += line_bytes(b, line, i);
        each(arg, line->name, bytes);
    }
}
