/* moe: the chosen experts of every row, from the normed row to the residual stream: moe_up, then
 * moe_down. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/moe.list"
#include "ops/variant_table.h"

static struct moe_up_args up_of(const struct moe_args *a, struct matrix act)
{
    return (struct moe_up_args){.m = a->m,
                                .hidden = a->hidden,
                                .intermediate = a->intermediate,
                                .top_k = a->top_k,
                                .alpha = a->alpha,
                                .limit = a->limit,
                                .normed = a->normed,
                                .gate = a->gate,
                                .up = a->up,
                                .gate_bias = a->gate_bias,
                                .up_bias = a->up_bias,
                                .routing = a->routing,
                                .act = act};
}

static struct moe_down_args down_of(const struct moe_args *a, struct matrix act)
{
    return (struct moe_down_args){.m = a->m,
                                  .hidden = a->hidden,
                                  .intermediate = a->intermediate,
                                  .top_k = a->top_k,
                                  .act = act,
                                  .down = a->down,
                                  .down_bias = a->down_bias,
                                  .routing = a->routing,
                                  .x = a->x};
}

/* What passes between the parts need not touch memory. */
static struct op_cost cost(const void *args)
{
    const struct moe_args *a = args;
    const struct moe_up_args up = up_of(a, (struct matrix){0});
    const struct moe_down_args down = down_of(a, (struct matrix){0});
    struct op_cost first = op_moe_up.cost(&up), second = op_moe_down.cost(&down);
    double act = 4 * (double)(a->m * a->top_k * a->intermediate);
    return (struct op_cost){first.flops + second.flops, first.bytes + second.bytes - 2 * act};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct moe_args *a = args;
    struct matrix act = plan_scratch(plan, a->m * a->top_k, a->intermediate);
    const struct moe_up_args up = up_of(a, act);
    const struct moe_down_args down = down_of(a, act);
    plan_call(plan, &op_moe_up, &up);
    plan_call(plan, &op_moe_down, &down);
    return SOL_OK;
}

/* As in moe_up: huge inputs would sit on both sides of the clamp. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t m = p->rows, hidden = p->k, inner = p->n, experts = p->groups;
    float scale = c->kind == CASE_EXTREME ? 1e-4f : 1.0f;
    struct moe_args *a = args;
    *a = (struct moe_args){
        .m = m,
        .hidden = hidden,
        .intermediate = inner,
        .top_k = p->top_k,
        .alpha = 1.702f,
        .limit = 7.0f,
        .normed = case_rows(c, m, hidden, scale),
        .gate = case_tensor(c, p->dtype, experts, inner, hidden, 0.2f),
        .up = case_tensor(c, p->dtype, experts, inner, hidden, 0.2f),
        .down = case_tensor(c, p->dtype, experts, hidden, inner, 0.2f),
        .gate_bias = case_vector(c, experts * inner, 0.2f),
        .up_bias = case_vector(c, experts * inner, 0.2f),
        .down_bias = case_vector(c, experts * hidden, 0.2f),
        .routing = case_own_routing(c, m, experts, p->top_k),
        .x = case_rows(c, m, hidden, 1.0f),
    };
    case_large_block(c, c->index % 2 ? &a->gate : &a->up);
    case_large_block(c, &a->down);
}

static const struct case_shape cases[] = {
    /* rows, n, k, experts, of a token */
    {5, {0, 1, 40}, {32, 1, 4}, {32, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    {5, {1, 1, 1}, {32, 1, 4}, {32, 1, 4}, {1, 4, 9}, {1, 1, 4}, {0}, CASE_ANY_DTYPE},
    {2, {1, 1, 2}, {32, 1, 12}, {32, 1, 12}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    /* one row as wide as real ones: results of the first product, then rows */
    {1, {1, 1, 1}, {32, 80, 96}, {32, 1, 3}, {1, 4, 9}, {1, 1, 1}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {32, 80, 96}, {32, 1, 3}, {1, 4, 9}, {1, 2, 2}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {32, 80, 96}, {32, 1, 3}, {1, 4, 9}, {1, 3, 3}, {0}, DTYPE_MXFP4},
    {1, {1, 1, 1}, {32, 1, 3}, {32, 80, 96}, {1, 4, 9}, {1, 4, 4}, {0}, DTYPE_MXFP4},
    /* many */
    {1, {1, 50, 50}, {1, 128, 128}, {64, 1, 1}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    {1, {1, 51, 51}, {1, 128, 128}, {64, 2, 2}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    {1, {1, 300, 300}, {1, 128, 128}, {64, 3, 3}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    /* nearly as many slots as kernels of few rows take, and as many */
    {1, {1, 120, 120}, {32, 1, 2}, {32, 1, 2}, {1, 4, 9}, {1, 4, 4}, {0}, DTYPE_MXFP4},
    {1, {1, 128, 128}, {32, 1, 2}, {32, 1, 2}, {1, 4, 9}, {1, 4, 4}, {0}, DTYPE_MXFP4},
    /* many experts */
    {2, {1, 9, 40}, {32, 1, 2}, {32, 1, 2}, {1, 33, 128}, {1, 4, 4}, {0}, DTYPE_MXFP4},
    /* rows whose columns are cut into three, up to those as wide as real ones */
    {1, {1, 20, 150}, {192, 1, 2}, {192, 1, 2}, {1, 4, 9}, {1, 1, 4}, {0}, DTYPE_MXFP4},
    {1, {1, 5, 20}, {192, 1, 1}, {192, 14, 15}, {1, 4, 9}, {1, 1, 2}, {0}, DTYPE_MXFP4},
    {1, {1, 5, 20}, {192, 14, 15}, {192, 1, 1}, {1, 4, 9}, {1, 1, 2}, {0}, DTYPE_MXFP4},
    /* two rows as wide as real ones, one matrix at a time */
    {1, {1, 2, 2}, {32, 80, 96}, {32, 1, 3}, {1, 4, 9}, {1, 3, 3}, {0}, DTYPE_MXFP4},
    {1, {1, 2, 2}, {32, 1, 3}, {32, 80, 96}, {1, 4, 9}, {1, 4, 4}, {0}, DTYPE_MXFP4},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct moe_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->gate.dtype,
                               .n = a->intermediate,
                               .k = a->hidden,
                               .groups = a->gate.groups,
                               .top_k = a->top_k};
}

/* The tolerance of moe_up: its errors pass through a product that adds its own. */
const struct op op_moe = {
    .name = "moe",
    .summary = "the chosen experts: gate, up, swiglu, down, weighted sum, residual",
    .args_size = sizeof(struct moe_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f,
                   [NUMERICS_BF16] = 1.5e-2f,
                   [NUMERICS_I8] = 3e-2f,
                   [NUMERICS_I8_ROW] = 4e-2f},
                  3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_moe_up, &op_moe_down},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_MXFP4, .n = 2880, .k = 2880, .groups = 32, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct moe_args, normed)},
                 {OP_UPDATES, offsetof(struct moe_args, x)}},
    .weights = {offsetof(struct moe_args, gate), offsetof(struct moe_args, up),
                offsetof(struct moe_args, down)},
    .n_weights = 3,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
