/* adamw: a step of AdamW (arXiv 1711.05101), weight decay before the update. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/adamw.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct adamw_args *a = args;
    double bytes = matrix_bytes(&a->p) + matrix_bytes(&a->g) + matrix_bytes(&a->mean) +
                   matrix_bytes(&a->square);
    return (struct op_cost){14 * (double)(a->m * a->n), 2 * bytes};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct adamw_args *a = args;
    const struct adamw_step *s = a->step;
    const float clip = a->clip ? *a->clip : 1;
    float *p = matrix_floats(&a->p), *g = matrix_floats(&a->g);
    float *mean = matrix_floats(&a->mean), *square = matrix_floats(&a->square);
    for (int64_t i = 0; i < a->m * a->n; i++) {
        const float grad = g[i] * clip;
        mean[i] += (grad - mean[i]) * (1 - s->beta1);
        square[i] += (grad * grad - square[i]) * (1 - s->beta2);
        const float root = sqrtf(square[i] / s->correction2) + s->eps;
        p[i] = p[i] * (1 - s->lr * s->decay) - s->lr / s->correction1 * (mean[i] / root);
        g[i] = 0;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t m = p->rows, n = p->n, step = rng_range(c->rng, 1, 9);
    struct adamw_step *s = ARENA_NEW(c->arena, struct adamw_step, 1);
    float *clip = case_vector(c, 1, 1.0f);
    if (clip) *clip = 0.5f;
    if (s)
        *s = (struct adamw_step){.lr = 0.01f,
                                 .beta1 = 0.8f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-10f,
                                 .decay = 0.1f,
                                 .correction1 = (float)(1 - pow(0.8, (double)step)),
                                 .correction2 = (float)(1 - pow(0.95, (double)step))};
    struct matrix square = case_rows(c, m, n, 0.1f);
    float *x = square.data;
    for (int64_t i = 0; x && i < m * n; i++) x[i] = x[i] * x[i]; /* a mean of squares */
    *(struct adamw_args *)args = (struct adamw_args){.m = m,
                                                     .n = n,
                                                     .step = s,
                                                     .clip = c->index % 2 ? clip : NULL,
                                                     .p = case_rows(c, m, n, 1.0f),
                                                     .g = case_rows(c, m, n, 0.1f),
                                                     .mean = case_rows(c, m, n, 0.1f),
                                                     .square = square};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 40}, {0, 1, 3000}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct adamw_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->p.dtype, .n = a->n};
}

const struct op op_adamw = {
    .name = "adamw",
    .summary = "a step of AdamW, weight decay first; the gradient is 0 after it",
    .args_size = sizeof(struct adamw_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 32768, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_UPDATES, offsetof(struct adamw_args, p)},
                 {OP_UPDATES, offsetof(struct adamw_args, g)},
                 {OP_UPDATES, offsetof(struct adamw_args, mean)},
                 {OP_UPDATES, offsetof(struct adamw_args, square)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
