/* self_attention and its gradient for any instruction set with float vectors. The including file
 * sets LANES, NEEDS, NAMED(op), TILE_ROWS and TILE_VECTORS (rows and vectors of columns of the
 * small matrix kernel), and defines vector_any (see vector.h).
 *
 * A job owns a block of BLOCK tokens of one sequence and head, which are the lanes: it keeps their
 * numbers transposed, [head_dim][BLOCK], and goes over the blocks of the other side, whose rows it
 * takes as they are. So every product is c[r][lanes] (+)= sum of a[r or d] * b[d or r][lanes] with
 * one number of `a` for all lanes, nothing but the job's own block is ever transposed, and what
 * softmax does to a query it does to a lane, without sums across lanes.
 *   forward, dq: the job owns queries and goes over keys
 *   dk, dv:      the job owns keys and goes over the queries of all heads that share them
 * A job alone writes its rows, and adds in the order of blocks: how many workers there are does not
 * show in the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

/* 64 rows of 128 numbers and the 32 columns that a tile works on stay in 48 KiB, all that a job has
 * in 256 KiB. */
enum { BLOCK = 64 };

/* Below any score, and unlike infinity with differences that are numbers. */
#define NO_SCORE (-1e30f)

/* What both ops have in common. */
struct shape {
    int64_t sequences, length, n_heads, n_kv_heads, dim, window;
    int64_t blocks; /* of a sequence */
};

/* Per worker, in floats; "own" is transposed. */
struct scratch {
    float *own[2];   /* [dim][BLOCK] q or k, dout or v */
    float *sum[2];   /* [dim][BLOCK] */
    float *other[2]; /* [BLOCK][dim] */
    float *tile[2];  /* [BLOCK][BLOCK] a row of the other side, a lane of the own */
};

static size_t scratch_floats(const struct shape *s)
{
    return (size_t)(6 * s->dim * BLOCK + 2 * BLOCK * BLOCK);
}

static struct scratch scratch_of(const struct shape *s, float *memory, int worker)
{
    struct scratch t;
    float *at = memory + (size_t)worker * scratch_floats(s);
    for (int i = 0; i < 2; i++) {
        t.own[i] = at, at += s->dim * BLOCK;
        t.sum[i] = at, at += s->dim * BLOCK;
        t.other[i] = at, at += s->dim * BLOCK;
        t.tile[i] = at, at += BLOCK * BLOCK;
    }
    return t;
}

static int64_t block_rows(const struct shape *s, int64_t block)
{
    return s->length - block * BLOCK < BLOCK ? s->length - block * BLOCK : BLOCK;
}

/* ---- the matrix kernel: c[r][BLOCK] (+)= sum over d of a(r, d) * b[d][BLOCK] ---- */

static inline __attribute__((always_inline)) void small_tile(const float *a, int64_t a_row,
                                                             int64_t a_depth, const float *b,
                                                             float *c, int64_t depth, bool add,
                                                             const int rows)
{
    vfloat sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < TILE_VECTORS; v++)
            sum[r][v] = add ? vector_load(c + r * BLOCK + v * LANES) : vector_set(0);
    for (int64_t d = 0; d < depth; d++) {
        vfloat right[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS; v++) right[v] = vector_load(b + d * BLOCK + v * LANES);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < TILE_VECTORS; v++)
                sum[r][v] += right[v] * a[r * a_row + d * a_depth];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < TILE_VECTORS; v++) vector_store(c + r * BLOCK + v * LANES, sum[r][v]);
}

/* For both orders of `a` the compiler knows which of its strides is 1. */
static inline __attribute__((always_inline)) void multiply(const float *a, int64_t a_row,
                                                           int64_t a_depth, const float *b,
                                                           float *c, int64_t rows, int64_t depth,
                                                           bool add)
{
    for (int64_t col = 0; col < BLOCK; col += TILE_VECTORS * LANES) {
        int64_t r = 0;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
            small_tile(a + r * a_row, a_row, a_depth, b + col, c + r * BLOCK + col, depth, add,
                       TILE_ROWS);
        for (; r < rows; r++)
            small_tile(a + r * a_row, a_row, a_depth, b + col, c + r * BLOCK + col, depth, add, 1);
    }
}

/* tile[r] = other[r] . own */
static void multiply_rows(const struct shape *s, const float *other, const float *own, float *tile,
                          int64_t rows)
{
    rows = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; /* what fills up is zeros */
    multiply(other, s->dim, 1, own, tile, rows, s->dim, false);
}

