/* moe_up: gate and up projections of the chosen experts and their activation, over the grouped
 * rows. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/moe_up.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct moe_up_args *a = args;
    double m = (double)a->m, rows = m * (double)a->top_k;
    const int32_t *offsets = routing_on_host(&a->routing);
    double used = cost_groups_used(offsets, a->gate.groups);
    double own = cost_groups_rows(offsets, a->gate.groups, a->m * a->top_k);
    struct op_cost sum = {0, 0};
    cost_add(&sum, 0, matrix_bytes(&a->normed));
    cost_add_product(&sum, own, &a->gate, used, a->gate_bias != NULL);
    cost_add_product(&sum, own, &a->up, used, a->up_bias != NULL);
    cost_add(&sum, 8 * rows * (double)a->intermediate, 4 * rows * (double)a->intermediate);
    return sum;
}

static void project(struct plan *plan, const struct moe_up_args *a, struct tensor w,
                    const float *bias, struct matrix y)
{
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m * a->top_k,
                                  .n = a->intermediate,
                                  .k = a->hidden,
                                  .a = a->normed,
                                  .a_rows = a->routing.token_of_row,
                                  .w = w,
                                  .bias = bias,
                                  .group_offsets = a->routing.group_offsets,
                                  .host_offsets = routing_on_host(&a->routing),
                                  .c = y});
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct moe_up_args *a = args;
    struct matrix up = plan_scratch(plan, a->m * a->top_k, a->intermediate);
    project(plan, a, a->gate, a->gate_bias, a->act);
    project(plan, a, a->up, a->up_bias, up);
    plan_call(plan, &op_swiglu,
              &(struct swiglu_args){.m = a->m * a->top_k,
                                    .n = a->intermediate,
                                    .alpha = a->alpha,
                                    .limit = a->limit,
                                    .up = up,
                                    .gate = a->act});
    return SOL_OK;
}

/* Huge inputs would sit on both sides of the clamp, where any rounding flips whole outputs; swiglu
 * and gemm are tested with them, the composite with outliers and tiny values. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t m = p->rows, hidden = p->k, inner = p->n, experts = p->groups;
    float scale = c->kind == CASE_EXTREME ? 1e-4f : 1.0f;
    *(struct moe_up_args *)args = (struct moe_up_args){
        .m = m,
        .hidden = hidden,
        .intermediate = inner,
        .top_k = p->top_k,
        .alpha = 1.702f,
        .limit = 7.0f,
        .normed = case_rows(c, m, hidden, scale),
        .gate = case_tensor(c, p->dtype, experts, inner, hidden, 0.2f),
        .up = case_tensor(c, p->dtype, experts, inner, hidden, 0.2f),
        .gate_bias = case_vector(c, experts * inner, 0.2f),
        .up_bias = case_vector(c, experts * inner, 0.2f),
        .routing = case_routing(c, m, experts, p->top_k),
        .act = case_output(c, m * p->top_k, inner),
    };
}

static const struct case_shape cases[] = {
    /* rows, n, k, experts, of a token */
    {5, {0, 1, 40}, {32, 1, 4}, {32, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    {10, {1, 1, 1}, {32, 1, 4}, {160, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    {1, {1, 170, 170}, {32, 1, 4}, {32, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    CASES_DECODING_TOGETHER,
};

static void problem(const void *args, struct op_problem *out)
{
    const struct moe_up_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->gate.dtype,
                               .n = a->intermediate,
                               .k = a->hidden,
                               .groups = a->gate.groups,
                               .top_k = a->top_k};
}

const struct op op_moe_up = {
    .name = "moe_up",
    .summary = "gate and up projections of the chosen experts, swiglu",
    .args_size = sizeof(struct moe_up_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1.5e-2f, [NUMERICS_I8] = 3e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_gemm, &op_swiglu},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_MXFP4, .n = 2880, .k = 2880, .groups = 32, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct moe_up_args, normed)},
                 {OP_WRITES, offsetof(struct moe_up_args, act)}},
    .weights = {offsetof(struct moe_up_args, gate), offsetof(struct moe_up_args, up)},
    .n_weights = 2,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
