#include "ops/cases.h"

#include <math.h>
#include <string.h>

#include "ops/ops.h"

int64_t case_size(struct case_maker *c, int64_t lo, int64_t hi)
{
    static const int64_t awkward[] = {1, 2, 3, 5, 7, 13, 15, 17, 31, 33, 61, 63, 65, 97, 127, 129};
    if (c->kind != CASE_TAIL) return rng_range(c->rng, lo, hi);
    int64_t pick = awkward[rng_range(c->rng, 0, sizeof awkward / sizeof *awkward - 1)];
    return pick < lo ? lo : pick > hi ? hi : pick;
}

int64_t case_draw(struct case_maker *c, const struct case_range *r)
{
    if (r->step) return r->step * rng_range(c->rng, r->lo, r->hi);
    return r->hi ? case_size(c, r->lo, r->hi) : 0;
}

const void *case_of_table(struct case_maker *c, const void *shapes, size_t count, size_t stride,
                          struct op_problem *out)
{
    int index = c->index;
    for (size_t i = 0; i < count; i++) {
        const struct case_shape *s = (const void *)((const char *)shapes + i * stride);
        if (index >= s->count) {
            index -= s->count;
            continue;
        }
        out->rows = case_draw(c, &s->rows);
        out->dtype = s->dtype < 0 ? case_weight_dtype(c) : (enum dtype)s->dtype;
        out->n = case_draw(c, &s->n);
        int64_t block = dtype_info(out->dtype)->block;
        out->k = (case_draw(c, &s->k) + block - 1) / block * block;
        out->groups = case_draw(c, &s->groups);
        out->top_k = case_draw(c, &s->top_k);
        out->head_dim = case_draw(c, &s->head_dim);
        return s;
    }
    return NULL;
}

int64_t case_sequences(const struct case_maker *c, const struct op_problem *problem)
{
    if (c->kind == CASE_TIMED && c->sequences > 1) return c->sequences;
    return problem->sequences > 0 ? problem->sequences : 1;
}

bool case_make(const struct op *op, struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    if (op->make_case) return op->make_case(c, args);
    if (!case_of_table(c, op->cases, op->n_cases, sizeof *op->cases, &p)) return false;
    op->make_problem(c, &p, args);
    return true;
}

float *case_vector(struct case_maker *c, int64_t n, float scale)
{
    /* Kernels may ask for activations as an engine's buffers lie, and must not ask without saying
     * so. */
    size_t align = c->kind != CASE_TIMED && c->index % 4 == 1 ? sizeof(float) : 64;
    float *x = arena_alloc(c->arena, (size_t)n * sizeof(float), align);
    if (x) rng_normals(c->rng, scale, x, n);
    return x;
}

struct matrix case_output(struct case_maker *c, int64_t rows, int64_t cols)
{
    const size_t align = c->kind == CASE_TIMED ? 64 : sizeof(float); /* as in case_vector */
    return matrix_f32(arena_alloc(c->arena, (size_t)(rows * cols) * sizeof(float), align), rows,
                      cols);
}

static void spoil_rows(float *x, int64_t rows, int64_t cols, struct rng *rng)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < 3 && 2 * i + 1 < rows; i++)
        x[(2 * i + 1) * cols + rng_range(rng, 0, cols - 1)] = bad[i];
}

struct matrix case_rows(struct case_maker *c, int64_t rows, int64_t cols, float scale)
{
    float *x = case_vector(c, rows * cols, scale);
    const struct matrix out = matrix_f32(x, rows, cols);
    if (!x) return out;
    if (c->kind == CASE_NONFINITE) spoil_rows(x, rows, cols, c->rng);
    if (c->kind != CASE_EXTREME) return out;
    float magnitude = c->index % 2 ? 1e4f : 1e-4f;
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t roll = rng_range(c->rng, 0, 99);
        x[i] *= roll == 0 ? 0.0f : roll == 1 ? 30.0f * magnitude : magnitude;
    }
    if (rows > 2) memset(x + cols, 0, sizeof(float) * (size_t)cols);
    return out;
}

