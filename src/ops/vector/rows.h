/* Kernels that walk over rows, for any instruction set: rmsnorm, rope, add, swiglu,
 * silu_mul, combine, kv_write. The including file (src/ops/x86/avx2/rows_avx2.c, ...) sets LANES,
 * NEEDS (feature bits) and NAMED(op), the name of each variant. They are bound by memory or by
 * their share of a step, so plain loops over vectors are enough; what matters is that all threads
 * take part. */
#include <math.h>
#include <stdio.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/grain.h"
#include "ops/vector/vector.h"

/* ---- rmsnorm ---- */

static float sum_of_squares(const float *x, int64_t n)
{
    vfloat sum[4] = {{0}};
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int u = 0; u < 4; u++) {
            vfloat v = vector_load(x + j + u * LANES);
            sum[u] += v * v;
        }
    for (; j < n; j += LANES) {
        vfloat v = vector_load_some(x + j, n - j < LANES ? n - j : LANES);
        sum[0] += v * v;
    }
    return vector_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void rmsnorm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct rmsnorm_args *a = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *x = matrix_floats(&a->x) + (a->rows ? a->rows[i] : i) * a->n;
        float *y = matrix_floats(&a->y) + i * a->n;
        float scale = 1.0f / sqrtf(sum_of_squares(x, a->n) / (float)a->n + a->eps);
        int64_t j = 0;
        for (; j + LANES <= a->n; j += LANES) {
            vfloat v = vector_load(x + j) * scale;
            vector_store(y + j, a->gain ? v * vector_load(a->gain + j) : v);
        }
        for (; j < a->n; j++) y[j] = x[j] * scale * (a->gain ? a->gain[j] : 1);
    }
}

static void rmsnorm_run(const struct op_context *context, const void *args)
{
    const struct rmsnorm_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n), rmsnorm_rows, (void *)a);
}

const struct op_variant NAMED(rmsnorm) = {.name = NAME_OF(rmsnorm),
                                          .summary = "vectors along the row",
                                          .needs = NEEDS,
                                          .run = rmsnorm_run};

/* ---- rope ---- */

enum { ROPE_HALF_MAX = 256 };

/* Angles in double: at position 131072 a float32 product would be off by 0.004 radians. */
static void rope_token(const struct rope_args *a, int64_t i)
{
    float cosine[ROPE_HALF_MAX], sine[ROPE_HALF_MAX];
    int64_t half = a->head_dim / 2;
    for (int64_t d = 0; d < half; d++) {
        double angle = (double)a->batch->position[i] * a->inv_freq[d];
        cosine[d] = (float)(cos(angle) * a->scale);
        sine[d] = (float)(sin(angle) * a->scale);
    }
    for (int64_t h = 0; h < a->n_heads; h++) {
        float *x = matrix_floats(&a->x) + (i * a->n_heads + h) * a->head_dim, *y = x + half;
        for (int64_t d = 0; d < half; d++) {
            float first = x[d], second = y[d];
            x[d] = first * cosine[d] - second * sine[d];
            y[d] = second * cosine[d] + first * sine[d];
        }
    }
}

static void rope_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) rope_token(arg, i);
}

static bool rope_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    const struct rope_args *a = args;
    if (a->head_dim <= 2 * ROPE_HALF_MAX) return true;
    snprintf(why, OP_REASON_MAX, "head_dim %lld, at most %d", (long long)a->head_dim,
             2 * ROPE_HALF_MAX);
    return false;
}

static void rope_run(const struct op_context *context, const void *args)
{
    const struct rope_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n_heads * a->head_dim), rope_rows, (void *)a);
}

const struct op_variant NAMED(rope) = {.name = NAME_OF(rope),
                                       .summary = "one sine and cosine a token and pair, all heads",
                                       .needs = NEEDS,
                                       .can_run = rope_can_run,
                                       .run = rope_run};

/* ---- add ---- */

static void add_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct add_args *a = arg;
    float *x = matrix_floats(&a->x);
    const float *y = matrix_floats(&a->y);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        vector_store(x + i, vector_load(x + i) + vector_load(y + i));
    for (; i < end; i++) x[i] += y[i];
}

static void add_run(const struct op_context *context, const void *args)
{
    const struct add_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, add_span, (void *)a);
}

const struct op_variant NAMED(add) = {.name = NAME_OF(add),
                                      .summary = "vectors over the whole matrix",
                                      .needs = NEEDS,
                                      .run = add_run};

/* ---- swiglu ---- */

static vfloat swiglu_vector(vfloat gate, vfloat up, float alpha, float limit)
{
    gate = vector_at_most(gate, limit);
    up = vector_at_least(vector_at_most(up, limit), -limit);
    return gate / (vector_exp(gate * -alpha) + 1.0f) * (up + 1.0f);
}

