/* attention for any instruction set with float vectors. The including file sets LANES, NEEDS,
 * NAMED(op), TILE_ROWS and, where it is not 2, TILE_VECTORS (rows and vectors of columns of the
 * small matrix kernel: as many as its TILE_ROWS * TILE_VECTORS sums, TILE_VECTORS operands and a
 * broadcast leave in registers), and defines vector_load_f16 and vector_any (see vector.h).
 *
 * A job is a block of up to QUERY_ROWS consecutive rows of one sequence times one key/value head;
 * with grouped-query attention that makes rows * group query vectors that share every key they
 * load. For each block of KV_BLOCK positions the job decodes keys and values to float32 once,
 * multiplies (both products are the same small matrix kernel, since keys are stored transposed),
 * and folds the scores into a running softmax. Only blocks that some row sees are visited, and only
 * edge blocks are masked.
 *
 * A long context is cut into pieces, at multiples of PIECE positions: each has a softmax of its
 * own, and they are joined from the first to the last. Where the cuts are depends on a row's
 * position and the window alone, and all rows of a job have the same, so a row has the same bits
 * whoever does its pieces. That is one worker, one after the other, where jobs are many; where rows
 * are few, each piece is an item of its own, whose sums rest in a *slot* until all are there. */
#include <math.h>
#include <stdio.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

#ifndef TILE_VECTORS
#define TILE_VECTORS 2
#endif

/* Later pieces begin with no maximum, and would find theirs in steps, each of which shrinks all
 * sums. So far above the first one that they see it is rarely exceeded; weights are floats, and as
 * exact when all are smaller. Xeon (Sapphire Rapids), one core, what pieces cost a prompt of 64
 * rows at 16384: 4.5 % without, 0.6 % with. */
#define ABOVE 8.0f

enum {
    QUERY_ROWS = 16, /* 128 query vectors at 8 per key head: queries, scores and sums stay in L2 */
    /* Positions. 64 blocks, beside which a beginning and a join are little: Xeon (Sapphire Rapids),
     * one core, depth 32768: 1 %, with half of it 2 %. */
    PIECE = 2048,
    APART_ROWS = 8, /* so many rows have slots for all pieces of the longest context */
};

struct attention_job {
    int32_t row, rows;   /* consecutive rows of one sequence at consecutive positions */
    int32_t first, last; /* pieces that they see */
    int32_t slot;        /* of the first piece; -1: the pieces are done by one worker */
    uint32_t pad;
};

/* What a worker takes at once, for one key head. */
struct attention_item {
    int32_t job, piece; /* -1: all of them */
};

/* The running softmax of a job's queries. */
struct attention_sums {
    float *out;   /* [queries][head_dim] */
    float *total; /* [queries][LANES] denominator, lane by lane until the end */
    float *top;   /* [queries] maximum */
};

/* Per worker scratch, in floats. */
struct attention_scratch {
    float *q;                         /* [queries][head_dim] times 1/sqrt(head_dim) */
    float *scores;                    /* [queries][KV_BLOCK], then the probabilities */
    float *k;                         /* [head_dim][KV_BLOCK] */
    float *v;                         /* [KV_BLOCK][head_dim] */
    struct attention_sums sums, next; /* of all pieces so far, of the next one */
};

struct attention_state {
    const struct attention_args *args;
    float *scratch;
    size_t scratch_floats; /* per worker */
    float *slots;          /* a slot: the sums of a row and a piece, all heads */
    struct attention_job *jobs;
    struct attention_item *items;
    int64_t n_jobs, n_items, n_slots;
};

static int64_t group_size(const struct attention_args *a)
{
    return a->n_heads / a->kv.n_kv_heads;
}

/* Of sums, a query: whole lines, as two workers write to neighbours. */
static size_t sum_floats(const struct attention_args *a)
{
    return ((size_t)a->kv.head_dim + LANES + 1 + 15) / 16 * 16;
}

static struct attention_sums sums_at(const struct attention_args *a, float *at, size_t queries)
{
    struct attention_sums sums = {.out = at};
    sums.total = sums.out + queries * (size_t)a->kv.head_dim;
    sums.top = sums.total + queries * LANES;
    return sums;
}

