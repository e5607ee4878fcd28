/* relu2_backward: of y = max(x, 0)^2 from y itself, whose root is max(x, 0). */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/relu2_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct relu2_backward_args *a = args;
    return (struct op_cost){3 * (double)(a->m * a->n),
                            matrix_bytes(&a->y) + 2 * matrix_bytes(&a->d)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct relu2_backward_args *a = args;
    const float *y = matrix_floats(&a->y);
    float *d = matrix_floats(&a->d);
    for (int64_t i = 0; i < a->m * a->n; i++) d[i] = 2 * sqrtf(y[i]) * d[i];
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct matrix y = case_rows(c, p->rows, p->n, 1.0f);
    float *x = y.data;
    for (int64_t i = 0; x && i < p->rows * p->n; i++) /* the rest are zeros, as of negative ones */
        x[i] = x[i] < 0 ? 0 : x[i] * x[i];
    *(struct relu2_backward_args *)args = (struct relu2_backward_args){
        .m = p->rows, .n = p->n, .y = y, .d = case_rows(c, p->rows, p->n, 1.0f)};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct relu2_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->d.dtype, .n = a->n};
}

const struct op op_relu2_backward = {
    .name = "relu2_backward",
    .summary = "d = 2 sqrt(y) d, in place",
    .args_size = sizeof(struct relu2_backward_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 5120},
    .matrices = {{OP_READS, offsetof(struct relu2_backward_args, y)},
                 {OP_UPDATES, offsetof(struct relu2_backward_args, d)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
