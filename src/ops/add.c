/* add: the residual connection. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/add.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct add_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){count, matrix_bytes(&a->y) + 2 * matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct add_args *a = args;
    float *x = matrix_floats(&a->x);
    const float *y = matrix_floats(&a->y);
    for (int64_t i = 0; i < a->m * a->n; i++) x[i] += y[i];
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct add_args *)args = (struct add_args){.m = p->rows,
                                                 .n = p->n,
                                                 .y = case_rows(c, p->rows, p->n, 1.0f),
                                                 .x = case_rows(c, p->rows, p->n, 1.0f)};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct add_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_add = {
    .name = "add",
    .summary = "x += y, in place",
    .args_size = sizeof(struct add_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 2880},
    .matrices = {{OP_READS, offsetof(struct add_args, y)},
                 {OP_UPDATES, offsetof(struct add_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