static size_t scratch_floats(const struct attention_args *a)
{
    size_t queries = (size_t)(QUERY_ROWS * group_size(a)), dim = (size_t)a->kv.head_dim;
    size_t count = queries * (dim + KV_BLOCK + 2 * sum_floats(a)) + 2 * dim * KV_BLOCK;
    return (count + 15) / 16 * 16;
}

static struct attention_scratch scratch_of(const struct attention_state *s, int worker)
{
    size_t queries = (size_t)(QUERY_ROWS * group_size(s->args)), dim = (size_t)s->args->kv.head_dim;
    struct attention_scratch t;
    t.k = s->scratch + (size_t)worker * s->scratch_floats;
    t.v = t.k + dim * KV_BLOCK;
    t.q = t.v + dim * KV_BLOCK;
    t.scores = t.q + queries * dim;
    t.sums = sums_at(s->args, t.scores + queries * KV_BLOCK, queries);
    t.next = sums_at(s->args, t.sums.out + queries * sum_floats(s->args), queries);
    return t;
}

/* ---- the matrix kernel: c[rows][cols] (+)= a[rows][depth] * b[depth][cols] ---- */

static inline __attribute__((always_inline)) void tile(const float *a, int64_t lda, const float *b,
                                                       int64_t ldb, float *c, int64_t ldc,
                                                       int64_t depth, bool add, const int rows,
                                                       const int vectors)
{
    vfloat sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = add ? vector_load(c + r * ldc + v * LANES) : vector_set(0);
    for (int64_t d = 0; d < depth; d++) {
        vfloat right[TILE_VECTORS];
        for (int v = 0; v < vectors; v++) right[v] = vector_load(b + d * ldb + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] += right[v] * a[r * lda + d];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) vector_store(c + r * ldc + v * LANES, sum[r][v]);
}

static void multiply(const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                     int64_t ldc, int64_t rows, int64_t depth, int64_t cols, bool add)
{
    for (int64_t col = 0; col < cols;) {
        bool wide = col + TILE_VECTORS * LANES <= cols;
        int64_t r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
            if (wide)
                tile(a + r * lda, lda, b + col, ldb, c + r * ldc + col, ldc, depth, add, TILE_ROWS,
                     TILE_VECTORS);
            else
                tile(a + r * lda, lda, b + col, ldb, c + r * ldc + col, ldc, depth, add, TILE_ROWS,
                     1);
        }
        for (; r < rows; r++) {
            if (wide)
                tile(a + r * lda, lda, b + col, ldb, c + r * ldc + col, ldc, depth, add, 1,
                     TILE_VECTORS);
            else
                tile(a + r * lda, lda, b + col, ldb, c + r * ldc + col, ldc, depth, add, 1, 1);
        }
        col += wide ? TILE_VECTORS * LANES : LANES;
    }
}

/* ---- keys and values ---- */

static void decode_span(enum dtype dtype, const void *data, int64_t index, float *to, int64_t n)
{
    const uint16_t *halves = (const uint16_t *)data + index;
    for (int64_t i = 0; i < n; i += LANES) {
        if (dtype == DTYPE_F16)
            vector_store(to + i, vector_load_f16(halves + i));
        else if (dtype == DTYPE_BF16)
            vector_store(to + i, vector_load_bf16(halves + i));
        else
            vector_store(to + i, vector_load((const float *)data + index + i));
    }
}

/* Positions block .. block + KV_BLOCK - 1. Values of positions that no row sees are zeroed: their
 * weights are zero, but what a slot was left with (a NaN, say) must not matter. */
static void load_block(const struct attention_args *a, int32_t sequence, int64_t head,
                       int64_t block, int64_t first, int64_t last, struct attention_scratch *t)
{
    const struct kv_layer *kv = &a->kv;
    int64_t dim = kv->head_dim;
    decode_span(kv->dtype, kv->k, kv_k_index(kv, sequence, head, block), t->k, dim * KV_BLOCK);
    decode_span(kv->dtype, kv->v, kv_v_index(kv, sequence, head, block), t->v, dim * KV_BLOCK);
    for (int64_t j = 0; j < KV_BLOCK; j++)
        if (block + j < first || block + j > last)
            memset(t->v + j * dim, 0, sizeof(float) * (size_t)dim);
}

/* ---- softmax ---- */

