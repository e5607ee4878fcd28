/* rope_backward: a rotation's gradient is the rotation back. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/rope_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct rope_backward_args *a = args;
    const double count = (double)(a->m * a->n_heads * a->head_dim);
    return (struct op_cost){3 * count, 2 * matrix_bytes(&a->d)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct rope_backward_args *a = args;
    const int64_t half = a->head_dim / 2;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t d = 0; d < half; d++) {
            const double angle = (double)a->batch->position[i] * (double)a->inv_freq[d];
            const float cosine = (float)(cos(angle) * (double)a->scale);
            const float sine = (float)(sin(angle) * (double)a->scale);
            for (int64_t h = 0; h < a->n_heads; h++) {
                float *x = matrix_floats(&a->d) + (i * a->n_heads + h) * a->head_dim;
                const float first = x[d], second = x[d + half];
                x[d] = first * cosine + second * sine;
                x[d + half] = second * cosine - first * sine;
            }
        }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t m = p->rows, heads = p->n, dim = p->head_dim;
    float *freq = ARENA_NEW(c->arena, float, dim / 2);
    for (int64_t d = 0; freq && d < dim / 2; d++)
        freq[d] = powf(150000, -2.0f * (float)d / (float)dim);
    *(struct rope_backward_args *)args = (struct rope_backward_args){
        .m = m,
        .n_heads = heads,
        .head_dim = dim,
        .batch = case_batch(c, m, 2, 100000, 1),
        .inv_freq = freq,
        .scale = 1.3465736f,
        .d = case_rows(c, m, heads * dim, 1.0f),
    };
}

/* rows, heads, head_dim */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 9}, {0}, {0}, {0}, {2, 1, 48}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct rope_backward_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->d.dtype, .n = a->n_heads, .head_dim = a->head_dim};
}

const struct op op_rope_backward = {
    .name = "rope_backward",
    .summary = "rotates pairs (d, d + head_dim/2) back, times scale, in place",
    .args_size = sizeof(struct rope_backward_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 64, .head_dim = 64},
    .matrices = {{OP_UPDATES, offsetof(struct rope_backward_args, d)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
