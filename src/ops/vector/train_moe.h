/* What gpt-oss's passes in training do row by row, for any instruction set: biases, swiglu's
 * gradient, and rows to experts and from them. The including file sets LANES, NEEDS and
 * NAMED(op) as for rows.h. Sums over rows belong to who has their columns and are made in the order
 * of rows: results have the same bits with any number of workers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/grain.h"
#include "ops/vector/vector.h"

VECTOR_STEP add_step(float *to, const float *from, int64_t i, int64_t n)
{
    vector_store_some(to + i, vector_load_some(to + i, n) + vector_load_some(from + i, n), n);
}

/* ---- add_bias ---- */

static void add_bias_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct add_bias_args *a = arg;
    int64_t group = 0;
    for (int64_t i = begin; i < end; i++) {
        while (a->group_offsets && a->group_offsets[group + 1] <= i) group++;
        float *y = matrix_floats(&a->y) + i * a->n;
        const float *bias = a->bias + group * a->n;
        VECTOR_STEPS(add_step, 0, a->n, y, bias);
    }
}

static void add_bias_run(const struct op_context *context, const void *args)
{
    const struct add_bias_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n), add_bias_rows, (void *)a);
}

const struct op_variant NAMED(add_bias) = {
    .name = NAME_OF(add_bias), .summary = "a row at a time", .needs = NEEDS, .run = add_bias_run};

/* ---- bias_backward ---- */

/* Float32 sums are of as many rows as keep them within a few units of the last place. */
enum { BIAS_COLS = 4 * LANES, BIAS_ROWS = 64 };

/* Columns from `at` on of the rows of a group. */
static void bias_backward_tile(const struct bias_backward_args *a, int64_t group, int64_t at)
{
    const int64_t first = a->group_offsets ? a->group_offsets[group] : 0;
    const int64_t end = a->group_offsets ? a->group_offsets[group + 1] : a->m;
    const int64_t cols = a->n - at < BIAS_COLS ? a->n - at : BIAS_COLS;
    const float *dy = matrix_floats(&a->dy) + at;
    float *dbias = a->dbias + group * a->n + at;
    double total[BIAS_COLS] = {0};
    for (int64_t i0 = first; i0 < end; i0 += BIAS_ROWS) {
        float sum[BIAS_COLS] = {0};
        for (int64_t i = i0; i < end && i < i0 + BIAS_ROWS; i++)
            VECTOR_STEPS(add_step, 0, cols, sum, dy + i * a->n);
        for (int64_t j = 0; j < cols; j++) total[j] += (double)sum[j];
    }
    for (int64_t j = 0; j < cols; j++) dbias[j] = (float)((double)dbias[j] + total[j]);
}

static void bias_backward_tiles(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct bias_backward_args *a = arg;
    const int64_t tiles = (a->n + BIAS_COLS - 1) / BIAS_COLS;
    for (int64_t i = begin; i < end; i++) bias_backward_tile(a, i / tiles, i % tiles * BIAS_COLS);
}

static void bias_backward_run(const struct op_context *context, const void *args)
{
    const struct bias_backward_args *a = args;
    const int64_t tiles = (a->n + BIAS_COLS - 1) / BIAS_COLS;
    pool_for(context->pool, a->groups * tiles, rows_per_job(a->m / a->groups * BIAS_COLS),
             bias_backward_tiles, (void *)a);
}

const struct op_variant NAMED(bias_backward) = {.name = NAME_OF(bias_backward),
                                                .summary = "columns of a group in parallel",
                                                .needs = NEEDS,
                                                .run = bias_backward_run};

/* ---- swiglu_backward ---- */

VECTOR_STEP swiglu_backward_step(const struct swiglu_backward_args *a, int64_t i, int64_t n)
{
    float *d = matrix_floats(&a->d) + i;
    const vfloat gate = vector_load_some(matrix_floats(&a->gate) + i, n);
    const vfloat up = vector_load_some(matrix_floats(&a->up) + i, n);
    const vfloat limit = vector_set(a->limit), dout = vector_load_some(d, n), zero = {0};
    const vfloat g = vector_at_most(gate, a->limit);
    const vfloat u = vector_at_least(vector_at_most(up, a->limit), -a->limit);
    /* With e = exp(-alpha g): s = 1 / (1 + e), and 1 - s = e s, which does not cancel. Where
     * vector_exp clamps e, s is 0. */
    const vfloat x = g * -a->alpha, e = vector_exp(x);
    const vfloat s = vector_select(x > vector_set(88), zero, 1.0f / (e + 1.0f));
    const vfloat gate_slope = s * (u + 1.0f) * (1.0f + a->alpha * g * (e * s));
    vector_store_some(d, dout * vector_select(gate > limit, zero, gate_slope), n);
    vector_store_some(matrix_floats(&a->dup) + i,
                      dout * vector_select((up > limit) | (up < -limit), zero, g * s), n);
}

