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
 * edge blocks are masked. */
#include <math.h>
#include <stdio.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

#ifndef TILE_VECTORS
#define TILE_VECTORS 2
#endif

enum {
    QUERY_ROWS = 16, /* 128 query vectors at 8 per key head: queries, scores and sums stay in L2 */
};

struct attention_job {
    int32_t row, rows; /* consecutive rows of one sequence at consecutive positions */
};

/* Per worker scratch, in floats. */
struct attention_scratch {
    float *q;      /* [queries][head_dim] times 1/sqrt(head_dim) */
    float *scores; /* [queries][KV_BLOCK], then the probabilities */
    float *out;    /* [queries][head_dim] */
    float *k;      /* [head_dim][KV_BLOCK] */
    float *v;      /* [KV_BLOCK][head_dim] */
    float *top;    /* [queries] running maximum */
    float *total;  /* [queries][LANES] running denominator, lane by lane until the end */
};

struct attention_state {
    const struct attention_args *args;
    const struct attention_job *jobs;
    float *scratch;
    size_t scratch_floats; /* per worker */
};

static int64_t group_size(const struct attention_args *a)
{
    return a->n_heads / a->kv.n_kv_heads;
}

static size_t scratch_floats(const struct attention_args *a)
{
    size_t queries = (size_t)(QUERY_ROWS * group_size(a)), dim = (size_t)a->kv.head_dim;
    size_t count = queries * (2 * dim + KV_BLOCK + LANES + 1) + 2 * dim * KV_BLOCK;
    return (count + 15) / 16 * 16;
}

static struct attention_scratch scratch_of(const struct attention_state *s, int worker)
{
    size_t queries = (size_t)(QUERY_ROWS * group_size(s->args)), dim = (size_t)s->args->kv.head_dim;
    struct attention_scratch t;
    t.k = s->scratch + (size_t)worker * s->scratch_floats;
    t.v = t.k + dim * KV_BLOCK;
    t.q = t.v + dim * KV_BLOCK;
    t.out = t.q + queries * dim;
    t.scores = t.out + queries * dim;
    t.total = t.scores + queries * KV_BLOCK;
    t.top = t.total + queries * LANES;
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
static void raise_top(const float *scores, float *top, float *total, float *out, int64_t dim)
{
    float before = *top;
    for (int j = 0; j < KV_BLOCK; j++) *top = scores[j] > *top ? scores[j] : *top;
    vfloat keep = vector_exp(vector_set(before - *top));
    vector_store(total, vector_load(total) * keep);
    for (int64_t d = 0; d < dim; d += LANES) vector_store(out + d, vector_load(out + d) * keep);
}

/* Folds one block of scores of one query into its running softmax and turns them into weights. */
static void fold(float *scores, float *top, float *total, float *out, int64_t dim)
{
    vint higher = {0};
    for (int j = 0; j < KV_BLOCK; j += LANES) higher |= vector_load(scores + j) > vector_set(*top);
    if (vector_any(higher)) raise_top(scores, top, total, out, dim);
    vfloat sum = vector_load(total);
    for (int j = 0; j < KV_BLOCK; j += LANES) {
        vfloat score = vector_load(scores + j), weight = vector_exp(score - *top);
        weight = vector_select(score == vector_set(-INFINITY), vector_set(0), weight);
        vector_store(scores + j, weight);
        sum += weight;
    }
    vector_store(total, sum);
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
            memset(t->out + query * dim, 0, sizeof(float) * (size_t)dim);
            t->top[query] = a->sinks ? a->sinks[h] : -INFINITY;
            memset(t->total + query * LANES, 0, sizeof(float) * LANES);
            t->total[query * LANES] =
                a->sinks ? 1.0f : 0; /* the sink's own share, exp(sink - top) */
        }
}

static void visit_block(const struct attention_args *a, const struct attention_job *job,
                        int64_t block, struct attention_scratch *t)
{
    int64_t group = group_size(a), dim = a->kv.head_dim, queries = job->rows * group;
    multiply(t->q, dim, t->k, KV_BLOCK, t->scores, KV_BLOCK, queries, dim, KV_BLOCK, false);
    for (int64_t query = 0; query < queries; query++) {
        int64_t position = a->batch->position[job->row + query / group];
        int64_t low = first_key(a, position) - block, high = position - block;
        float *scores = t->scores + query * KV_BLOCK;
        if (low > 0 || high < KV_BLOCK - 1) mask_scores(scores, low, high);
        fold(scores, &t->top[query], t->total + query * LANES, t->out + query * dim, dim);
    }
    multiply(t->scores, KV_BLOCK, t->v, dim, t->out, dim, queries, KV_BLOCK, dim, true);
}

static void finish_queries(const struct attention_args *a, const struct attention_job *job,
                           int64_t head, const struct attention_scratch *t)
{
    int64_t group = group_size(a), dim = a->kv.head_dim;
    for (int64_t query = 0; query < job->rows * group; query++) {
        int64_t row = job->row + query / group, h = head * group + query % group;
        float scale = 1.0f / vector_sum(vector_load(t->total + query * LANES));
        for (int64_t d = 0; d < dim; d++)
            matrix_floats(&a->out)[(row * a->n_heads + h) * dim + d] =
                t->out[query * dim + d] * scale;
    }
}

static void attention_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct attention_state *s = arg;
    const struct attention_args *a = s->args;
    struct attention_scratch t = scratch_of(s, worker);
    for (int64_t index = begin; index < end; index++) {
        const struct attention_job *job = &s->jobs[index / a->kv.n_kv_heads];
        int64_t head = index % a->kv.n_kv_heads;
        int64_t first = first_key(a, a->batch->position[job->row]);
        int64_t last = a->batch->position[job->row + job->rows - 1];
        start_queries(a, job, head, &t);
        for (int64_t block = first / KV_BLOCK * KV_BLOCK; block <= last; block += KV_BLOCK) {
            load_block(a, a->batch->sequence[job->row], head, block, first, last, &t);
            visit_block(a, job, block, &t);
        }
        finish_queries(a, job, head, &t);
    }
}

/* Cuts the batch into runs of consecutive positions of one sequence. */
static int64_t make_jobs(const struct attention_args *a, struct attention_job *jobs)
{
    const struct batch *b = a->batch;
    int64_t count = 0;
    for (int64_t i = 0; i < a->m; i++) {
        struct attention_job *job = count ? &jobs[count - 1] : NULL;
        bool same = job && job->rows < QUERY_ROWS && b->sequence[i] == b->sequence[i - 1] &&
                    b->position[i] == b->position[i - 1] + 1;
        if (same)
            job->rows++;
        else
            jobs[count++] = (struct attention_job){(int32_t)i, 1};
    }
    return count;
}

static size_t attention_workspace(const void *args, int workers)
{
    const struct attention_args *a = args;
    return (size_t)workers * scratch_floats(a) * sizeof(float) +
           (size_t)a->m * sizeof(struct attention_job);
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
    size_t floats = scratch_floats(a);
    float *scratch = context->workspace;
    struct attention_job *jobs =
        (struct attention_job *)(scratch + (size_t)pool_size(context->pool) * floats);
    struct attention_state state = {a, jobs, scratch, floats};
    pool_for(context->pool, make_jobs(a, jobs) * a->kv.n_kv_heads, 1, attention_jobs, &state);
}

const struct op_variant NAMED(attention) = {
    .name = NAME_OF(attention),
    .summary = "blocks of rows per key head, running softmax over blocks of 32 keys, float32",
    .needs = NEEDS,
    .can_run = attention_can_run,
    .workspace = attention_workspace,
    .run = attention_run,
};
