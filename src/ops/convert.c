/* convert: a matrix in another type. */
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/convert.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct convert_args *a = args;
    return (struct op_cost){0, matrix_bytes(&a->from) + matrix_bytes(&a->to)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct convert_args *a = args;
    memcpy(matrix_floats(&a->to), matrix_floats(&a->from), (size_t)(a->m * a->n) * sizeof(float));
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct convert_args *)args = (struct convert_args){.m = p->rows,
                                                         .n = p->n,
                                                         .from = case_rows(c, p->rows, p->n, 1.0f),
                                                         .to = case_output(c, p->rows, p->n)};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 40}, {0, 1, 3000}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct convert_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->to.dtype, .n = a->n};
}

const struct op op_convert = {
    .name = "convert",
    .summary = "to = from, rounded once to the type of `to`",
    .args_size = sizeof(struct convert_args),
    .problem = problem,
    .tolerance = {{1e-7f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct convert_args, from)},
                 {OP_WRITES, offsetof(struct convert_args, to)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
