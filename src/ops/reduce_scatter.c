/* reduce_scatter: the sums of gradients, each to the rank that updates by it. */
#include <string.h>

#include "comm/communicator.h"
#include "ops/collective.h"
#include "ops/ops.h"

#define OP_LIST "ops/reduce_scatter.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct collective_args *a = args;
    return collective_cost(a, a->ranks, 1 + 1 / (double)a->ranks, true);
}

/* Everybody gets everything, and adds up what is its own. */
static void reference(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    const int64_t n = a->m * a->n;
    float *x = matrix_floats(&a->x), *all = context->workspace;
    for (int64_t i = 0, part; a->ranks > 1 && i < a->ranks * n; i += part) {
        part = n - i % n < COLLECTIVE_PART ? n - i % n : COLLECTIVE_PART;
        const size_t bytes = (size_t)part * sizeof *x;
        struct communicator *c = context->communicator;
        if (communicator_all_gather(c, x + i, bytes, all) != SOL_OK) return;
        if (i / n != communicator_rank(c)) continue;
        collective_sum(context->pool, all, a->ranks, part);
        memcpy(x + i, all, bytes);
    }
}

const struct op op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "block r of rank r = the sum of all ranks' block r, in place; the rest of x stays",
    .args_size = sizeof(struct collective_args),
    .problem = collective_problem,
    .tolerance = {{1e-6f}}, /* libraries have orders of their own */
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

static void exchanged(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks > 1)
        collective_reduce_scatter(context, matrix_floats(&a->x), a->ranks, a->m * a->n);
}

const struct op_variant reduce_scatter_exchanged = {
    .name = "reduce_scatter_exchanged",
    .summary = "each rank gets what it adds up; over the host's memory",
    .workspace = collective_workspace,
    .run = exchanged,
};
