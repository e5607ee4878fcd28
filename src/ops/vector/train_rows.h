/* What a GPT's passes do element by element and row by row, for any instruction set: axpby, relu2,
 * softcap, fill, rotary_norm, smear, and gradients. The including file sets LANES, NEEDS and
 * NAMED(op) as for rows.h. All are bound by memory.
 *
 * Sums over rows are made in chunks of a size that does not depend on how many workers there are,
 * and added in the order of chunks: results have the same bits with any number of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "ops/rotary_norm.h"
#include "ops/vector/grain.h"
#include "ops/vector/vector.h"

/* Sums in float32 are of as many numbers a lane as keep them within a few units of the last place;
 * theirs are made in double. */
enum { SUM_SPAN = 1024, CHUNK_ROWS = 32 };

static int64_t chunks_of(int64_t count, int64_t chunk)
{
    return (count + chunk - 1) / chunk;
}

static float dot_span(const float *a, const float *b, int64_t n)
{
    vfloat sum[2] = {{0}};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        for (int u = 0; u < 2; u++)
            sum[u] += vector_load(a + i + u * LANES) * vector_load(b + i + u * LANES);
    for (; i + LANES <= n; i += LANES) sum[0] += vector_load(a + i) * vector_load(b + i);
    if (i < n) sum[1] += vector_load_some(a + i, n - i) * vector_load_some(b + i, n - i);
    return vector_sum(sum[0] + sum[1]);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_SPAN)
        sum += dot_span(a + i, b + i, n - i < SUM_SPAN ? n - i : SUM_SPAN);
    return sum;
}

VECTOR_STEP add_times_step(float *to, const float *from, float factor, int64_t i, int64_t n)
{
    vfloat sum = vector_load_some(to + i, n) + vector_load_some(from + i, n) * factor;
    vector_store_some(to + i, sum, n);
}

/* to += factor * from */
static void add_times(float *to, const float *from, float factor, int64_t n)
{
    VECTOR_STEPS(add_times_step, 0, n, to, from, factor);
}

/* ---- axpby ---- */

static void axpby_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct axpby_args *p = arg;
    const float a = p->a ? *p->a : 1, b = p->factor * (p->b ? *p->b : 1);
    const float *x = matrix_floats(&p->x), *y = p->y.data;
    float *out = matrix_floats(&p->out);
    int64_t i = begin;
    for (; y && i + LANES <= end; i += LANES)
        vector_store(out + i, vector_load(x + i) * a + vector_load(y + i) * b);
    for (; !y && i + LANES <= end; i += LANES) vector_store(out + i, vector_load(x + i) * a);
    for (; i < end; i++) out[i] = y ? a * x[i] + b * y[i] : a * x[i];
}

static void axpby_run(const struct op_context *context, const void *args)
{
    const struct axpby_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, axpby_span, (void *)a);
}

const struct op_variant NAMED(axpby) = {.name = NAME_OF(axpby),
                                        .summary = "vectors over the whole matrix",
                                        .needs = NEEDS,
                                        .run = axpby_run};

/* ---- relu2 ---- */

static void relu2_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    float *x = matrix_floats(&((const struct relu2_args *)arg)->x);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        vfloat v = vector_at_least(vector_load(x + i), 0);
        vector_store(x + i, v * v);
    }
    for (; i < end; i++) {
        float v = x[i] < 0 ? 0 : x[i];
        x[i] = v * v;
    }
}

static void relu2_run(const struct op_context *context, const void *args)
{
    const struct relu2_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, relu2_span, (void *)a);
}

const struct op_variant NAMED(relu2) = {.name = NAME_OF(relu2),
                                        .summary = "vectors over the whole matrix",
                                        .needs = NEEDS,
                                        .run = relu2_run};

/* ---- relu2_backward ---- */

static vfloat root(vfloat x)
{
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]); /* one instruction */
    return x;
}

static void relu2_backward_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct relu2_backward_args *a = arg;
    const float *y = matrix_floats(&a->y);
    float *d = matrix_floats(&a->d);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        vector_store(d + i, root(vector_load(y + i)) * 2.0f * vector_load(d + i));
    for (; i < end; i++) d[i] = 2 * sqrtf(y[i]) * d[i];
}

