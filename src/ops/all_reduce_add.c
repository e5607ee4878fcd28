/* all_reduce_add: what ranks add to a residual stream, of which each has all. */
#include "ops/collective.h"
#include "ops/ops.h"

#define OP_LIST "ops/all_reduce_add.list"
#include "ops/variant_table.h"

/* Parts in and out once and zeroed, x in and out; sums, and the residual. */
static struct op_cost cost(const void *args)
{
    const struct all_reduce_add_args *a = args;
    const struct collective_args sum = {.ranks = a->ranks, .m = a->m, .n = a->n, .x = a->part};
    return (struct op_cost){op_all_reduce.cost(&sum).flops + (double)(a->m * a->n),
                            2 * matrix_bytes(&a->part) + 2 * matrix_bytes(&a->x)};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct all_reduce_add_args *a = args;
    plan_call(plan, &op_all_reduce,
              &(struct collective_args){.ranks = a->ranks, .m = a->m, .n = a->n, .x = a->part});
    plan_call(plan, &op_add, &(struct add_args){.m = a->m, .n = a->n, .y = a->part, .x = a->x});
    plan_call(plan, &op_fill, &(struct fill_args){.m = a->m, .n = a->n, .x = a->part});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct all_reduce_add_args *)args =
        (struct all_reduce_add_args){.ranks = p->groups,
                                     .m = p->rows,
                                     .n = p->n,
                                     .part = case_rows(c, p->rows, p->n, 1.0f),
                                     .x = case_rows(c, p->rows, p->n, 1.0f)};
}

/* rows, n, ranks */
static const struct case_shape cases[] = {
    {6, {0, 1, 40}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {4, {0, 1, 40}, {8, 1, 40}, {0}, {1, 2, 5}, {0}, {0}, DTYPE_F32},
    {1, {0, 7, 7}, {1, 1 << 17, 1 << 17}, {0}, {1, 3, 3}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct all_reduce_add_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n, .groups = a->ranks};
}

const struct op op_all_reduce_add = {
    .name = "all_reduce_add",
    .summary = "x += the sum of all ranks' part, part = 0; the same bits for each",
    .args_size = sizeof(struct all_reduce_add_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 1e-6f, [NUMERICS_BF16] = 4e-3f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_all_reduce, &op_add, &op_fill},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_F32, .n = 2880, .groups = 2},
    .collective = true,
    .matrices = {{OP_UPDATES, offsetof(struct all_reduce_add_args, part)},
                 {OP_UPDATES, offsetof(struct all_reduce_add_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
