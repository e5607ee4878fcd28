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

static size_t reference_workspace(const void *args, int workers)
{
    (void)workers;
    const struct collective_args *a = args;
    return collective_room(a->ranks, a->m * a->n);
}

/* Everybody gets everything, and adds up what is its own. */
static void reference(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    struct communicator *c = context->communicator;
    const int64_t n = a->m * a->n;
    float *x = matrix_floats(&a->x), *all = context->workspace;
    for (int64_t i = 0, part; a->ranks > 1 && i < a->ranks * n; i += part) {
        part = n - i % n < COLLECTIVE_PART ? n - i % n : COLLECTIVE_PART;
        const size_t bytes = (size_t)part * sizeof *x;
        if (communicator_all_gather(c, x + i, bytes, all) != SOL_OK) return;
        if (i / n != communicator_rank(c)) continue;
        collective_sum(context->pool, all, a->ranks, part);
        memcpy(x + i, all, bytes);
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    collective_make(c, p, p->groups, args);
}

/* rows of a block, n, ranks */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {1, {0, 3, 3}, {1, 1 << 17, 1 << 17}, {0}, {1, 3, 3}, {0}, {0}, DTYPE_F32}};

const struct op op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "block r of rank r = the sum of all ranks' block r, in place; the rest of x stays",
    .args_size = sizeof(struct collective_args),
    .problem = collective_problem,
    .tolerance = {{1e-6f}}, /* libraries have orders of their own */
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .collective = true,
    .matrices = {{OP_UPDATES, offsetof(struct collective_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};

static size_t exchanged_workspace(const void *args, int workers)
{
    (void)workers;
    const struct collective_args *a = args;
    return collective_room(a->ranks, a->m * a->n);
}

static void exchanged(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks > 1)
        collective_reduce_scatter(context, matrix_floats(&a->x), a->ranks, a->m * a->n);
}

const struct op_variant reduce_scatter_exchanged = {
    .name = "reduce_scatter_exchanged",
    .summary = "each rank gets what it adds up; over the host's memory",
    .workspace = exchanged_workspace,
    .run = exchanged,
};
