/* send_recv: what one stage of a pipeline leaves for the next. */
#include "comm/communicator.h"
#include "ops/collective.h"
#include "ops/ops.h"

#define OP_LIST "ops/send_recv.list"
#include "ops/variant_table.h"

static void problem(const void *args, struct op_problem *out)
{
    const struct send_recv_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n, .groups = a->ranks};
}

static struct op_cost cost(const void *args)
{
    const struct send_recv_args *a = args;
    return (struct op_cost){0, (double)matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    const struct send_recv_args *a = args;
    struct communicator *c = context->communicator;
    const int64_t rank = a->ranks > 1 ? communicator_rank(c) : 0, all = a->m * a->n;
    if (a->from == a->to || (rank != a->from && rank != a->to)) return;
    for (int64_t at = 0, part; at < all; at += part) {
        part = all - at < COLLECTIVE_PART ? all - at : COLLECTIVE_PART;
        float *x = matrix_floats(&a->x) + at;
        if (communicator_send_recv(c, (int)a->from, (int)a->to, x, (size_t)part * sizeof *x) !=
            SOL_OK)
            return;
    }
}

/* To the rank that sol verify looks at. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t to = (p->rows + p->n) % p->groups;
    *(struct send_recv_args *)args =
        (struct send_recv_args){.ranks = p->groups,
                                .from = (to + 1) % p->groups,
                                .to = to,
                                .m = p->rows,
                                .n = p->n,
                                .x = case_rows(c, p->rows, p->n, 1.0f)};
}

const struct op op_send_recv = {
    .name = "send_recv",
    .summary = "x of one rank = x of another, in place",
    .args_size = sizeof(struct send_recv_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    OP_CASES(collective_block_cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .collective = true,
    .matrices = {{OP_UPDATES, offsetof(struct send_recv_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