enum dtype case_weight_dtype(const struct case_maker *c)
{
    enum dtype types[DTYPE_COUNT] = {DTYPE_F32};
    int count = 0;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtype_info((enum dtype)i)->is_weights && !dtype_info((enum dtype)i)->factors)
            types[count++] = (enum dtype)i;
    return types[c->index % count];
}

enum { REPEATED = 61 }; /* rows: no multiple of a tile's */

struct tensor case_tensor(struct case_maker *c, enum dtype dtype, int64_t groups, int64_t rows,
                          int64_t cols, float scale)
{
    struct tensor t = {.dtype = dtype, .groups = groups, .rows = rows, .cols = cols};
    size_t row_bytes = dtype_row_bytes(dtype, cols);
    char *data = arena_alloc(c->arena, row_bytes * (size_t)(groups * rows), 64);
    float *row = ARENA_NEW(c->arena, float, cols);
    if (!data || !row) return t;
    for (int64_t r = 0; r < groups * rows; r++) {
        if (c->kind == CASE_TIMED && r >= REPEATED) {
            memcpy(data + (size_t)r * row_bytes, data + (size_t)(r % REPEATED) * row_bytes,
                   row_bytes);
            continue;
        }
        rng_normals(c->rng, scale, row, cols);
        if (c->kind == CASE_EXTREME && r % 7 == 3) memset(row, 0, sizeof(float) * (size_t)cols);
        dtype_info(dtype)->encode(row, data + (size_t)r * row_bytes, cols);
        /* The first block's scale byte: 2^-127 is a subnormal, and easily forgotten. */
        if (c->kind == CASE_EXTREME && dtype == DTYPE_MXFP4 && r % 7 == 1)
            data[(size_t)r * row_bytes] = 0;
    }
    t.data = data;
    if (dtype_info(dtype)->factors) t.factors = case_vector(c, groups, 1.0f);
    return t;
}

void case_large_block(const struct case_maker *c, const struct tensor *t)
{
    if (c->kind != CASE_EXTREME || t->dtype != DTYPE_MXFP4) return;
    struct block_mxfp4 *blocks = (struct block_mxfp4 *)(uintptr_t)t->data;
    blocks[t->rows / 2 * (t->cols / 32)].scale = 130;
}

/* Sequences of the same length, one behind the other. */
static void even_rows(struct case_maker *c, struct batch *b, int64_t vocab)
{
    int64_t m = b->n_tokens, n = c->sequences;
    b->n_outputs = m;
    for (int64_t i = 0; i < m; i++) {
        int64_t s = i * n / m, first = (s * m + n - 1) / n;
        b->token[i] = (int32_t)rng_range(c->rng, 0, vocab - 1);
        b->sequence[i] = (int32_t)s;
        b->position[i] = (int32_t)(c->depth + i - first);
        b->output_rows[i] = (int32_t)i;
    }
}

/* Who has no row before in the batch has any token before, but where the sequence begins. */
static void set_previous(struct batch *b, int64_t vocab)
{
    for (int64_t i = 0; i < b->n_tokens; i++) {
        int64_t j = i - 1;
        while (j >= 0 && b->sequence[j] != b->sequence[i]) j--;
        b->previous[i] = j >= 0           ? b->token[j]
                         : b->position[i] ? (int32_t)((b->token[i] + 1) % vocab)
                                          : -1;
    }
}

