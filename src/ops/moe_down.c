/* moe_down: down projection of the chosen experts, weighted sum, residual. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/moe_down.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct moe_down_args *a = args;
    double m = (double)a->m, rows = m * (double)a->top_k;
    const int32_t *offsets = routing_on_host(&a->routing);
    double used = cost_groups_used(offsets, a->down.groups);
    double own = cost_groups_rows(offsets, a->down.groups, a->m * a->top_k);
    struct op_cost sum = {0, 0};
    cost_add(&sum, 0, 4 * rows * (double)a->intermediate);
    cost_add_product(&sum, own, &a->down, used, a->down_bias != NULL);
    cost_add(&sum, 2 * rows * (double)a->hidden, 8 * m * (double)a->hidden);
    return sum;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct moe_down_args *a = args;
    struct matrix y = plan_scratch(plan, a->m * a->top_k, a->hidden);
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m * a->top_k,
                                  .n = a->hidden,
                                  .k = a->intermediate,
                                  .a = a->act,
                                  .w = a->down,
                                  .bias = a->down_bias,
                                  .group_offsets = a->routing.group_offsets,
                                  .host_offsets = routing_on_host(&a->routing),
                                  .c = y});
    plan_call(plan, &op_combine,
              &(struct combine_args){.m = a->m,
                                     .n = a->hidden,
                                     .top_k = a->top_k,
                                     .y = y,
                                     .routing = a->routing,
                                     .x = a->x});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t m = p->rows, hidden = p->n, inner = p->k, experts = p->groups;
    *(struct moe_down_args *)args = (struct moe_down_args){
        .m = m,
        .hidden = hidden,
        .intermediate = inner,
        .top_k = p->top_k,
        .act = case_rows(c, m * p->top_k, inner, 1.0f),
        .down = case_tensor(c, p->dtype, experts, hidden, inner, 0.2f),
        .down_bias = case_vector(c, experts * hidden, 0.2f),
        .routing = case_own_routing(c, m, experts, p->top_k),
        .x = case_rows(c, m, hidden, 1.0f),
    };
}

static const struct case_shape cases[] = {
    /* rows, n, k, experts, of a token */
    {5, {0, 1, 40}, {32, 1, 4}, {32, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    {10, {1, 1, 1}, {32, 1, 4}, {160, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    CASES_DECODING_TOGETHER,
    /* one as wide as real ones */
    {1, {1, 1, 1}, {8, 3, 9}, {32, 80, 96}, {1, 4, 9}, {1, 1, 1}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {8, 3, 9}, {32, 80, 96}, {1, 4, 9}, {1, 2, 2}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {8, 3, 9}, {32, 80, 96}, {1, 4, 9}, {1, 3, 3}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {8, 3, 9}, {32, 80, 96}, {1, 4, 9}, {1, 4, 4}, {0}, DTYPE_MXFP4},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct moe_down_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->down.dtype,
                               .n = a->hidden,
                               .k = a->intermediate,
                               .groups = a->down.groups,
                               .top_k = a->top_k};
}

const struct op op_moe_down = {
    .name = "moe_down",
    .summary = "down projection of the chosen experts with its bias, weighted sum, residual",
    .args_size = sizeof(struct moe_down_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_gemm, &op_combine},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_MXFP4, .n = 2880, .k = 2880, .groups = 32, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct moe_down_args, act)},
                 {OP_UPDATES, offsetof(struct moe_down_args, x)}},
    .weights = {offsetof(struct moe_down_args, down)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