static int64_t first_key(const struct attention_args *a, int64_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

/* Scores outside low..high (indices in the block) become -infinity: exactly zero weight below. */
static void mask_scores(float *scores, int64_t low, int64_t high)
{
    for (int64_t j = 0; j < KV_BLOCK; j++)
        if (j < low || j > high) scores[j] = -INFINITY;
}

/* A higher score than any before: what was summed so far shrinks. Rare once the maximum has
 * settled. */
static void raise_top(const float *scores, float above, float *top, float *total, float *out,
                      int64_t dim)
{
    float before = *top, most[LANES];
    vfloat all = vector_set(before);
    for (int j = 0; j < KV_BLOCK; j += LANES) {
        vfloat score = vector_load(scores + j);
        all = vector_select(score > all, score, all);
    }
    vector_store(most, all);
    for (int j = 0; j < LANES; j++) *top = most[j] > *top ? most[j] : *top;
    *top += above;
    vfloat keep = vector_exp(vector_set(before - *top));
    vector_store(total, vector_load(total) * keep);
    for (int64_t d = 0; d < dim; d += LANES) vector_store(out + d, vector_load(out + d) * keep);
}

/* Folds one block of scores of one query into its running softmax and turns them into weights. */
static void fold(float *scores, float above, float *top, float *total, float *out, int64_t dim)
{
    vint higher = {0};
    for (int j = 0; j < KV_BLOCK; j += LANES) higher |= vector_load(scores + j) > vector_set(*top);
    if (vector_any(higher)) raise_top(scores, above, top, total, out, dim);
    vfloat sum = vector_load(total);
    for (int j = 0; j < KV_BLOCK; j += LANES) {
        vfloat score = vector_load(scores + j), weight = vector_exp(score - *top);
        weight = vector_select(score == vector_set(-INFINITY), vector_set(0), weight);
        vector_store(scores + j, weight);
        sum += weight;
    }
    vector_store(total, sum);
}

/* acc = acc and then part. */
static void join(const struct attention_args *a, int64_t queries, const struct attention_sums *acc,
                 const struct attention_sums *part)
{
    const int64_t dim = a->kv.head_dim;
    for (int64_t query = 0; query < queries; query++) {
        const float before = acc->top[query], other = part->top[query];
        const float top = before > other ? before : other;
        const vfloat keep = vector_exp(vector_set(before - top));
        const vfloat add = vector_exp(vector_set(other - top));
        float *total = acc->total + query * LANES, *out = acc->out + query * dim;
        const float *more = part->out + query * dim;
        acc->top[query] = top;
        vector_store(total,
                     vector_load(total) * keep + vector_load(part->total + query * LANES) * add);
        for (int64_t d = 0; d < dim; d += LANES)
            vector_store(out + d, vector_load(out + d) * keep + vector_load(more + d) * add);
    }
}

/* ---- a job ---- */

static void start_queries(const struct attention_args *a, const struct attention_job *job,
                          int64_t head, struct attention_scratch *t)
{
    int64_t group = group_size(a), dim = a->kv.head_dim;
    float scale = 1.0f / sqrtf((float)dim);
    for (int64_t i = 0; i < job->rows; i++)
        for (int64_t g = 0; g < group; g++) {
            int64_t h = head * group + g, query = i * group + g;
            const float *q = matrix_floats(&a->q) + ((job->row + i) * a->n_heads + h) * dim;
            for (int64_t d = 0; d < dim; d++) t->q[query * dim + d] = q[d] * scale;
        }
}

/* The first piece has the sink: its own share is exp(sink - top). */
static void start_sums(const struct attention_args *a, const struct attention_job *job,
                       int64_t head, bool sink, const struct attention_sums *sums)
{
    const int64_t group = group_size(a), queries = job->rows * group;
    sink = sink && a->sinks;
    memset(sums->out, 0, sizeof(float) * (size_t)(queries * a->kv.head_dim));
    memset(sums->total, 0, sizeof(float) * (size_t)(queries * LANES));
    for (int64_t query = 0; query < queries; query++) {
        sums->top[query] = sink ? a->sinks[head * group + query % group] : -INFINITY;
        sums->total[query * LANES] = sink ? 1.0f : 0;
    }
}

static void visit_block(const struct attention_args *a, const struct attention_job *job,
                        int64_t block, float above, const struct attention_sums *sums,
                        struct attention_scratch *t)
{
    int64_t group = group_size(a), dim = a->kv.head_dim, queries = job->rows * group;
    multiply(t->q, dim, t->k, KV_BLOCK, t->scores, KV_BLOCK, queries, dim, KV_BLOCK, false);
    for (int64_t query = 0; query < queries; query++) {
        int64_t position = a->batch->position[job->row + query / group];
        int64_t low = first_key(a, position) - block, high = position - block;
        float *scores = t->scores + query * KV_BLOCK;
        if (low > 0 || high < KV_BLOCK - 1) mask_scores(scores, low, high);
        fold(scores, above, &sums->top[query], sums->total + query * LANES, sums->out + query * dim,
             dim);
    }
    multiply(t->scores, KV_BLOCK, t->v, dim, sums->out, dim, queries, KV_BLOCK, dim, true);
}

static void visit_piece(const struct attention_args *a, const struct attention_job *job,
                        int64_t head, int64_t piece, const struct attention_sums *sums,
                        struct attention_scratch *t)
{
    const int64_t first = first_key(a, a->batch->position[job->row]);
    const int64_t last = a->batch->position[job->row + job->rows - 1];
    int64_t block = first / KV_BLOCK * KV_BLOCK, end = last + 1;
    if (piece > job->first) block = piece * PIECE;
    if (piece < job->last) end = (piece + 1) * PIECE;
    const float above = piece > job->first ? ABOVE : 0;
    start_sums(a, job, head, piece == job->first, sums);
    for (; block < end; block += KV_BLOCK) {
        load_block(a, a->batch->sequence[job->row], head, block, first, last, t);
        visit_block(a, job, block, above, sums, t);
    }
}

static void finish_queries(const struct attention_args *a, const struct attention_job *job,
                           int64_t head, const struct attention_sums *sums)
{
    int64_t group = group_size(a), dim = a->kv.head_dim;
    for (int64_t query = 0; query < job->rows * group; query++) {
        int64_t row = job->row + query / group, h = head * group + query % group;
        float scale = 1.0f / vector_sum(vector_load(sums->total + query * LANES));
        for (int64_t d = 0; d < dim; d++)
            matrix_floats(&a->out)[(row * a->n_heads + h) * dim + d] =
                sums->out[query * dim + d] * scale;
    }
}

static struct attention_sums slot_of(const struct attention_state *s,
                                     const struct attention_job *job, int64_t head, int64_t piece)
{
    const struct attention_args *a = s->args;
    const size_t queries = (size_t)(job->rows * group_size(a));
    const int64_t part = (job->slot + (piece - job->first) * job->rows) * a->kv.n_kv_heads;
    const size_t before = (size_t)((part + head * job->rows) * group_size(a));
    return sums_at(a, s->slots + before * sum_floats(a), queries);
}

static void attention_items(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct attention_state *s = arg;
    const struct attention_args *a = s->args;
    struct attention_scratch t = scratch_of(s, worker);
    for (int64_t index = begin; index < end; index++) {
        const struct attention_item *item = &s->items[index / a->kv.n_kv_heads];
        const struct attention_job *job = &s->jobs[item->job];
        int64_t head = index % a->kv.n_kv_heads;
        start_queries(a, job, head, &t);
        if (item->piece >= 0) {
            const struct attention_sums slot = slot_of(s, job, head, item->piece);
            visit_piece(a, job, head, item->piece, &slot, &t);
            continue;
        }
        visit_piece(a, job, head, job->first, &t.sums, &t);
        for (int64_t piece = job->first + 1; piece <= job->last; piece++) {
            visit_piece(a, job, head, piece, &t.next, &t);
            join(a, job->rows * group_size(a), &t.sums, &t.next);
        }
        finish_queries(a, job, head, &t.sums);
    }
}

/* Of the jobs whose pieces have slots. */
static void join_pieces(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct attention_state *s = arg;
    const struct attention_args *a = s->args;
    for (int64_t index = begin; index < end; index++) {
        const struct attention_job *job = &s->jobs[index / a->kv.n_kv_heads];
        const int64_t head = index % a->kv.n_kv_heads;
        if (job->slot < 0) continue;
        const struct attention_sums acc = slot_of(s, job, head, job->first);
        for (int64_t piece = job->first + 1; piece <= job->last; piece++) {
            const struct attention_sums part = slot_of(s, job, head, piece);
            join(a, job->rows * group_size(a), &acc, &part);
        }
        finish_queries(a, job, head, &acc);
    }
}

/* ---- who does what ---- */

/* A window that is no longer than a piece would gain nothing. */
static bool is_cut(const struct attention_args *a)
{
    return !a->window || a->window > PIECE;
}

/* Slots that there is room for: none where nothing is cut. */
static int64_t slot_count(const struct attention_args *a)
{
    const int64_t rows = a->m < APART_ROWS ? a->m : APART_ROWS;
    return is_cut(a) && a->kv.capacity > PIECE ? rows * (a->kv.capacity / PIECE + 2) : 0;
}

/* Pieces begin at multiples of PIECE. */
static int32_t piece_of(const struct attention_args *a, int64_t position)
{
    return is_cut(a) ? (int32_t)(position / PIECE) : 0;
}

/* Cuts the batch into runs of consecutive positions of one sequence that see the same pieces. */
static void make_jobs(struct attention_state *s)
{
    const struct attention_args *a = s->args;
    const struct batch *b = a->batch;
    s->n_jobs = 0;
    for (int64_t i = 0; i < a->m; i++) {
        struct attention_job *job = s->n_jobs ? &s->jobs[s->n_jobs - 1] : NULL;
        const int32_t first = piece_of(a, first_key(a, b->position[i]));
        const int32_t last = piece_of(a, b->position[i]);
        bool same = job && job->rows < QUERY_ROWS && b->sequence[i] == b->sequence[i - 1] &&
                    b->position[i] == b->position[i - 1] + 1 && job->first == first &&
                    job->last == last;
        if (same)
            job->rows++;
        else
            s->jobs[s->n_jobs++] = (struct attention_job){(int32_t)i, 1, first, last, -1, 0};
    }
}

/* Pieces that have slots are items; of other jobs all pieces are one. */
static void make_items(struct attention_state *s, bool apart)
{
    const int64_t room = apart ? slot_count(s->args) : 0;
    s->n_items = s->n_slots = 0;
    for (int64_t i = 0; i < s->n_jobs; i++) {
        struct attention_job *job = &s->jobs[i];
        const int64_t pieces = job->last - job->first + 1, wanted = pieces * job->rows;
        if (pieces == 1 || s->n_slots + wanted > room) {
            s->items[s->n_items++] = (struct attention_item){(int32_t)i, -1};
            continue;
        }
        job->slot = (int32_t)s->n_slots;
        s->n_slots += wanted;
        for (int32_t piece = job->first; piece <= job->last; piece++)
            s->items[s->n_items++] = (struct attention_item){(int32_t)i, piece};
    }
}

static size_t slots_floats(const struct attention_args *a)
{
    const size_t count = (size_t)(slot_count(a) * a->n_heads) * sum_floats(a);
    return (count + 15) / 16 * 16;
}

static size_t attention_workspace(const void *args, int workers)
{
    const struct attention_args *a = args;
    return ((size_t)workers * scratch_floats(a) + slots_floats(a)) * sizeof(float) +
           (size_t)a->m * sizeof(struct attention_job) +
           (size_t)(a->m + slot_count(a)) * sizeof(struct attention_item);
}

static bool attention_can_run(const void *args, const struct op_device *device,
                              char why[OP_REASON_MAX])
{
    (void)device;
    const struct attention_args *a = args;
    if (a->kv.head_dim % LANES == 0) return true;
    snprintf(why, OP_REASON_MAX, "head_dim %lld is no multiple of %d", (long long)a->kv.head_dim,
             LANES);
    return false;
}

static void attention_run(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    const int workers = pool_size(context->pool);
    struct attention_state s = {
        .args = a, .scratch = context->workspace, .scratch_floats = scratch_floats(a)};
    s.slots = s.scratch + (size_t)workers * s.scratch_floats;
    s.jobs = (struct attention_job *)(s.slots + slots_floats(a));
    s.items = (struct attention_item *)(s.jobs + a->m);
    make_jobs(&s);
    make_items(&s, workers > 1);
    pool_for(context->pool, s.n_items * a->kv.n_kv_heads, 1, attention_items, &s);
    if (s.n_slots) pool_for(context->pool, s.n_jobs * a->kv.n_kv_heads, 1, join_pieces, &s);
}

const struct op_variant NAMED(attention) = {
    .name = NAME_OF(attention),
    .summary = "blocks of rows per key head, running softmax over blocks of 32 keys, float32",
    .needs = NEEDS,
    .can_run = attention_can_run,
    .workspace = attention_workspace,
    .run = attention_run,
};
