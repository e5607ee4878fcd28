/* fill: one number everywhere. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/fill.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct fill_args *a = args;
    return (struct op_cost){0, matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct fill_args *a = args;
    float *x = matrix_floats(&a->x);
    for (int64_t i = 0; i < a->m * a->n; i++) x[i] = a->value;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct fill_args *)args = (struct fill_args){
        .m = p->rows,
        .n = p->n,
        .value = c->kind == CASE_EXTREME ? 0 : 1.5f,
        .x = case_output(c, p->rows, p->n),
    };
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct fill_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n};
}

const struct op op_fill = {
    .name = "fill",
    .summary = "x = value",
    .args_size = sizeof(struct fill_args),
    .problem = problem,
    .tolerance = {{1e-7f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .n = 1280},
    .matrices = {{OP_WRITES, offsetof(struct fill_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