/* sum[d] += other[r][d] tile[r] */
static void add_columns(const struct shape *s, const float *other, const float *tile, float *sum,
                        int64_t rows)
{
    multiply(other, 1, s->dim, tile, sum, s->dim, rows, true);
}

/* ---- rows of matrices ---- */

/* Rows of a head, `stride` apart, transposed and times `scale`; lanes without a row are 0. */
static void load_own(const float *from, int64_t stride, int64_t rows, int64_t dim, float scale,
                     float *own)
{
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t d = 0; d < dim; d++)
            own[d * BLOCK + i] = i < rows ? scale * from[i * stride + d] : 0;
}

static void store_own(const float *own, int64_t stride, int64_t rows, int64_t dim, float scale,
                      float *to)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < dim; d++) to[i * stride + d] = scale * own[d * BLOCK + i];
}

/* Together: rows of a head may lie a multiple of a page apart. */
static void load_other(const float *from, int64_t stride, int64_t rows, int64_t dim, float *other)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(other + i * dim, from + i * stride, sizeof(float) * (size_t)dim);
    memset(other + rows * dim, 0, sizeof(float) * (size_t)((BLOCK - rows) * dim));
}

/* ---- who sees whom ---- */

/* Whether lane by lane the query, `back` tokens behind the key in lane 0 and `step` more in each
 * further lane, sees the key. */
static inline vint seen(const struct shape *s, int64_t back, int step)
{
    vint distance;
    for (int i = 0; i < LANES; i++) distance[i] = (int32_t)(back + i * step);
    vint all = distance >= 0;
    return s->window ? all & (distance < (int32_t)(s->window < INT32_MAX ? s->window : INT32_MAX))
                     : all;
}

/* Whether some query of the block does not see some key of the other. */
static bool needs_mask(const struct shape *s, int64_t query_block, int64_t key_block)
{
    int64_t furthest = (query_block - key_block) * BLOCK + BLOCK - 1;
    return query_block == key_block || (s->window && furthest >= s->window);
}

static int64_t first_key_block(const struct shape *s, int64_t query_block)
{
    int64_t first = query_block * BLOCK - s->window + 1;
    return s->window && first > 0 ? first / BLOCK : 0;
}

/* Behind the last one whose queries see keys of the block. */
static int64_t end_query_block(const struct shape *s, int64_t key_block)
{
    if (!s->window || s->window > s->length) return s->blocks;
    int64_t end = (key_block * BLOCK + BLOCK - 1 + s->window - 1) / BLOCK + 1;
    return end < s->blocks ? end : s->blocks;
}

/* ---- forward ---- */

struct forward {
    const struct self_attention_args *args;
    struct shape shape;
    float *memory;
};

static struct shape shape_of(const struct self_attention_args *a)
{
    return (struct shape){a->sequences,
                          a->length,
                          a->n_heads,
                          a->n_kv_heads,
                          a->head_dim,
                          a->window,
                          (a->length + BLOCK - 1) / BLOCK};
}

/* Lanes' softmax so far: the largest score, and the sum of what is exp of the others over it. */
struct running {
    float top[BLOCK], total[BLOCK];
};

static void rescale(float *sum, int64_t dim, vfloat keep)
{
    for (int64_t d = 0; d < dim; d++)
        vector_store(sum + d * BLOCK, vector_load(sum + d * BLOCK) * keep);
}

/* Scores of one vector of lanes become weights; `back`: of lane 0's query behind the first key. */
static void fold(const struct shape *s, float *scores, int64_t keys, bool masked, int64_t back,
                 float *top, float *total, float *sum)
{
    vfloat before = vector_load(top), most = before, all = vector_load(total);
    for (int64_t j = 0; j < keys; j++) {
        vfloat score = vector_load(scores + j * BLOCK);
        if (masked) score = vector_select(seen(s, back - j, 1), score, vector_set(NO_SCORE));
        most = vector_select(score > most, score, most);
    }
    if (vector_any(most > before)) {
        vfloat keep = vector_exp(before - most);
        rescale(sum, s->dim, keep);
        all *= keep;
    }
    for (int64_t j = 0; j < keys; j++) {
        vfloat weight = vector_exp(vector_load(scores + j * BLOCK) - most);
        if (masked) weight = vector_select(seen(s, back - j, 1), weight, vector_set(0));
        vector_store(scores + j * BLOCK, weight);
        all += weight;
    }
    vector_store(top, most);
    vector_store(total, all);
}

