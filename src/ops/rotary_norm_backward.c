/* rotary_norm_backward: through the norm of each head, then rotated back. */
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/rotary_norm.h"

#define OP_LIST "ops/rotary_norm_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct rotary_norm_backward_args *a = args;
    return (struct op_cost){11 * (double)(a->m * a->n_heads * a->head_dim),
                            matrix_bytes(&a->y) + 2 * matrix_bytes(&a->d) +
                                4 * (double)(a->m * a->n_heads)};
}

/* With u = y / scale: the gradient of the rotated head is scale rstd (d - u mean(u d)). */
static void head(const struct rotary_norm_backward_args *a, int64_t i, int64_t h)
{
    const int64_t half = a->head_dim / 2, at = (i * a->n_heads + h) * a->head_dim;
    const float *y = matrix_floats(&a->y) + at;
    float *d = matrix_floats(&a->d) + at;
    const double rstd = (double)a->rstd[i * a->n_heads + h], scale = (double)a->scale;
    double along = 0;
    for (int64_t j = 0; j < a->head_dim; j++) along += (double)y[j] * (double)d[j];
    const double mean = along / (scale * scale * (double)a->head_dim);
    for (int64_t j = 0; j < half; j++) {
        const struct rotation r = rotary_norm_at(a->inv_freq, a->batch->position[i], j, a->rounded);
        const double first = scale * rstd * ((double)d[j] - (double)y[j] * mean);
        const double second = scale * rstd * ((double)d[j + half] - (double)y[j + half] * mean);
        d[j] = (float)(first * r.cosine + second * r.sine);
        d[j + half] = (float)(second * r.cosine - first * r.sine);
    }
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct rotary_norm_backward_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t h = 0; h < a->n_heads; h++) head(a, i, h);
}

/* y of the forward op's size: each head's root mean square is scale. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct rotary_norm_args f;
    op_rotary_norm.make_problem(c, p, &f);
    float *y = f.x.data;
    for (int64_t i = 0; y && f.rstd && i < p->rows * p->n; i++) {
        double squares = 0;
        float *at = y + i * p->head_dim;
        for (int64_t d = 0; d < p->head_dim; d++) squares += (double)at[d] * (double)at[d];
        const double rstd = 1 / sqrt(squares / (double)p->head_dim + 1e-7);
        for (int64_t d = 0; d < p->head_dim; d++)
            at[d] = (float)((double)at[d] * rstd * (double)f.scale);
        f.rstd[i] = (float)(rstd < 100 ? rstd : 100);
    }
    *(struct rotary_norm_backward_args *)args = (struct rotary_norm_backward_args){
        .m = f.m,
        .n_heads = f.n_heads,
        .head_dim = f.head_dim,
        .batch = f.batch,
        .inv_freq = f.inv_freq,
        .scale = f.scale,
        .eps = f.eps,
        .rounded = f.rounded,
        .rstd = f.rstd,
        .y = f.x,
        .d = case_rows(c, f.m, f.n_heads * f.head_dim, 1.0f),
    };
}

/* rows, heads, head_dim */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 9}, {0}, {0}, {0}, {2, 1, 48}, DTYPE_F32},
    {3, {0, 1, 40}, {0, 1, 9}, {0}, {0}, {0}, {64, 1, 2}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct rotary_norm_backward_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->d.dtype, .n = a->n_heads, .head_dim = a->head_dim};
}

const struct op op_rotary_norm_backward = {
    .name = "rotary_norm_backward",
    .summary = "gradient of rotary_norm, from what it left, in place",
    .args_size = sizeof(struct rotary_norm_backward_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 10, .head_dim = 128},
    .matrices = {{OP_READS, offsetof(struct rotary_norm_backward_args, y)},
                 {OP_UPDATES, offsetof(struct rotary_norm_backward_args, d)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
