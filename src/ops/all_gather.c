/* all_gather: weights, each from the rank that updated it. */
#include "ops/collective.h"
#include "ops/ops.h"

#define OP_LIST "ops/all_gather.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct collective_args *a = args;
    return collective_cost(a, a->ranks, 1 + 1 / (double)a->ranks, false);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks > 1) collective_all_gather(context, matrix_floats(&a->x), a->ranks, a->m * a->n);
}

const struct op op_all_gather = {
    .name = "all_gather",
    .summary = "block r of x = rank r's block r, in place",
    .args_size = sizeof(struct collective_args),
    .problem = collective_problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = collective_workspace,
    OP_CASES(collective_block_cases),
    .make_problem = collective_make_blocks,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .collective = true,
    .matrices = {{OP_UPDATES, offsetof(struct collective_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