static void swiglu_backward_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct swiglu_backward_args *a = arg;
    VECTOR_STEPS(swiglu_backward_step, begin, end, a);
}

static void swiglu_backward_run(const struct op_context *context, const void *args)
{
    const struct swiglu_backward_args *a = args;
    pool_for(context->pool, a->m * a->n, ROWS_GRAIN, swiglu_backward_span, (void *)a);
}

const struct op_variant NAMED(swiglu_backward) = {.name = NAME_OF(swiglu_backward),
                                                  .summary = "polynomial exp in vectors",
                                                  .needs = NEEDS,
                                                  .run = swiglu_backward_run};

/* ---- combine_backward ---- */

/* Sums in float32 are of as many numbers a lane as keep them within a few units of the last place;
 * theirs are made in double. */
enum { DOT_SPAN = 1024 };

VECTOR_STEP combine_backward_step(const float *y, const float *dx, float *dy, float weight,
                                  vfloat *sum, int64_t i, int64_t n)
{
    const vfloat d = vector_load_some(dx + i, n);
    *sum += vector_load_some(y + i, n) * d;
    vector_store_some(dy + i, d * weight, n);
}

static void combine_backward_slots(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct combine_backward_args *a = arg;
    for (int64_t slot = begin; slot < end; slot++) {
        const int64_t row = a->routing.row_of_slot[slot] * a->n;
        const float *dx = matrix_floats(&a->dx) + slot / a->top_k * a->n;
        const float *y = matrix_floats(&a->y) + row;
        float *dy = matrix_floats(&a->dy) + row;
        double along = 0;
        for (int64_t j = 0; j < a->n; j += DOT_SPAN) {
            const int64_t stop = a->n - j < DOT_SPAN ? a->n : j + DOT_SPAN;
            vfloat sum = {0};
            VECTOR_STEPS(combine_backward_step, j, stop, y, dx, dy, a->routing.weight[slot], &sum);
            along += (double)vector_sum(sum);
        }
        a->dweight[slot] = (float)along;
    }
}

static void combine_backward_run(const struct op_context *context, const void *args)
{
    const struct combine_backward_args *a = args;
    pool_for(context->pool, a->m * a->top_k, rows_per_job(a->n), combine_backward_slots, (void *)a);
}

const struct op_variant NAMED(combine_backward) = {.name = NAME_OF(combine_backward),
                                                   .summary = "slots in parallel",
                                                   .needs = NEEDS,
                                                   .run = combine_backward_run};

/* ---- gather_rows ---- */

static void gather_rows_span(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct gather_rows_args *a = arg;
    for (int64_t i = begin; i < end; i++)
        memcpy(matrix_floats(&a->y) + i * a->n, matrix_floats(&a->x) + a->rows[i] * a->n,
               sizeof(float) * (size_t)a->n);
}

static void gather_rows_run(const struct op_context *context, const void *args)
{
    const struct gather_rows_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n), gather_rows_span, (void *)a);
}

const struct op_variant NAMED(gather_rows) = {.name = NAME_OF(gather_rows),
                                              .summary = "rows in parallel",
                                              .needs = NEEDS,
                                              .run = gather_rows_run};

/* ---- gather_rows_backward ---- */

static void gather_rows_backward_tokens(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct gather_rows_backward_args *a = arg;
    for (int64_t slot = begin * a->top_k; slot < end * a->top_k; slot++) {
        const float *d = matrix_floats(&a->d) + a->row_of_slot[slot] * a->n;
        float *dx = matrix_floats(&a->dx) + slot / a->top_k * a->n;
        VECTOR_STEPS(add_step, 0, a->n, dx, d);
    }
}

static void gather_rows_backward_run(const struct op_context *context, const void *args)
{
    const struct gather_rows_backward_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n * a->top_k), gather_rows_backward_tokens,
             (void *)a);
}

const struct op_variant NAMED(gather_rows_backward) = {.name = NAME_OF(gather_rows_backward),
                                                       .summary = "tokens in parallel",
                                                       .needs = NEEDS,
                                                       .run = gather_rows_backward_run};