static void relu2_backward_run(const struct op_context *context, const void *args)
{
    const struct relu2_backward_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, relu2_backward_span, (void *)a);
}

const struct op_variant NAMED(relu2_backward) = {.name = NAME_OF(relu2_backward),
                                                 .summary = "vectors over the whole matrix",
                                                 .needs = NEEDS,
                                                 .run = relu2_backward_run};

/* ---- dropout ---- */

/* Blocks of eight numbers. */
static void dropout_blocks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct dropout_args *a = arg;
    const struct random_key key = *a->key;
    const uint32_t limit = dropout_limit(a->rate);
    const float factor = dropout_factor(limit), *x = matrix_floats(&a->x), *add = a->add.data;
    float *out = matrix_floats(&a->out);
    const int64_t count = a->m * a->n;
    for (int64_t b = begin; b < end; b++) {
        uint32_t words[4];
        rng_philox(key.seed, (const uint32_t[]){(uint32_t)b, key.micro_batch, key.step, a->stream},
                   words);
        for (int64_t j = 0, i = b * DROPOUT_BLOCK; j < DROPOUT_BLOCK && i < count; j++, i++) {
            const uint32_t half = words[j / 2] >> j % 2 * 16 & 0xffff;
            const float y = half >= limit ? factor * x[i] : 0;
            out[i] = add ? add[i] + y : y;
        }
    }
}

static void dropout_run(const struct op_context *context, const void *args)
{
    const struct dropout_args *a = args;
    pool_for(context->pool, (a->m * a->n + DROPOUT_BLOCK - 1) / DROPOUT_BLOCK,
             ROWS_GRAIN / DROPOUT_BLOCK, dropout_blocks, (void *)a);
}

const struct op_variant NAMED(dropout) = {.name = NAME_OF(dropout),
                                          .summary = "blocks of eight numbers in parallel",
                                          .needs = NEEDS,
                                          .run = dropout_run};

/* ---- softcap ---- */

/* tanh within 2 ulp: near 0 an odd polynomial, fitted by least squares at 400 Chebyshev points of
 * |x| < 0.55 (relative error 7e-8 in float32); further out from e^-2|x|, which no longer cancels.
 */
static vfloat vector_tanh(vfloat x)
{
    vfloat t = x * x, size = vector_select(x < 0, -x, x), e = vector_exp(size * -2.0f);
    vfloat far = (1.0f - e) / (1.0f + e);
    vfloat near = t * 2.52839667e-3f - 8.52784701e-3f;
    near = near * t + 2.18188483e-2f;
    near = near * t - 5.39647415e-2f;
    near = near * t + 1.33333253e-1f;
    near = near * t - 3.33333343e-1f;
    near = x + x * t * near;
    return vector_select(size < vector_set(0.55f), near, vector_select(x < 0, -far, far));
}

VECTOR_STEP softcap_step(float *x, float cap, int64_t i, int64_t n)
{
    vector_store_some(x + i, vector_tanh(vector_load_some(x + i, n) / cap) * cap, n);
}

static void softcap_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct softcap_args *a = arg;
    float *x = matrix_floats(&a->x);
    VECTOR_STEPS(softcap_step, begin, end, x, a->cap);
}

static void softcap_run(const struct op_context *context, const void *args)
{
    const struct softcap_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, softcap_span, (void *)a);
}

const struct op_variant NAMED(softcap) = {.name = NAME_OF(softcap),
                                          .summary = "polynomial tanh in vectors",
                                          .needs = NEEDS,
                                          .run = softcap_run};

/* ---- axpby_backward ---- */

struct axpby_work {
    const struct axpby_backward_args *args;
    double *sums; /* [chunks of ROWS_GRAIN elements][2] of da and db */
};

VECTOR_STEP axpby_backward_step(float *d, float *dy, float a, float b, bool first, int64_t i,
                                int64_t n)
{
    vfloat v = vector_load_some(d + i, n), before = {0};
    if (!first) before = vector_load_some(dy + i, n);
    vector_store_some(dy + i, before + v * b, n);
    vector_store_some(d + i, v * a, n);
}