static void forward_block(const struct forward *f, int64_t sequence, int64_t head, int64_t block,
                          const struct scratch *t)
{
    const struct self_attention_args *a = f->args;
    const struct shape *s = &f->shape;
    int64_t row = sequence * s->length + block * BLOCK, rows = block_rows(s, block);
    int64_t width = s->n_heads * s->dim, kv_width = s->n_kv_heads * s->dim;
    int64_t kv_at = sequence * s->length * kv_width + head * s->n_kv_heads / s->n_heads * s->dim;
    struct running run;
    for (int i = 0; i < BLOCK; i++) {
        run.top[i] = a->sinks ? a->sinks[head] : NO_SCORE;
        run.total[i] = a->sinks ? 1 : 0; /* the sink's own, exp(sink - top) */
    }
    load_own(matrix_floats(&a->q) + row * width + head * s->dim, width, rows, s->dim,
             1.0f / sqrtf((float)s->dim), t->own[0]);
    memset(t->sum[0], 0, sizeof(float) * (size_t)(s->dim * BLOCK));
    for (int64_t b = first_key_block(s, block); b <= block; b++) {
        int64_t keys = block_rows(s, b), at = kv_at + b * BLOCK * kv_width;
        load_other(matrix_floats(&a->k) + at, kv_width, keys, s->dim, t->other[0]);
        load_other(matrix_floats(&a->v) + at, kv_width, keys, s->dim, t->other[1]);
        multiply_rows(s, t->other[0], t->own[0], t->tile[0], keys);
        for (int i = 0; i < BLOCK; i += LANES)
            fold(s, t->tile[0] + i, keys, needs_mask(s, block, b), (block - b) * BLOCK + i,
                 run.top + i, run.total + i, t->sum[0] + i);
        add_columns(s, t->other[1], t->tile[0], t->sum[0], keys);
    }
    for (int i = 0; i < BLOCK; i += LANES)
        rescale(t->sum[0] + i, s->dim, vector_set(1) / vector_load(run.total + i));
    store_own(t->sum[0], width, rows, s->dim, 1,
              matrix_floats(&a->out) + row * width + head * s->dim);
    for (int64_t i = 0; i < rows; i++)
        a->lse[head * s->sequences * s->length + row + i] = run.top[i] + logf(run.total[i]);
}

/* Late blocks see most keys: they come first, so that none of them is left to the end. */
static void forward_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct forward *f = arg;
    const struct shape *s = &f->shape;
    const struct scratch t = scratch_of(s, f->memory, worker);
    for (int64_t job = begin; job < end; job++) {
        int64_t pair = job % (s->sequences * s->n_heads), rank = job / (s->sequences * s->n_heads);
        forward_block(f, pair / s->n_heads, pair % s->n_heads, s->blocks - 1 - rank, &t);
    }
}

static size_t forward_workspace(const void *args, int workers)
{
    const struct shape s = shape_of(args);
    return (size_t)workers * scratch_floats(&s) * sizeof(float);
}

static void forward_run(const struct op_context *context, const void *args)
{
    struct forward f = {args, shape_of(args), context->workspace};
    pool_for(context->pool, f.shape.sequences * f.shape.n_heads * f.shape.blocks, 1, forward_jobs,
             &f);
}

const struct op_variant NAMED(self_attention) = {
    .name = NAME_OF(self_attention),
    .summary = "blocks of 64 queries in lanes, running softmax over blocks of 64 keys, float32",
    .needs = NEEDS,
    .workspace = forward_workspace,
    .run = forward_run,
};

/* ---- backward ---- */

struct backward {
    const struct self_attention_backward_args *args;
    struct shape shape;
    float *delta;  /* [n_heads][sequences * length] dout . out */
    float *dsinks; /* [chunks of BLOCK rows][n_heads] */
    float *memory;
};

static struct shape shape_backward(const struct self_attention_backward_args *a)
{
    return (struct shape){a->sequences,
                          a->length,
                          a->n_heads,
                          a->n_kv_heads,
                          a->head_dim,
                          a->window,
                          (a->length + BLOCK - 1) / BLOCK};
}

static float dot(const float *a, const float *b, int64_t n)
{
    vfloat sum = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += vector_load(a + i) * vector_load(b + i);
    if (i < n) sum += vector_load_some(a + i, n - i) * vector_load_some(b + i, n - i);
    return vector_sum(sum);
}