struct batch *case_batch(struct case_maker *c, int64_t m, int64_t n_sequences, int64_t max_start,
                         int64_t vocab)
{
    struct batch *b = ARENA_NEW(c->arena, struct batch, 1);
    if (!b) return NULL;
    b->n_tokens = m;
    b->token = ARENA_NEW(c->arena, int32_t, m);
    b->position = ARENA_NEW(c->arena, int32_t, m);
    b->sequence = ARENA_NEW(c->arena, int32_t, m);
    b->output_rows = ARENA_NEW(c->arena, int32_t, m);
    b->previous = ARENA_NEW(c->arena, int32_t, m);
    int32_t *next = ARENA_NEW(c->arena, int32_t, n_sequences);
    if (!b->token || !b->position || !b->sequence || !b->output_rows || !b->previous || !next)
        return NULL;
    c->batch = b;
    if (c->kind == CASE_TIMED) {
        even_rows(c, b, vocab);
        set_previous(b, vocab);
        return b;
    }
    for (int64_t s = 0; s < n_sequences; s++) next[s] = (int32_t)rng_range(c->rng, 0, max_start);
    int32_t sequence = 0;
    const bool crowd = n_sequences >= CASE_CROWD;
    for (int64_t i = 0; i < m; i++) {
        const int switches = !crowd ? 1 : i < m * 3 / 4 ? 9 : 0; /* of ten */
        /* Runs of one sequence with switches between, as a scheduler mixes prefill and decode. */
        if (rng_range(c->rng, 0, 9) < switches)
            sequence = (int32_t)rng_range(c->rng, 0, n_sequences - 1);
        b->token[i] = (int32_t)rng_range(c->rng, 0, vocab - 1);
        b->sequence[i] = sequence;
        b->position[i] = next[sequence]++;
        if (rng_range(c->rng, 0, 1)) b->output_rows[b->n_outputs++] = (int32_t)i;
    }
    if (b->n_outputs == 0) b->output_rows[b->n_outputs++] = (int32_t)(m - 1);
    set_previous(b, vocab);
    return b;
}

static void *random_cache(struct case_maker *c, enum dtype dtype, int64_t count)
{
    int64_t drawn = c->kind == CASE_TIMED && count > REPEATED * 64 ? REPEATED * 64 : count;
    size_t bytes = dtype_row_bytes(dtype, count), piece = dtype_row_bytes(dtype, drawn);
    char *data = arena_alloc(c->arena, bytes, 64);
    float *values = case_vector(c, drawn, 1.0f);
    if (data && values) dtype_info(dtype)->encode(values, data, drawn);
    for (size_t at = piece; data && at < bytes; at += piece)
        memcpy(data + at, data, bytes - at < piece ? bytes - at : piece);
    return data;
}

/* Pages in an order in which none is where it would be without a table, two of them nobody's: one
 * cycle through all. Entries behind a sequence's end are pages too, those of others. */
static const int32_t *shuffled_pages(struct case_maker *c, int64_t n_pages)
{
    int32_t *pages = ARENA_NEW(c->arena, int32_t, n_pages);
    if (!pages) return NULL;
    for (int64_t i = 0; i < n_pages; i++) pages[i] = (int32_t)i;
    for (int64_t i = n_pages - 1; i > 0; i--) {
        int64_t other = rng_range(c->rng, 0, i - 1);
        int32_t page = pages[i];
        pages[i] = pages[other];
        pages[other] = page;
    }
    return pages;
}

enum dtype case_kv_dtype(int index)
{
    static const enum dtype types[] = {DTYPE_F16, DTYPE_F32, DTYPE_BF16};
    return types[index % 3];
}