static void axpby_backward_chunk(const struct axpby_backward_args *p, int64_t at, int64_t n,
                                 double sums[2])
{
    const float a = p->a ? *p->a : 1, b = p->factor * (p->b ? *p->b : 1);
    float *d = matrix_floats(&p->d) + at, *dy = matrix_floats(&p->dy) + at;
    sums[0] = p->da ? dot(d, matrix_floats(&p->x) + at, n) : 0;
    sums[1] = p->db ? dot(d, matrix_floats(&p->y) + at, n) : 0;
    VECTOR_STEPS(axpby_backward_step, 0, n, d, dy, a, b, p->first);
}

static void axpby_backward_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct axpby_work *w = arg;
    const int64_t count = w->args->m * w->args->n;
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * ROWS_GRAIN, n = count - at < ROWS_GRAIN ? count - at : ROWS_GRAIN;
        axpby_backward_chunk(w->args, at, n, w->sums + 2 * c);
    }
}

static size_t axpby_backward_workspace(const void *args, int workers)
{
    const struct axpby_backward_args *a = args;
    (void)workers;
    return (size_t)chunks_of(a->m * a->n, ROWS_GRAIN) * 2 * sizeof(double);
}

static void axpby_backward_run(const struct op_context *context, const void *args)
{
    const struct axpby_backward_args *a = args;
    struct axpby_work w = {a, context->workspace};
    int64_t chunks = chunks_of(a->m * a->n, ROWS_GRAIN);
    double da = 0, db = 0;
    pool_for(context->pool, chunks, 1, axpby_backward_chunks, &w);
    for (int64_t c = 0; c < chunks; c++) da += w.sums[2 * c], db += w.sums[2 * c + 1];
    if (a->da) *a->da = (float)(*a->da + da);
    if (a->db) *a->db = (float)(*a->db + a->factor * db);
}

const struct op_variant NAMED(axpby_backward) = {.name = NAME_OF(axpby_backward),
                                                 .summary = "vectors over the whole matrix",
                                                 .needs = NEEDS,
                                                 .workspace = axpby_backward_workspace,
                                                 .run = axpby_backward_run};

/* ---- rmsnorm_backward ---- */

struct rmsnorm_work {
    const struct rmsnorm_backward_args *args;
    float *sums; /* [chunks of CHUNK_ROWS rows][n] of dgain */
};

struct norm_row {
    const float *x, *dy, *gain;
    float *dx, *dgain;
    float scale, share;
    vfloat squares, along;
};

VECTOR_STEP norm_sums_step(struct norm_row *r, int64_t j, int64_t n)
{
    vfloat v = vector_load_some(r->x + j, n), d = vector_load_some(r->dy + j, n);
    if (r->gain) d *= vector_load_some(r->gain + j, n);
    r->squares += v * v;
    r->along += v * d;
}

VECTOR_STEP norm_gradient_step(const struct norm_row *r, int64_t j, int64_t n)
{
    vfloat v = vector_load_some(r->x + j, n), d = vector_load_some(r->dy + j, n);
    if (r->dgain)
        vector_store_some(r->dgain + j, vector_load_some(r->dgain + j, n) + v * d * r->scale, n);
    if (r->gain) d *= vector_load_some(r->gain + j, n);
    vector_store_some(r->dx + j, vector_load_some(r->dx + j, n) + (d * r->scale - v * r->share), n);
}

static void rmsnorm_backward_row(const struct rmsnorm_backward_args *a, int64_t i, float *dgain)
{
    struct norm_row row = {.x = matrix_floats(&a->x) + i * a->n,
                           .dy = matrix_floats(&a->dy) + i * a->n,
                           .dx = matrix_floats(&a->dx) + i * a->n,
                           .gain = a->gain,
                           .dgain = dgain};
    double squares = 0, along = 0, n = (double)a->n;
    for (int64_t from = 0; from < a->n; from += SUM_SPAN) {
        int64_t end = a->n - from < SUM_SPAN ? a->n : from + SUM_SPAN;
        row.squares = row.along = vector_set(0);
        VECTOR_STEPS(norm_sums_step, from, end, &row);
        squares += vector_sum(row.squares);
        along += vector_sum(row.along);
    }
    double r = 1 / sqrt(squares / n + a->eps);
    row.scale = (float)r;
    row.share = (float)(along / n * r * r * r);
    VECTOR_STEPS(norm_gradient_step, 0, a->n, &row);
}

