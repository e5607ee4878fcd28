/* gather_rows: rows in another order, some of them many times. */
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/gather_rows.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct gather_rows_args *a = args;
    return (struct op_cost){0, 2 * matrix_bytes(&a->y) + 4 * (double)a->m};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct gather_rows_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        memcpy(matrix_floats(&a->y) + i * a->n, matrix_floats(&a->x) + a->rows[i] * a->n,
               sizeof(float) * (size_t)a->n);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    enum { EXPERTS = 9 };
    const int64_t tokens = p->rows, m = tokens * p->top_k;
    *(struct gather_rows_args *)args = (struct gather_rows_args){
        .m = m,
        .n = p->n,
        .rows = case_routing(c, tokens, EXPERTS, p->top_k).token_of_row,
        .x = case_rows(c, tokens, p->n, 1.0f),
        .y = case_output(c, m, p->n),
    };
}

/* rows, n, of a token */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {1, 1, 4}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct gather_rows_args *a = args;
    *out = (struct op_problem){.rows = a->x.rows,
                               .dtype = a->y.dtype,
                               .n = a->n,
                               .top_k = a->x.rows ? a->m / a->x.rows : 0};
}

const struct op op_gather_rows = {
    .name = "gather_rows",
    .summary = "y[i] = x[rows[i]]",
    .args_size = sizeof(struct gather_rows_args),
    .problem = problem,
    .tolerance = {{1e-7f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 2880, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct gather_rows_args, x)},
                 {OP_WRITES, offsetof(struct gather_rows_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