static void swiglu_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct swiglu_args *a = arg;
    float *x = matrix_floats(&a->gate);
    const float *y = matrix_floats(&a->up);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        vector_store(x + i,
                     swiglu_vector(vector_load(x + i), vector_load(y + i), a->alpha, a->limit));
    if (i == end) return;
    vfloat gate = vector_load_some(x + i, end - i), up = vector_load_some(y + i, end - i);
    vector_store_some(x + i, swiglu_vector(gate, up, a->alpha, a->limit), end - i);
}

static void swiglu_run(const struct op_context *context, const void *args)
{
    const struct swiglu_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, swiglu_span, (void *)a);
}

const struct op_variant NAMED(swiglu) = {.name = NAME_OF(swiglu),
                                         .summary = "polynomial exp in vectors",
                                         .needs = NEEDS,
                                         .run = swiglu_run};

/* ---- silu_mul ---- */

static vfloat silu_mul_vector(vfloat gate, vfloat up)
{
    return gate / (vector_exp(-gate) + 1.0f) * up;
}

static void silu_mul_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct silu_mul_args *a = arg;
    float *x = matrix_floats(&a->gate);
    const float *y = matrix_floats(&a->up);
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES)
        vector_store(x + i, silu_mul_vector(vector_load(x + i), vector_load(y + i)));
    if (i == end) return;
    vfloat gate = vector_load_some(x + i, end - i), up = vector_load_some(y + i, end - i);
    vector_store_some(x + i, silu_mul_vector(gate, up), end - i);
}

static void silu_mul_run(const struct op_context *context, const void *args)
{
    const struct silu_mul_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, silu_mul_span, (void *)a);
}

const struct op_variant NAMED(silu_mul) = {.name = NAME_OF(silu_mul),
                                           .summary = "polynomial exp in vectors",
                                           .needs = NEEDS,
                                           .run = silu_mul_run};

/* ---- combine ---- */

static void combine_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct combine_args *a = arg;
    for (int64_t i = begin; i < end; i++) {
        float *x = matrix_floats(&a->x) + i * a->n;
        for (int64_t s = i * a->top_k; s < (i + 1) * a->top_k; s++) {
            if (a->routing.row_of_slot[s] < 0) continue;
            const float *y = matrix_floats(&a->y) + a->routing.row_of_slot[s] * a->n;
            float weight = a->routing.weight[s];
            int64_t j = 0;
            for (; j + LANES <= a->n; j += LANES)
                vector_store(x + j, vector_load(x + j) + vector_load(y + j) * weight);
            for (; j < a->n; j++) x[j] += weight * y[j];
        }
    }
}

static void combine_run(const struct op_context *context, const void *args)
{
    const struct combine_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n * a->top_k), combine_rows, (void *)a);
}

const struct op_variant NAMED(combine) = {
    .name = NAME_OF(combine), .summary = "a row at a time", .needs = NEEDS, .run = combine_run};

/* ---- kv_write ---- */

enum { KV_DIM_MAX = 512 };

/* The key is encoded in one go and then spread over its block's lanes. */
static void kv_write_head(const struct kv_write_args *a, int64_t i, int64_t h)
{
    const struct kv_layer *kv = &a->kv;
    const struct dtype_info *info = dtype_info(kv->dtype);
    int32_t sequence = a->batch->sequence[i], position = a->batch->position[i];
    int64_t row = (i * kv->n_kv_heads + h) * kv->head_dim;
    int64_t k = kv_k_index(kv, sequence, h, position), v = kv_v_index(kv, sequence, h, position);
    info->encode(matrix_floats(&a->v) + row, (char *)kv->v + (size_t)v * info->block_bytes,
                 kv->head_dim);
    uint32_t encoded[KV_DIM_MAX];
    info->encode(matrix_floats(&a->k) + row, encoded, kv->head_dim);
    const uint16_t *halves = (const uint16_t *)encoded;
    for (int64_t d = 0; d < kv->head_dim; d++) {
        if (info->block_bytes == 2)
            ((uint16_t *)kv->k)[k + d * KV_BLOCK] = halves[d];
        else
            ((uint32_t *)kv->k)[k + d * KV_BLOCK] = encoded[d];
    }
}

static void kv_write_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct kv_write_args *a = arg;
    for (int64_t i = begin; i < end; i++)
        for (int64_t h = 0; h < a->kv.n_kv_heads; h++) kv_write_head(a, i, h);
}

static bool kv_write_can_run(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    (void)device;
    const struct kv_write_args *a = args;
    if (a->kv.head_dim <= KV_DIM_MAX) return true;
    snprintf(why, OP_REASON_MAX, "head_dim %lld, at most %d", (long long)a->kv.head_dim,
             KV_DIM_MAX);
    return false;
}

static void kv_write_run(const struct op_context *context, const void *args)
{
    const struct kv_write_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(8 * a->kv.n_kv_heads * a->kv.head_dim),
             kv_write_rows, (void *)a);
}

const struct op_variant NAMED(kv_write) = {.name = NAME_OF(kv_write),
                                           .summary = "rows in parallel",
                                           .needs = NEEDS,
                                           .can_run = kv_write_can_run,
                                           .run = kv_write_run};
