/* relu2: the squared rectifier of a GPT. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/relu2.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct relu2_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){2 * count, 2 * matrix_bytes(&a->x)};
}

/* Written so that a NaN passes through. */
static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct relu2_args *a = args;
    float *x = matrix_floats(&a->x);
    for (int64_t i = 0; i < a->m * a->n; i++) {
        float v = x[i] < 0 ? 0 : x[i];
        x[i] = v * v;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct relu2_args *)args =
        (struct relu2_args){.m = p->rows, .n = p->n, .x = case_rows(c, p->rows, p->n, 1.0f)};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct relu2_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_relu2 = {
    .name = "relu2",
    .summary = "x = max(x, 0)^2, in place; NaN stays NaN, minus infinity is clamped",
    .args_size = sizeof(struct relu2_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 5120},
    .matrices = {{OP_UPDATES, offsetof(struct relu2_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
