/* attn_route: the second part of attn_out: norm, router, top-k. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_route.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct attn_out_args *a = args;
    double m = (double)a->m, hidden = (double)a->hidden;
    struct op_cost sum = {0, 0};
    cost_add(&sum, 4 * m * hidden, 4 * (m + 1) * hidden + matrix_bytes(&a->normed));
    cost_add_product(&sum, m, &a->router, 1, a->router_bias != NULL);
    cost_add(&sum, 0, 4 * (m * 4 * (double)a->top_k + (double)a->n_experts)); /* routing */
    return sum;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_out_args *a = args;
    struct matrix logits = plan_scratch(plan, a->m, a->n_experts);
    plan_call(
        plan, &op_rmsnorm,
        &(struct rmsnorm_args){
            .m = a->m, .n = a->hidden, .eps = a->eps, .x = a->x, .gain = a->norm, .y = a->normed});
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m,
                                  .n = a->n_experts,
                                  .k = a->hidden,
                                  .a = a->normed,
                                  .w = a->router,
                                  .bias = a->router_bias,
                                  .c = logits});
    plan_call(plan, &op_route,
              &(struct route_args){.m = a->m,
                                   .n_experts = a->n_experts,
                                   .top_k = a->top_k,
                                   .logits = logits,
                                   .routing = a->routing});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct op_problem whole = *p;
    whole.dtype = DTYPE_BF16;
    whole.k = 32; /* of what comes before, which is not read here */
    op_attn_out.make_problem(c, &whole, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    return op_attn_out.make_case(c, args);
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    return op_attn_out.more_outputs(args, out);
}

static int case_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    return op_attn_out.case_outputs(args, out);
}

static void problem(const void *args, struct op_problem *out)
{
    const struct attn_out_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->router.dtype,
                               .n = a->hidden,
                               .groups = a->n_experts,
                               .top_k = a->top_k};
}

const struct op op_attn_route = {
    .name = "attn_route",
    .summary = "rmsnorm, router, top-k: what attn_out ends with",
    .args_size = sizeof(struct attn_out_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_rmsnorm, &op_gemm, &op_route},
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_F32, .n = 2880, .groups = 32, .top_k = 4},
    .more_outputs = more_outputs,
    .case_outputs = case_outputs,
    .matrices = {{OP_READS, offsetof(struct attn_out_args, x)},
                 {OP_WRITES, offsetof(struct attn_out_args, normed)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
