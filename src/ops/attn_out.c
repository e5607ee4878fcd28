/* attn_out: everything between attention and the experts: output projection, residual, norm,
 * router, top-k. */
#include <math.h>

#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_out.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct attn_out_args *a = args;
    double m = (double)a->m, hidden = (double)a->hidden;
    struct op_cost sum = {0, 0};
    cost_add(&sum, 0, 4 * m * (double)a->width);
    cost_add_product(&sum, m, &a->wo, 1, a->bo != NULL);
    cost_add(&sum, 5 * m * hidden, 4 * (3 * m + 1) * hidden); /* residual and norm */
    cost_add_product(&sum, m, &a->router, 1, a->router_bias != NULL);
    cost_add(&sum, 0, 4 * (m * 4 * (double)a->top_k + (double)a->n_experts)); /* routing */
    return sum;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_out_args *a = args;
    struct matrix projected = plan_scratch(plan, a->m, a->hidden);
    struct matrix logits = plan_scratch(plan, a->m, a->n_experts);
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m,
                                  .n = a->hidden,
                                  .k = a->width,
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

enum { ROUTED_ROWS = 60 }; /* of cases: more than random ones have */
static const float case_gap = 0.4f;

/* Cases of so many rows have logits that are far apart. */
static bool choice_is_clear(int64_t m)
{
    return m >= ROUTED_ROWS && m % 2 == 0;
}

/* Biases far enough apart, in random order, that no rounding changes which experts win. */
static void separate(struct rng *rng, float *bias, int64_t n)
{
    for (int64_t e = 0; bias && e < n; e++) bias[e] = case_gap * (float)e;
    for (int64_t e = n - 1; bias && e > 0; e--) {
        int64_t other = rng_range(rng, 0, e);
        float kept = bias[e];
        bias[e] = bias[other];
        bias[other] = kept;
    }
}

/* Whether they are so. */
static bool is_separate(const float *bias, int64_t n)
{
    bool separate = bias != NULL;
    for (int64_t e = 0; bias && e < n; e++)
        for (int64_t other = 0; other < e; other++)
            separate &= fabsf(bias[e] - bias[other]) > 0.9f * case_gap;
    return separate;
}

/* Makes some rows want the other end of the biases' order: the router reads the first value of a
 * row, which is far above or below the others. */
static void divide(struct rng *rng, struct attn_out_args *a)
{
    float *router = (float *)(uintptr_t)a->router.data, *norm = (float *)(uintptr_t)a->norm;
    float *x = a->x.data;
    if (a->router.dtype != DTYPE_F32 || !router || !norm || !x || !a->router_bias) return;
    norm[0] = 1;
    for (int64_t e = 0; e < a->n_experts; e++) router[e * a->hidden] = -a->router_bias[e] / 2;
    for (int64_t i = 0; i < a->m; i++) x[i * a->hidden] = rng_range(rng, 0, 1) ? 30 : -30;
}

static void make(struct case_maker *c, const struct op_problem *p, enum dtype router, float scale,
                 const float *bias, struct attn_out_args *a)
{
    int64_t m = p->rows, hidden = p->n, width = p->k;
    *a = (struct attn_out_args){
        .m = m,
        .hidden = hidden,
        .width = width,
        .n_experts = p->groups,
        .top_k = p->top_k,
        .eps = 1e-5f,
        .attn = case_rows(c, m, width, 1.0f),
        .wo = case_tensor(c, p->dtype, 1, hidden, width, 0.2f),
        .bo = case_vector(c, hidden, 0.2f),
        .norm = case_vector(c, hidden, 1.0f),
        .router = case_tensor(c, router, 1, p->groups, hidden, scale),
        .router_bias = bias,
        .x = case_rows(c, m, hidden, 1.0f),
        .normed = case_output(c, m, hidden),
        .routing = case_routing_buffers(c, m, p->groups, p->top_k),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, DTYPE_F32, 0.02f, case_vector(c, p->groups, 0.2f), args);
}