static void rmsnorm_backward_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct rmsnorm_work *w = arg;
    const struct rmsnorm_backward_args *a = w->args;
    for (int64_t c = begin; c < end; c++) {
        float *sums = a->dgain ? w->sums + c * a->n : NULL;
        if (sums) memset(sums, 0, sizeof(float) * (size_t)a->n);
        for (int64_t i = c * CHUNK_ROWS; i < a->m && i < (c + 1) * CHUNK_ROWS; i++)
            rmsnorm_backward_row(a, i, sums);
    }
}

static void add_dgain(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct rmsnorm_work *w = arg;
    const struct rmsnorm_backward_args *a = w->args;
    for (int64_t c = 0; c < chunks_of(a->m, CHUNK_ROWS); c++)
        add_times(a->dgain + begin, w->sums + c * a->n + begin, 1, end - begin);
}

static size_t rmsnorm_backward_workspace(const void *args, int workers)
{
    const struct rmsnorm_backward_args *a = args;
    (void)workers;
    return a->dgain ? (size_t)(chunks_of(a->m, CHUNK_ROWS) * a->n) * sizeof(float) : 0;
}

static void rmsnorm_backward_run(const struct op_context *context, const void *args)
{
    const struct rmsnorm_backward_args *a = args;
    struct rmsnorm_work w = {a, context->workspace};
    pool_for(context->pool, chunks_of(a->m, CHUNK_ROWS), 1, rmsnorm_backward_chunks, &w);
    if (a->dgain) pool_for(context->pool, a->n, 16 * LANES, add_dgain, &w);
}

const struct op_variant NAMED(rmsnorm_backward) = {.name = NAME_OF(rmsnorm_backward),
                                                   .summary = "vectors along the row",
                                                   .needs = NEEDS,
                                                   .workspace = rmsnorm_backward_workspace,
                                                   .run = rmsnorm_backward_run};

/* ---- rotary_norm ---- */

enum { ROTARY_HALF_MAX = 256 };

struct turns {
    float cosine[ROTARY_HALF_MAX], sine[ROTARY_HALF_MAX];
};

static void turns_of(const float *inv_freq, int32_t position, int64_t half, bool rounded,
                     struct turns *t)
{
    for (int64_t d = 0; d < half; d++) {
        const struct rotation r = rotary_norm_at(inv_freq, position, d, rounded);
        t->cosine[d] = (float)r.cosine;
        t->sine[d] = (float)r.sine;
    }
}

static bool rotary_fits(int64_t head_dim, char why[OP_REASON_MAX])
{
    if (head_dim <= 2 * ROTARY_HALF_MAX) return true;
    snprintf(why, OP_REASON_MAX, "head_dim %lld, at most %d", (long long)head_dim,
             2 * ROTARY_HALF_MAX);
    return false;
}

VECTOR_STEP rotate_step(float *x, int64_t half, const struct turns *t, vfloat *squares, int64_t d,
                        int64_t n)
{
    vfloat a = vector_load_some(x + d, n), b = vector_load_some(x + half + d, n);
    vfloat cosine = vector_load_some(t->cosine + d, n), sine = vector_load_some(t->sine + d, n);
    vfloat first = a * cosine - b * sine, second = b * cosine + a * sine;
    *squares += first * first + second * second;
    vector_store_some(x + d, first, n);
    vector_store_some(x + half + d, second, n);
}

/* Returns what the head was multiplied with. */
static float rotary_norm_head(float *x, int64_t half, const struct turns *t, float eps, float scale)
{
    vfloat squares = {0};
    VECTOR_STEPS(rotate_step, 0, half, x, half, t, &squares);
    float rstd = 1 / sqrtf(vector_sum(squares) / (float)(2 * half) + eps), factor = rstd * scale;
    for (int64_t d = 0; d < 2 * half; d++) x[d] *= factor;
    return rstd;
}

