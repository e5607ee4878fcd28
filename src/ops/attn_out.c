/* attn_out: everything between attention and the experts: output projection, residual, norm,
 * router, top-k. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_out.list"
#include "ops/variant_table.h"

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_out_args *a = args;
    float *projected = plan_scratch(plan, a->m * a->hidden);
    float *logits = plan_scratch(plan, a->m * a->n_experts);
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m,
                                  .n = a->hidden,
                                  .k = a->width,
                                  .a_count = a->m,
                                  .a = a->attn,
                                  .w = a->wo,
                                  .bias = a->bo,
                                  .c = projected});
    plan_call(plan, &op_add,
              &(struct add_args){.m = a->m, .n = a->hidden, .y = projected, .x = a->x});
    plan_call(
        plan, &op_rmsnorm,
        &(struct rmsnorm_args){
            .m = a->m, .n = a->hidden, .eps = a->eps, .x = a->x, .gain = a->norm, .y = a->normed});
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m,
                                  .n = a->n_experts,
                                  .k = a->hidden,
                                  .a_count = a->m,
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

static bool make_case(struct arena *arena, struct rng *rng, enum op_case_kind kind, int index,
                      void *args)
{
    if (index >= 5) return false;
    struct case_maker c = {arena, rng, kind, index};
    int64_t m = case_size(&c, 1, 20), hidden = 32 * rng_range(rng, 1, 4),
            width = 64 * rng_range(rng, 1, 4);
    int64_t experts = case_size(&c, 4, 33), top_k = rng_range(rng, 1, 4);
    *(struct attn_out_args *)args = (struct attn_out_args){
        .m = m,
        .hidden = hidden,
        .width = width,
        .n_experts = experts,
        .top_k = top_k,
        .eps = 1e-5f,
        .attn = case_rows(&c, m, width, 1.0f),
        .wo = case_tensor(&c, case_weight_dtype(&c), 1, hidden, width, 0.2f),
        .bo = case_vector(&c, hidden, 0.2f),
        .norm = case_vector(&c, hidden, 1.0f),
        .router = case_tensor(&c, DTYPE_F32, 1, experts, hidden, 0.2f),
        .router_bias = case_vector(&c, experts, 0.2f),
        .x = case_rows(&c, m, hidden, 1.0f),
        .normed = case_output(&c, m * hidden),
        .routing = case_routing_buffers(&c, m, experts, top_k),
    };
    return true;
}

/* Which experts win may change with the rounding of the projection when two logits are close, so
 * the choice itself is verified at route, where the logits are given. */
static int outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_out_args *a = args;
    size_t bytes = (size_t)(a->m * a->hidden) * 4;
    out[0] = (struct op_output){offsetof(struct attn_out_args, x), bytes, true, a->hidden};
    out[1] = (struct op_output){offsetof(struct attn_out_args, normed), bytes, true, a->hidden};
    return 2;
}

const struct op op_attn_out = {
    .name = "attn_out",
    .summary = "output projection, residual, rmsnorm, router, top-k",
    .args_size = sizeof(struct attn_out_args),
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .compose = compose,
    .make_case = make_case,
    .outputs = outputs,
    .weights = {offsetof(struct attn_out_args, wo)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