static bool make_case(struct case_maker *c, void *args)
{
    static const int64_t few[] = {2, 3, 8, 9, 16, 17, 32}; /* rows that decode together */
    enum { PROMPTS = 15, FEW = 23, END = FEW + 2 * sizeof few / sizeof *few };
    enum { AGAIN = END + (FEW - PROMPTS) / 2, WIDE = 8 };
    static const struct {
        int64_t width, hidden, experts;
        enum dtype dtype;
    } wide[] = {{4096, 64, 128, DTYPE_BF16}, /* one row, sizes of real models one at a time */
                {64, 2880, 128, DTYPE_BF16},
                {4088, 96, 40, DTYPE_BF16},
                {4096, 64, 100, DTYPE_Q8_0},
                {64, 2880, 128, DTYPE_BF16}};
    int index = c->index, sizes = index - AGAIN;
    if (sizes >= (int)(sizeof wide / sizeof *wide)) return false;
    bool q8_0 = index >= END && sizes < 0; /* prompts again, every other of those */
    if (q8_0) index = PROMPTS + 2 * (index - END);
    if (sizes >= 0) index = WIDE + sizes;
    c->index = index;
    int64_t m = case_size(c, 1, 20), hidden = 32 * rng_range(c->rng, 1, 4),
            width = 64 * rng_range(c->rng, 1, 4);
    int64_t experts = case_size(c, 4, 33), top_k = rng_range(c->rng, 1, 4);
    if (index >= 5) m = 1, hidden *= 5; /* decoding */
    if (index >= PROMPTS) m = ROUTED_ROWS + 7 * index;
    if (index >= 19 && index < FEW) experts += 40;
    enum dtype dtype = index < PROMPTS ? case_weight_dtype(c) : q8_0 ? DTYPE_Q8_0 : DTYPE_BF16;
    if (index >= FEW) m = few[(index - FEW) / 2], dtype = index % 2 ? DTYPE_BF16 : DTYPE_Q8_0;
    if (sizes >= 0) {
        width = wide[sizes].width, hidden = wide[sizes].hidden;
        experts = wide[sizes].experts, dtype = wide[sizes].dtype;
    }
    float *bias = case_vector(c, experts, 0.2f);
    bool separated = m == 1 || index >= FEW || choice_is_clear(m);
    float router = m == 1 ? 0.01f : m < ROUTED_ROWS ? 0.2f : separated ? 0.001f : 0.05f;
    if (index >= FEW) router = 0.002f;
    if (separated) separate(c->rng, bias, experts);
    const struct op_problem p = {
        .rows = m, .dtype = dtype, .n = hidden, .k = width, .groups = experts, .top_k = top_k};
    bool wide_router = index < 10 || (index >= PROMPTS && index / 2 % 2);
    struct attn_out_args *a = args;
    make(c, &p, wide_router ? DTYPE_F32 : DTYPE_BF16, router, bias, a);
    if (index >= FEW && c->kind < CASE_EXTREME) divide(c->rng, a);
    return true;
}

/* Which experts win may change with the rounding of the projection when two logits are close, so
 * the choice is verified at route, where the logits are given; here where the case keeps them
 * apart. Weights hardly change when two experts change places. */
static int outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_out_args *a = args;
    out[0] = op_output_of(offsetof(struct attn_out_args, x), &a->x);
    out[1] = op_output_of(offsetof(struct attn_out_args, normed), &a->normed);
    bool clear = is_separate(a->router_bias, a->n_experts);
    if (!clear && a->m < ROUTED_ROWS) return 2;
    const size_t at = offsetof(struct attn_out_args, routing);
    const size_t slots = (size_t)(a->m * a->top_k) * 4;
    out[2] = (struct op_output){at + offsetof(struct routing, weight), slots, true, a->top_k};
    if (!clear) return 3;
    out[3] = (struct op_output){at + offsetof(struct routing, expert), slots, false, 0};
    out[4] = (struct op_output){at + offsetof(struct routing, group_offsets),
                                (size_t)(a->n_experts + 1) * 4, false, 0};
    out[5] = (struct op_output){at + offsetof(struct routing, token_of_row), slots, false, 0};
    out[6] = (struct op_output){at + offsetof(struct routing, row_of_slot), slots, false, 0};
    return 7;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct attn_out_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->wo.dtype,
                               .n = a->hidden,
                               .k = a->width,
                               .groups = a->n_experts,
                               .top_k = a->top_k};
}

const struct op op_attn_out = {
    .name = "attn_out",
    .summary = "output projection, residual, rmsnorm, router, top-k",
    .args_size = sizeof(struct attn_out_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 2880, .k = 4096, .groups = 32, .top_k = 4},
    .outputs = outputs,
    .matrices = {offsetof(struct attn_out_args, attn), offsetof(struct attn_out_args, x),
                 offsetof(struct attn_out_args, normed)},
    .weights = {offsetof(struct attn_out_args, wo)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
