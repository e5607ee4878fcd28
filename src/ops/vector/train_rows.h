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
    for (; i < n; i += LANES) {
        int64_t some = n - i < LANES ? n - i : LANES;
        sum[0] += vector_load_some(a + i, some) * vector_load_some(b + i, some);
    }
    return vector_sum(sum[0] + sum[1]);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += SUM_SPAN)
        sum += dot_span(a + i, b + i, n - i < SUM_SPAN ? n - i : SUM_SPAN);
    return sum;
}

/* to += factor * from */
static void add_times(float *to, const float *from, float factor, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vector_store(to + i, vector_load(to + i) + vector_load(from + i) * factor);
    if (i == n) return;
    vfloat rest = vector_load_some(to + i, n - i) + vector_load_some(from + i, n - i) * factor;
    vector_store_some(to + i, rest, n - i);
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

static void softcap_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct softcap_args *a = arg;
    float *x = matrix_floats(&a->x);
    for (int64_t i = begin; i < end; i += LANES) {
        int64_t some = end - i < LANES ? end - i : LANES;
        vfloat v = vector_load_some(x + i, some) / a->cap;
        vector_store_some(x + i, vector_tanh(v) * a->cap, some);
    }
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

/* ---- fill ---- */

static void fill_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct fill_args *a = arg;
    float *x = matrix_floats(&a->x);
    for (int64_t i = begin; i < end; i++) x[i] = a->value;
}

static void fill_run(const struct op_context *context, const void *args)
{
    const struct fill_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, fill_span, (void *)a);
}

const struct op_variant NAMED(fill) = {.name = NAME_OF(fill),
                                       .summary = "vectors over the whole matrix",
                                       .needs = NEEDS,
                                       .run = fill_run};

/* ---- axpby_backward ---- */

struct axpby_work {
    const struct axpby_backward_args *args;
    double *sums; /* [chunks of ROWS_GRAIN elements][2] of da and db */
};

static void axpby_backward_chunk(const struct axpby_backward_args *p, int64_t at, int64_t n,
                                 double sums[2])
{
    const float a = p->a ? *p->a : 1, b = p->factor * (p->b ? *p->b : 1);
    float *d = matrix_floats(&p->d) + at, *dy = matrix_floats(&p->dy) + at;
    sums[0] = p->da ? dot(d, matrix_floats(&p->x) + at, n) : 0;
    sums[1] = p->db ? dot(d, matrix_floats(&p->y) + at, n) : 0;
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t some = n - i < LANES ? n - i : LANES;
        vfloat v = vector_load_some(d + i, some);
        vfloat before = p->first ? vector_set(0) : vector_load_some(dy + i, some);
        vector_store_some(dy + i, before + v * b, some);
        vector_store_some(d + i, v * a, some);
    }
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

/* The sums of x^2 and of x dy gain. */
static void norm_sums(const float *x, const float *dy, const float *gain, int64_t n, double sums[2])
{
    sums[0] = sums[1] = 0;
    for (int64_t from = 0; from < n; from += SUM_SPAN) {
        int64_t end = n - from < SUM_SPAN ? n : from + SUM_SPAN;
        vfloat squares = {0}, along = {0};
        for (int64_t j = from; j < end; j += LANES) {
            int64_t some = end - j < LANES ? end - j : LANES;
            vfloat v = vector_load_some(x + j, some), d = vector_load_some(dy + j, some);
            if (gain) d *= vector_load_some(gain + j, some);
            squares += v * v;
            along += v * d;
        }
        sums[0] += vector_sum(squares);
        sums[1] += vector_sum(along);
    }
}

static void rmsnorm_backward_row(const struct rmsnorm_backward_args *a, int64_t i, float *dgain)
{
    const float *x = matrix_floats(&a->x) + i * a->n, *dy = matrix_floats(&a->dy) + i * a->n;
    float *dx = matrix_floats(&a->dx) + i * a->n;
    double sums[2], n = (double)a->n;
    norm_sums(x, dy, a->gain, a->n, sums);
    double r = 1 / sqrt(sums[0] / n + a->eps);
    float scale = (float)r, share = (float)(sums[1] / n * r * r * r);
    for (int64_t j = 0; j < a->n; j += LANES) {
        int64_t some = a->n - j < LANES ? a->n - j : LANES;
        vfloat v = vector_load_some(x + j, some), d = vector_load_some(dy + j, some);
        if (dgain)
            vector_store_some(dgain + j, vector_load_some(dgain + j, some) + v * d * scale, some);
        if (a->gain) d *= vector_load_some(a->gain + j, some);
        vector_store_some(dx + j, vector_load_some(dx + j, some) + (d * scale - v * share), some);
    }
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

/* Returns what the head was multiplied with. */
static float rotary_norm_head(float *x, int64_t half, const struct turns *t, float eps, float scale)
{
    float *y = x + half;
    vfloat squares = {0};
    for (int64_t d = 0; d < half; d += LANES) {
        int64_t some = half - d < LANES ? half - d : LANES;
        vfloat a = vector_load_some(x + d, some), b = vector_load_some(y + d, some);
        vfloat cosine = vector_load_some(t->cosine + d, some);
        vfloat sine = vector_load_some(t->sine + d, some);
        vfloat first = a * cosine - b * sine, second = b * cosine + a * sine;
        squares += first * first + second * second;
        vector_store_some(x + d, first, some);
        vector_store_some(y + d, second, some);
    }
    float rstd = 1 / sqrtf(vector_sum(squares) / (float)(2 * half) + eps);
    for (int64_t d = 0; d < 2 * half; d++) x[d] *= rstd * scale;
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

static void rotary_norm_backward_head(const struct rotary_norm_backward_args *a, int64_t head,
                                      const struct turns *t)
{
    const int64_t half = a->head_dim / 2;
    const float *y = matrix_floats(&a->y) + head * a->head_dim;
    float *d = matrix_floats(&a->d) + head * a->head_dim;
    const double along = dot(y, d, a->head_dim), scale = a->scale;
    const float mean = (float)(along / (scale * scale * (double)a->head_dim));
    const float factor = a->scale * a->rstd[head];
    for (int64_t j = 0; j < half; j += LANES) {
        int64_t some = half - j < LANES ? half - j : LANES;
        vfloat first = vector_load_some(d + j, some), second = vector_load_some(d + half + j, some);
        vfloat cosine = vector_load_some(t->cosine + j, some);
        vfloat sine = vector_load_some(t->sine + j, some);
        first = (first - vector_load_some(y + j, some) * mean) * factor;
        second = (second - vector_load_some(y + half + j, some) * mean) * factor;
        vector_store_some(d + j, first * cosine + second * sine, some);
        vector_store_some(d + half + j, second * cosine - first * sine, some);
    }
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