struct kv_layer case_kv(struct case_maker *c, const struct batch *batch, enum dtype dtype,
                        int64_t window, int64_t n_kv_heads, int64_t head_dim)
{
    struct kv_layer kv = {.dtype = dtype, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
    if (!batch) return kv;
    int64_t longest = 1;
    for (int64_t i = 0; i < batch->n_tokens; i++) {
        if (batch->position[i] >= longest) longest = batch->position[i] + 1;
        if (batch->sequence[i] >= kv.n_sequences) kv.n_sequences = batch->sequence[i] + 1;
    }
    int64_t needed = window ? window - 1 + batch->n_tokens : longest;
    int64_t unit = window ? KV_BLOCK : KV_PAGE;
    kv.capacity = (needed + unit - 1) / unit * unit;
    if (!window) {
        kv.n_pages = kv.n_sequences * (kv.capacity / KV_PAGE) + 2;
        kv.pages = shuffled_pages(c, kv.n_pages);
    }
    kv.k = random_cache(c, kv.dtype, kv_elements(&kv));
    kv.v = random_cache(c, kv.dtype, kv_elements(&kv));
    return kv;
}

struct routing case_routing_buffers(struct case_maker *c, int64_t m, int64_t n_experts,
                                    int64_t top_k)
{
    return (struct routing){
        .weight = ARENA_NEW(c->arena, float, m *top_k),
        .expert = ARENA_NEW(c->arena, int32_t, m * top_k),
        .group_offsets = ARENA_NEW(c->arena, int32_t, n_experts + 1),
        .token_of_row = ARENA_NEW(c->arena, int32_t, m * top_k),
        .row_of_slot = ARENA_NEW(c->arena, int32_t, m * top_k),
    };
}

struct routing case_routing(struct case_maker *c, int64_t m, int64_t n_experts, int64_t top_k)
{
    struct routing routing = case_routing_buffers(c, m, n_experts, top_k);
    bool timed = c->kind == CASE_TIMED;
    float *logits = case_vector(c, m * n_experts, timed ? 1.0f : 2.0f);
    if (!routing.row_of_slot || !logits) return routing;
    /* Every third: nearly all rows choose the same experts. */
    for (int64_t i = 0; !timed && c->index % 3 == 2 && i < m; i++)
        for (int64_t e = 0; e < top_k; e++) logits[i * n_experts + e] += 8;
    for (int64_t i = 0; timed && i < m * n_experts; i++)
        logits[i] -= (float)(c->skew * (double)(i % n_experts) / (double)n_experts);
    op_route.reference(NULL, &(struct route_args){.m = m,
                                                  .n_experts = n_experts,
                                                  .top_k = top_k,
                                                  .logits = matrix_f32(logits, m, n_experts),
                                                  .routing = routing});
    c->routing = routing;
    c->n_experts = n_experts;
    return routing;
}

/* For a third of the cases of a rank that has `n_experts` of more. */
struct routing case_own_routing(struct case_maker *c, int64_t m, int64_t n_experts, int64_t top_k)
{
    if (c->kind == CASE_TIMED || c->index % 3 != 1) return case_routing(c, m, n_experts, top_k);
    const int64_t more = rng_range(c->rng, 1, n_experts + 2), first = rng_range(c->rng, 0, more);
    const struct routing all = case_routing(c, m, n_experts + more, top_k);
    struct routing own = case_routing_buffers(c, m, n_experts, top_k);
    if (!own.row_of_slot || !all.row_of_slot) return own;
    own.weight = all.weight;
    own.some_of = n_experts + more;
    op_own_experts.reference(NULL, &(struct own_experts_args){.m = m,
                                                              .n_experts = n_experts + more,
                                                              .top_k = top_k,
                                                              .first = first,
                                                              .count = n_experts,
                                                              .all = all,
                                                              .own = own});
    c->routing = own;
    c->n_experts = n_experts;
    return own;
}

int case_routing_outputs(size_t at, int64_t m, int64_t n_experts, int64_t top_k,
                         struct op_output out[OP_OUTPUTS_MAX])
{
    const size_t slots = (size_t)(m * top_k) * 4, ends = (size_t)(n_experts + 1) * 4;
    out[0] =
        (struct op_output){at + offsetof(struct routing, weight), slots, true, top_k, DTYPE_F32};
    out[1] = (struct op_output){at + offsetof(struct routing, expert), slots, false, 0, DTYPE_F32};
    out[2] =
        (struct op_output){at + offsetof(struct routing, group_offsets), ends, false, 0, DTYPE_F32};
    out[3] =
        (struct op_output){at + offsetof(struct routing, token_of_row), slots, false, 0, DTYPE_F32};
    out[4] =
        (struct op_output){at + offsetof(struct routing, row_of_slot), slots, false, 0, DTYPE_F32};
    return 5;
}
