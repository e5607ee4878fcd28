/* rotary_norm: queries and keys rotated by their position, and each head normed. */
#include "ops/rotary_norm.h"

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/rotary_norm.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct rotary_norm_args *a = args;
    return (struct op_cost){7 * (double)(a->m * a->n_heads * a->head_dim),
                            2 * matrix_bytes(&a->x) + 4 * (double)(a->m * a->n_heads)};
}

static void head(const struct rotary_norm_args *a, int64_t i, int64_t h)
{
    const int64_t half = a->head_dim / 2;
    float *x = matrix_floats(&a->x) + (i * a->n_heads + h) * a->head_dim;
    double squares = 0;
    for (int64_t d = 0; d < half; d++) {
        const struct rotation r = rotary_norm_at(a->inv_freq, a->batch->position[i], d, a->rounded);
        const double first = (double)x[d] * r.cosine - (double)x[d + half] * r.sine;
        const double second = (double)x[d + half] * r.cosine + (double)x[d] * r.sine;
        squares += first * first + second * second;
    }
    const double rstd = 1 / sqrt(squares / (double)a->head_dim + (double)a->eps);
    for (int64_t d = 0; d < half; d++) {
        const struct rotation r = rotary_norm_at(a->inv_freq, a->batch->position[i], d, a->rounded);
        const double first = (double)x[d] * r.cosine - (double)x[d + half] * r.sine;
        const double second = (double)x[d + half] * r.cosine + (double)x[d] * r.sine;
        x[d] = (float)(first * rstd * (double)a->scale);
        x[d + half] = (float)(second * rstd * (double)a->scale);
    }
    a->rstd[i * a->n_heads + h] = (float)rstd;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct rotary_norm_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t h = 0; h < a->n_heads; h++) head(a, i, h);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t m = p->rows, heads = p->n, dim = p->head_dim;
    float *freq = ARENA_NEW(c->arena, float, dim / 2);
    for (int64_t d = 0; freq && d < dim / 2; d++)
        freq[d] = -powf(100000, -2.0f * (float)d / (float)dim);
    *(struct rotary_norm_args *)args = (struct rotary_norm_args){
        .m = m,
        .n_heads = heads,
        .head_dim = dim,
        .batch = case_batch(c, m, 2, 4000, 1),
        .inv_freq = freq,
        .scale = 1.2f,
        .eps = 0x1p-23f,
        .rounded = c->index % 3 == 2,
        .x = case_rows(c, m, heads * dim, 1.0f),
        .rstd = case_vector(c, m * heads, 1.0f),
    };
}

/* rows, heads, head_dim */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 9}, {0}, {0}, {0}, {2, 1, 48}, DTYPE_F32},
    {3, {0, 1, 40}, {0, 1, 9}, {0}, {0}, {0}, {64, 1, 2}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct rotary_norm_args *a = args;
    outputs[0] = (struct op_output){offsetof(struct rotary_norm_args, rstd),
                                    (size_t)(a->m * a->n_heads) * sizeof(float), true, a->n_heads,
                                    DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct rotary_norm_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->x.dtype, .n = a->n_heads, .head_dim = a->head_dim};
}

const struct op op_rotary_norm = {
    .name = "rotary_norm",
    .summary =
        "each head rotated by its position, over its root mean square, times scale, in place",
    .args_size = sizeof(struct rotary_norm_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 10, .head_dim = 128},
    .matrices = {{OP_UPDATES, offsetof(struct rotary_norm_args, x)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
