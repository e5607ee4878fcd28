/* round_blocks: numbers as a format of blocks has them, for training weights that are going to be
 * kept in it. */
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/round_blocks.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct round_blocks_args *a = args;
    return (struct op_cost){4 * (double)(a->m * a->n),
                            matrix_bytes(&a->from) + matrix_bytes(&a->to)};
}

static size_t reference_workspace(const void *args, int workers)
{
    const struct round_blocks_args *a = args;
    (void)workers;
    return dtype_row_bytes(a->format, a->n);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct round_blocks_args *a = args;
    for (int64_t i = 0; i < a->m; i++) {
        const float *from = matrix_floats(&a->from) + i * a->n;
        float *to = matrix_floats(&a->to) + i * a->n;
        if (*a->on == 0) {
            memcpy(to, from, sizeof *to * (size_t)a->n);
            continue;
        }
        dtype_info(a->format)->encode(from, context->workspace, a->n);
        dtype_info(a->format)->decode(context->workspace, to, a->n);
    }
}

static void make(struct case_maker *c, const struct op_problem *p, bool on, void *args)
{
    float *switched = ARENA_NEW(c->arena, float, 1);
    if (switched) *switched = on;
    *(struct round_blocks_args *)args = (struct round_blocks_args){
        .m = p->rows,
        .n = p->n,
        .format = DTYPE_MXFP4,
        .on = switched,
        .from = case_rows(c, p->rows, p->n, 0.1f),
        .to = case_output(c, p->rows, p->n),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, true, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 6) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 40), .n = 32 * rng_range(c->rng, 1, 9)};
    make(c, &p, c->index != 1, args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct round_blocks_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->to.dtype, .n = a->n};
}

const struct op op_round_blocks = {
    .name = "round_blocks",
    .summary =
        "to = from, rounded as a format of blocks rounds where *on is not 0; what it makes of "
        "NaN and Inf",
    .args_size = sizeof(struct round_blocks_args),
    .problem = problem,
    .tolerance = {{1e-7f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2880},
    .matrices = {{OP_READS, offsetof(struct round_blocks_args, from)},
                 {OP_WRITES, offsetof(struct round_blocks_args, to)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
