/* join_columns: logits, of which each rank has some columns. */
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/join_columns.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct join_columns_args *a = args;
    return (struct op_cost){0, 2 * matrix_bytes(&a->y)};
}

static void join_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct join_columns_args *a = arg;
    const float *x = matrix_floats(&a->x);
    float *y = matrix_floats(&a->y);
    const int64_t part = a->x.cols;
    for (int64_t i = begin; i < end; i++)
        for (int64_t r = 0, at = 0; r < a->ranks && at < a->n; r++, at += part) {
            const int64_t width = a->n - at < part ? a->n - at : part;
            memcpy(y + i * a->n + at, x + (r * a->m + i) * part, (size_t)width * sizeof *y);
        }
}

static void reference(const struct op_context *context, const void *args)
{
    const struct join_columns_args *a = args;
    pool_for(context->pool, a->m, 1, join_rows, (void *)(uintptr_t)a);
}

/* The last block is not used whole. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t part = (p->n + p->groups - 1) / p->groups + 1;
    *(struct join_columns_args *)args =
        (struct join_columns_args){.m = p->rows,
                                   .n = p->n,
                                   .ranks = p->groups,
                                   .x = case_rows(c, p->groups * p->rows, part, 1.0f),
                                   .y = case_output(c, p->rows, p->n)};
}

/* rows, n, blocks */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {1, {1, 3, 3}, {1, 5000, 9000}, {0}, {1, 2, 4}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct join_columns_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n, .groups = a->ranks};
}

const struct op op_join_columns = {
    .name = "join_columns",
    .summary = "y[i] = row i of every block of x, one behind the other, as far as y goes",
    .args_size = sizeof(struct join_columns_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 32, .n = 201088, .groups = 2},
    .matrices = {{OP_READS, offsetof(struct join_columns_args, x)},
                 {OP_WRITES, offsetof(struct join_columns_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