/* Of BLOCK rows each, whatever the sequences. */
static void delta_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct backward *b = arg;
    const struct self_attention_backward_args *a = b->args;
    const struct shape *s = &b->shape;
    int64_t rows = s->sequences * s->length;
    (void)worker;
    for (int64_t chunk = begin; chunk < end; chunk++)
        for (int64_t h = 0; h < s->n_heads; h++) {
            double dsink = 0;
            for (int64_t i = chunk * BLOCK; i < rows && i < (chunk + 1) * BLOCK; i++) {
                int64_t at = (i * s->n_heads + h) * s->dim;
                float delta =
                    dot(matrix_floats(&a->dout) + at, matrix_floats(&a->out) + at, s->dim);
                b->delta[h * rows + i] = delta;
                if (a->sinks) dsink -= exp((double)a->sinks[h] - a->lse[h * rows + i]) * delta;
            }
            b->dsinks[chunk * s->n_heads + h] = (float)dsink;
        }
}

static int64_t chunk_count(const struct shape *s)
{
    return (s->sequences * s->length + BLOCK - 1) / BLOCK;
}

static void add_dsinks(const struct backward *b)
{
    const struct self_attention_backward_args *a = b->args;
    int64_t heads = b->shape.n_heads;
    for (int64_t h = 0; a->sinks && a->dsinks && h < heads; h++) {
        double sum = a->dsinks[h];
        for (int64_t i = 0; i < chunk_count(&b->shape); i++) sum += b->dsinks[i * heads + h];
        a->dsinks[h] = (float)sum;
    }
}

/* tile[0], scores, and tile[1], dout . v, become the weights and the gradient of scores, of a row
 * of the other side: where lanes are queries, lse and delta are theirs, else the row's. */
static inline void differentiate(const struct scratch *t, int64_t r, int i, vfloat lse,
                                 vfloat delta, bool masked, vint mask)
{
    float *scores = t->tile[0] + r * BLOCK + i, *products = t->tile[1] + r * BLOCK + i;
    vfloat weight = vector_exp(vector_load(scores) - lse);
    if (masked) weight = vector_select(mask, weight, vector_set(0));
    vector_store(scores, weight);
    vector_store(products, weight * (vector_load(products) - delta));
}

static void dq_block(const struct backward *b, int64_t sequence, int64_t head, int64_t block,
                     const struct scratch *t)
{
    const struct self_attention_backward_args *a = b->args;
    const struct shape *s = &b->shape;
    int64_t row = sequence * s->length + block * BLOCK, rows = block_rows(s, block);
    int64_t width = s->n_heads * s->dim, kv_width = s->n_kv_heads * s->dim;
    int64_t at = row * width + head * s->dim;
    int64_t kv_at = sequence * s->length * kv_width + head * s->n_kv_heads / s->n_heads * s->dim;
    float scale = 1.0f / sqrtf((float)s->dim), lse[BLOCK] = {0}, delta[BLOCK] = {0};
    for (int64_t i = 0; i < rows; i++) {
        lse[i] = a->lse[head * s->sequences * s->length + row + i];
        delta[i] = b->delta[head * s->sequences * s->length + row + i];
    }
    load_own(matrix_floats(&a->q) + at, width, rows, s->dim, scale, t->own[0]);
    load_own(matrix_floats(&a->dout) + at, width, rows, s->dim, 1, t->own[1]);
    memset(t->sum[0], 0, sizeof(float) * (size_t)(s->dim * BLOCK));
    for (int64_t other = first_key_block(s, block); other <= block; other++) {
        int64_t keys = block_rows(s, other), from = kv_at + other * BLOCK * kv_width;
        bool masked = needs_mask(s, block, other);
        load_other(matrix_floats(&a->k) + from, kv_width, keys, s->dim, t->other[0]);
        load_other(matrix_floats(&a->v) + from, kv_width, keys, s->dim, t->other[1]);
        multiply_rows(s, t->other[0], t->own[0], t->tile[0], keys);
        multiply_rows(s, t->other[1], t->own[1], t->tile[1], keys);
        for (int64_t j = 0; j < keys; j++)
            for (int i = 0; i < BLOCK; i += LANES)
                differentiate(t, j, i, vector_load(lse + i), vector_load(delta + i), masked,
                              masked ? seen(s, (block - other) * BLOCK + i - j, 1) : (vint){0});
        add_columns(s, t->other[0], t->tile[1], t->sum[0], keys);
    }
    store_own(t->sum[0], width, rows, s->dim, scale, matrix_floats(&a->dq) + at);
}