static void rotary_norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct rotary_norm_args *a = arg;
    struct turns t;
    for (int64_t i = begin; i < end; i++) {
        turns_of(a->inv_freq, a->batch->position[i], a->head_dim / 2, a->rounded, &t);
        for (int64_t h = i * a->n_heads; h < (i + 1) * a->n_heads; h++)
            a->rstd[h] = rotary_norm_head(matrix_floats(&a->x) + h * a->head_dim, a->head_dim / 2,
                                          &t, a->eps, a->scale);
    }
}

static bool rotary_norm_can_run(const void *args, const struct op_device *device,
                                char why[OP_REASON_MAX])
{
    (void)device;
    return rotary_fits(((const struct rotary_norm_args *)args)->head_dim, why);
}

static void rotary_norm_run(const struct op_context *context, const void *args)
{
    const struct rotary_norm_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n_heads * a->head_dim), rotary_norm_rows,
             (void *)a);
}

const struct op_variant NAMED(rotary_norm) = {
    .name = NAME_OF(rotary_norm),
    .summary = "one sine and cosine a token and pair, all heads",
    .needs = NEEDS,
    .can_run = rotary_norm_can_run,
    .run = rotary_norm_run};

/* ---- rotary_norm_backward ---- */

struct rotary_head {
    const float *y;
    float *d;
    int64_t half;
    float mean, factor;
};

VECTOR_STEP rotate_back_step(const struct rotary_head *r, const struct turns *t, int64_t j,
                             int64_t n)
{
    const int64_t k = j + r->half;
    vfloat cosine = vector_load_some(t->cosine + j, n), sine = vector_load_some(t->sine + j, n);
    vfloat first = vector_load_some(r->d + j, n) - vector_load_some(r->y + j, n) * r->mean;
    vfloat second = vector_load_some(r->d + k, n) - vector_load_some(r->y + k, n) * r->mean;
    first *= r->factor;
    second *= r->factor;
    vector_store_some(r->d + j, first * cosine + second * sine, n);
    vector_store_some(r->d + k, second * cosine - first * sine, n);
}

static void rotary_norm_backward_head(const struct rotary_norm_backward_args *a, int64_t head,
                                      const struct turns *t)
{
    struct rotary_head r = {.y = matrix_floats(&a->y) + head * a->head_dim,
                            .d = matrix_floats(&a->d) + head * a->head_dim,
                            .half = a->head_dim / 2,
                            .factor = a->scale * a->rstd[head]};
    const double scale = a->scale;
    r.mean = (float)(dot(r.y, r.d, a->head_dim) / (scale * scale * (double)a->head_dim));
    VECTOR_STEPS(rotate_back_step, 0, r.half, &r, t);
}

static void rotary_norm_backward_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct rotary_norm_backward_args *a = arg;
    struct turns t;
    for (int64_t i = begin; i < end; i++) {
        turns_of(a->inv_freq, a->batch->position[i], a->head_dim / 2, a->rounded, &t);
        for (int64_t h = i * a->n_heads; h < (i + 1) * a->n_heads; h++)
            rotary_norm_backward_head(a, h, &t);
    }
}

static bool rotary_norm_backward_can_run(const void *args, const struct op_device *device,
                                         char why[OP_REASON_MAX])
{
    (void)device;
    return rotary_fits(((const struct rotary_norm_backward_args *)args)->head_dim, why);
}

static void rotary_norm_backward_run(const struct op_context *context, const void *args)
{
    const struct rotary_norm_backward_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n_heads * a->head_dim), rotary_norm_backward_rows,
             (void *)a);
}

const struct op_variant NAMED(rotary_norm_backward) = {
    .name = NAME_OF(rotary_norm_backward),
    .summary = "one sine and cosine a token and pair, all heads",
    .needs = NEEDS,
    .can_run = rotary_norm_backward_can_run,
    .run = rotary_norm_backward_run};

/* ---- smear ---- */

