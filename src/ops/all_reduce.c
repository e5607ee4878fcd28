/* all_reduce: gradients and norms that ranks have parts of. */
#include "ops/collective.h"
#include "ops/ops.h"

#define OP_LIST "ops/all_reduce.list"
#include "ops/variant_table.h"

/* In and out once; what is sent and received is nearly as much again, each way. */
static struct op_cost cost(const void *args)
{
    return collective_cost(args, 1, 2, true);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    float *x = matrix_floats(&a->x);
    if (a->ranks == 1) return;
    collective_add_up(context, x, a->ranks, a->m * a->n);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    collective_make(c, p, 1, args);
}

/* rows, n, ranks */
static const struct case_shape cases[] = {
    {6, {0, 1, 40}, {0, 1, 300}, {0}, {1, 1, 5}, {0}, {0}, DTYPE_F32},
    {1, {0, 7, 7}, {1, 1 << 17, 1 << 17}, {0}, {1, 3, 3}, {0}, {0}, DTYPE_F32}};

const struct op op_all_reduce = {
    .name = "all_reduce",
    .summary = "x = the sum of all ranks' x, in place; the same bits for each",
    .args_size = sizeof(struct collective_args),
    .problem = collective_problem,
    .tolerance = {{1e-6f}}, /* libraries have orders of their own */
    .cost = cost,
    .reference = reference,
    .reference_workspace = collective_workspace,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_F32, .n = 2880, .groups = 1},
    .collective = true,
    .matrices = {{OP_UPDATES, offsetof(struct collective_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};

/* ---- each rank adds up a part, and all get the parts ---- */

/* Of all numbers; what is left over at the end everybody adds up. */
static int64_t part_of(const struct collective_args *a)
{
    return a->m * a->n / a->ranks;
}

static size_t in_parts_workspace(const void *args, int workers)
{
    (void)workers;
    const struct collective_args *a = args;
    const int64_t n = part_of(a), rest = a->m * a->n - n * a->ranks;
    return collective_room(a->ranks, n > rest ? n : rest);
}

static void in_parts(const struct op_context *context, const void *args)
{
    const struct collective_args *a = args;
    const int64_t n = part_of(a), done = n * a->ranks;
    float *x = matrix_floats(&a->x);
    if (a->ranks == 1) return;
    collective_reduce_scatter(context, x, a->ranks, n);
    collective_all_gather(context, x, a->ranks, n);
    collective_add_up(context, x + done, a->ranks, a->m * a->n - done);
}

const struct op_variant all_reduce_in_parts = {
    .name = "all_reduce_in_parts",
    .summary = "each rank adds up a part, then all get the parts; over the host's memory",
    .workspace = in_parts_workspace,
    .run = in_parts,
};
