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

static size_t reference_workspace(const void *args, int workers)
{
    (void)workers;
    const struct collective_args *a = args;
    return collective_room(a->ranks, a->m * a->n);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    if (a->ranks > 1) collective_all_gather(context, matrix_floats(&a->x), a->ranks, a->m * a->n);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    collective_make(c, p, p->groups, args);
}

/* rows of a block, n, ranks */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {1, {0, 3, 3}, {1, 1 << 17, 1 << 17}, {0}, {1, 3, 3}, {0}, {0}, DTYPE_F32}};

const struct op op_all_gather = {
    .name = "all_gather",
    .summary = "block r of x = rank r's block r, in place",
    .args_size = sizeof(struct collective_args),
    .problem = collective_problem,
    .tolerance = {{0}},
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