/* gate . x in double: a sigmoid between its ends shows the rounding of large terms that cancel. */
static double gate_of(const float *gate, const float *x, int64_t channels)
{
    double sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += (double)gate[c] * x[c];
    return sum;
}

static void smear_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct smear_args *a = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *x = matrix_floats(&a->x) + i * a->n;
        float *y = matrix_floats(&a->y) + i * a->n;
        memcpy(y, x, sizeof(float) * (size_t)a->n);
        if (i % a->length == 0) continue;
        double share = *a->lambda / (1 + exp(-gate_of(a->gate, x, a->channels)));
        add_times(y, x - a->n, (float)share, a->n);
    }
}

static void smear_run(const struct op_context *context, const void *args)
{
    const struct smear_args *a = args;
    pool_for(context->pool, a->sequences * a->length, rows_per_job(a->n), smear_rows, (void *)a);
}

const struct op_variant NAMED(smear) = {
    .name = NAME_OF(smear), .summary = "vectors along the row", .needs = NEEDS, .run = smear_run};

/* ---- smear_backward ---- */

struct smear_work {
    const struct smear_backward_args *args;
    double *sums; /* [chunks of CHUNK_ROWS rows][1 + channels] of dlambda, dgate */
};

/* With s the gate's sigmoid: dz = lambda s (1 - s) dy . x[i - 1]. */
static void smear_backward_row(const struct smear_backward_args *a, int64_t i, double *sums)
{
    const float *x = matrix_floats(&a->x) + i * a->n, *dy = matrix_floats(&a->dy) + i * a->n;
    float *dx = matrix_floats(&a->dx) + i * a->n;
    memcpy(dx, dy, sizeof(float) * (size_t)a->n);
    if ((i + 1) % a->length) {
        double share = *a->lambda / (1 + exp(-gate_of(a->gate, x + a->n, a->channels)));
        add_times(dx, dy + a->n, (float)share, a->n);
    }
    if (i % a->length == 0) return;
    double z = gate_of(a->gate, x, a->channels), e = exp(-fabs(z));
    double along = dot(dy, x - a->n, a->n), dz = *a->lambda * e / ((1 + e) * (1 + e)) * along;
    sums[0] += along / (1 + exp(-z));
    for (int64_t c = 0; c < a->channels; c++) {
        dx[c] += (float)(dz * a->gate[c]);
        sums[1 + c] += dz * x[c];
    }
}

static void smear_backward_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct smear_work *w = arg;
    const struct smear_backward_args *a = w->args;
    for (int64_t c = begin; c < end; c++) {
        double *sums = w->sums + c * (1 + a->channels);
        memset(sums, 0, sizeof(double) * (size_t)(1 + a->channels));
        for (int64_t i = c * CHUNK_ROWS; i < a->sequences * a->length && i < (c + 1) * CHUNK_ROWS;
             i++)
            smear_backward_row(a, i, sums);
    }
}

static size_t smear_backward_workspace(const void *args, int workers)
{
    const struct smear_backward_args *a = args;
    (void)workers;
    return (size_t)(chunks_of(a->sequences * a->length, CHUNK_ROWS) * (1 + a->channels)) *
           sizeof(double);
}

static void smear_backward_run(const struct op_context *context, const void *args)
{
    const struct smear_backward_args *a = args;
    struct smear_work w = {a, context->workspace};
    int64_t chunks = chunks_of(a->sequences * a->length, CHUNK_ROWS);
    pool_for(context->pool, chunks, 1, smear_backward_chunks, &w);
    for (int64_t j = 0; j < 1 + a->channels; j++) {
        float *to = j ? a->dgate + j - 1 : a->dlambda;
        double sum = *to;
        for (int64_t c = 0; c < chunks; c++) sum += w.sums[c * (1 + a->channels) + j];
        *to = (float)sum;
    }
}

const struct op_variant NAMED(smear_backward) = {.name = NAME_OF(smear_backward),
                                                 .summary = "vectors along the row",
                                                 .needs = NEEDS,
                                                 .workspace = smear_backward_workspace,
                                                 .run = smear_backward_run};