/* What the queries of one block and head add to dk and dv of a block of keys. */
static void add_queries(const struct backward *b, int64_t sequence, int64_t head, int64_t block,
                        int64_t other, const struct scratch *t)
{
    const struct self_attention_backward_args *a = b->args;
    const struct shape *s = &b->shape;
    int64_t row = sequence * s->length + other * BLOCK, rows = block_rows(s, other);
    int64_t width = s->n_heads * s->dim, at = row * width + head * s->dim;
    bool masked = needs_mask(s, other, block);
    load_other(matrix_floats(&a->q) + at, width, rows, s->dim, t->other[0]);
    load_other(matrix_floats(&a->dout) + at, width, rows, s->dim, t->other[1]);
    multiply_rows(s, t->other[0], t->own[0], t->tile[0], rows);
    multiply_rows(s, t->other[1], t->own[1], t->tile[1], rows);
    for (int64_t j = 0; j < rows; j++) {
        int64_t number = head * s->sequences * s->length + row + j;
        for (int i = 0; i < BLOCK; i += LANES)
            differentiate(t, j, i, vector_set(a->lse[number]), vector_set(b->delta[number]), masked,
                          masked ? seen(s, (other - block) * BLOCK + j - i, -1) : (vint){0});
    }
    add_columns(s, t->other[0], t->tile[1], t->sum[0], rows);
    add_columns(s, t->other[1], t->tile[0], t->sum[1], rows);
}

static void dkv_block(const struct backward *b, int64_t sequence, int64_t kv_head, int64_t block,
                      const struct scratch *t)
{
    const struct self_attention_backward_args *a = b->args;
    const struct shape *s = &b->shape;
    int64_t rows = block_rows(s, block), width = s->n_kv_heads * s->dim;
    int64_t at = (sequence * s->length + block * BLOCK) * width + kv_head * s->dim;
    int64_t group = s->n_heads / s->n_kv_heads, end = end_query_block(s, block);
    float scale = 1.0f / sqrtf((float)s->dim);
    load_own(matrix_floats(&a->k) + at, width, rows, s->dim, scale, t->own[0]);
    load_own(matrix_floats(&a->v) + at, width, rows, s->dim, 1, t->own[1]);
    memset(t->sum[0], 0, sizeof(float) * (size_t)(s->dim * BLOCK));
    memset(t->sum[1], 0, sizeof(float) * (size_t)(s->dim * BLOCK));
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t other = block; other < end; other++)
            add_queries(b, sequence, head, block, other, t);
    store_own(t->sum[0], width, rows, s->dim, scale, matrix_floats(&a->dk) + at);
    store_own(t->sum[1], width, rows, s->dim, 1, matrix_floats(&a->dv) + at);
}

/* Those of keys first, early blocks first, since most queries see them; then those of queries. */
static void backward_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct backward *b = arg;
    const struct shape *s = &b->shape;
    const struct scratch t = scratch_of(s, b->memory, worker);
    const int64_t of_keys = s->sequences * s->n_kv_heads, of_queries = s->sequences * s->n_heads;
    for (int64_t job = begin; job < end; job++) {
        int64_t q_job = job - of_keys * s->blocks, pair = q_job % of_queries;
        if (q_job < 0)
            dkv_block(b, job % of_keys / s->n_kv_heads, job % s->n_kv_heads, job / of_keys, &t);
        else
            dq_block(b, pair / s->n_heads, pair % s->n_heads, s->blocks - 1 - q_job / of_queries,
                     &t);
    }
}

static size_t delta_floats(const struct shape *s)
{
    return (size_t)((s->sequences * s->length + chunk_count(s)) * s->n_heads);
}

static size_t backward_workspace(const void *args, int workers)
{
    const struct shape s = shape_backward(args);
    return ((size_t)workers * scratch_floats(&s) + delta_floats(&s)) * sizeof(float);
}

static void backward_run(const struct op_context *context, const void *args)
{
    struct backward b = {.args = args, .shape = shape_backward(args), .memory = context->workspace};
    const struct shape *s = &b.shape;
    b.delta = b.memory + (size_t)pool_size(context->pool) * scratch_floats(s);
    b.dsinks = b.delta + s->sequences * s->length * s->n_heads;
    pool_for(context->pool, chunk_count(s), 1, delta_chunks, &b);
    add_dsinks(&b);
    pool_for(context->pool, s->sequences * (s->n_heads + s->n_kv_heads) * s->blocks, 1,
             backward_jobs, &b);
}

const struct op_variant NAMED(self_attention_backward) = {
    .name = NAME_OF(self_attention_backward),
    .summary = "dk and dv by blocks of 64 keys, dq by blocks of 64 queries, float32",
    .needs = NEEDS,
    .workspace = backward_workspace,
    .run = backward_run,
};
