/* own_experts: what of a routing is for some of the experts, those that a rank has. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/own_experts.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct own_experts_args *a = args;
    return (struct op_cost){0, 4.0 * (double)(6 * a->m * a->top_k + 2 * (a->count + 1))};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct own_experts_args *a = args;
    const struct routing *all = &a->all, *own = &a->own;
    const int64_t slots = a->m * a->top_k;
    const int32_t begin = all->group_offsets[a->first];
    const int32_t rows = all->group_offsets[a->first + a->count] - begin;
    for (int64_t g = 0; g <= a->count; g++)
        own->group_offsets[g] = all->group_offsets[a->first + g] - begin;
    for (int64_t i = 0; i < slots; i++) {
        const int64_t expert = all->expert[i] - a->first;
        const bool here = expert >= 0 && expert < a->count;
        own->token_of_row[i] = i < rows ? all->token_of_row[begin + i] : 0;
        own->expert[i] = here ? (int32_t)expert : -1;
        own->row_of_slot[i] = here ? all->row_of_slot[i] - begin : -1;
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t count = p->groups < p->n ? p->groups : p->n;
    *(struct own_experts_args *)args =
        (struct own_experts_args){.m = p->rows,
                                  .n_experts = p->n,
                                  .top_k = p->top_k,
                                  .first = rng_range(c->rng, 0, p->n - count),
                                  .count = count,
                                  .all = case_routing(c, p->rows, p->n, p->top_k),
                                  .own = case_routing_buffers(c, p->rows, count, p->top_k)};
}

/* rows, experts, own ones, of a token */
static const struct case_shape cases[] = {
    {5, {0, 1, 40}, {1, 4, 40}, {0}, {1, 1, 40}, {1, 1, 4}, {0}, DTYPE_F32},
    {2, {1, 1, 1}, {1, 4, 9}, {0}, {1, 1, 2}, {1, 1, 4}, {0}, DTYPE_F32},
    {1, {1, 300, 900}, {1, 128, 128}, {0}, {1, 16, 64}, {1, 4, 4}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct own_experts_args *a = args;
    const int n =
        case_routing_outputs(offsetof(struct own_experts_args, own), a->m, a->count, a->top_k, out);
    for (int i = 1; i < n; i++) out[i - 1] = out[i]; /* weights are those that were there */
    return n - 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct own_experts_args *a = args;
    *out =
        (struct op_problem){.rows = a->m, .n = a->n_experts, .groups = a->count, .top_k = a->top_k};
}

const struct op op_own_experts = {
    .name = "own_experts",
    .summary =
        "of a routing what some experts have to do, numbered from 0; -1 for what others have",
    .args_size = sizeof(struct own_experts_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 512, .n = 128, .groups = 64, .top_k = 4},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
