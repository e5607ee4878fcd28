/* attn_moe: attn_out, then moe. Who has both in one can leave the choice of experts to those who
 * need it. */
#include "ops/attn_moe.h"
#include "ops/attn_out.h"
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_moe.list"
#include "ops/variant_table.h"

struct moe_args attn_moe_second(const struct attn_moe_args *a)
{
    return (struct moe_args){.m = a->out.m,
                             .hidden = a->out.hidden,
                             .intermediate = a->intermediate,
                             .top_k = a->out.top_k,
                             .alpha = a->alpha,
                             .limit = a->limit,
                             .normed = a->out.normed,
                             .gate = a->gate,
                             .up = a->up,
                             .down = a->down,
                             .gate_bias = a->gate_bias,
                             .up_bias = a->up_bias,
                             .down_bias = a->down_bias,
                             .routing = a->out.routing,
                             .x = a->out.x};
}

static struct op_cost cost(const void *args)
{
    const struct attn_moe_args *a = args;
    const struct moe_args experts = attn_moe_second(a);
    const struct op_cost out = op_attn_out.cost(&a->out), moe = op_moe.cost(&experts);
    return (struct op_cost){out.flops + moe.flops, out.bytes + moe.bytes};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_moe_args *a = args;
    const struct moe_args experts = attn_moe_second(a);
    plan_call(plan, &op_attn_out, &a->out);
    plan_call(plan, &op_moe, &experts);
    return SOL_OK;
}

static void make(struct case_maker *c, const struct attn_out_args *out, int64_t intermediate,
                 struct attn_moe_args *a)
{
    const int64_t experts = out->n_experts, hidden = out->hidden;
    *a = (struct attn_moe_args){
        .out = *out,
        .intermediate = intermediate,
        .alpha = 1.702f,
        .limit = 7.0f,
        .gate = case_tensor(c, DTYPE_MXFP4, experts, intermediate, hidden, 0.2f),
        .up = case_tensor(c, DTYPE_MXFP4, experts, intermediate, hidden, 0.2f),
        .down = case_tensor(c, DTYPE_MXFP4, experts, hidden, intermediate, 0.2f),
        .gate_bias = case_vector(c, experts * intermediate, 0.2f),
        .up_bias = case_vector(c, experts * intermediate, 0.2f),
        .down_bias = case_vector(c, experts * hidden, 0.2f),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct attn_out_args out;
    op_attn_out.make_problem(c, p, &out);
    make(c, &out, p->n, args);
}

/* clang-format off */
static const struct attn_moe_case {
    struct case_shape shape; /* rows, hidden, width, experts, of a token */
    enum dtype router;
    int64_t intermediate;
} cases[] = {
    {{4, {1, 1, 1}, {32, 1, 5}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_F32, 64},
    {{4, {1, 2, 2}, {32, 1, 5}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_BF16, 96},
    {{2, {1, 3, 20}, {32, 1, 5}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_F32, 32},
    /* what one or two rows have kernels for */
    {{2, {1, 1, 1}, {32, 1, 5}, {64, 1, 4}, {0, 4, 32}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 96},
    {{2, {1, 2, 2}, {32, 1, 5}, {64, 1, 4}, {0, 4, 32}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 64},
    {{1, {1, 1, 1}, {32, 1, 5}, {64, 1, 4}, {0, 33, 128}, {1, 4, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 64},
    {{1, {1, 2, 2}, {32, 1, 5}, {64, 1, 4}, {0, 33, 128}, {1, 3, 3}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 32},
    {{1, {1, 1, 1}, {1, 2880, 2880}, {1, 64, 64}, {1, 4, 4}, {1, 2, 2}, {0}, DTYPE_BF16}, DTYPE_F32, 96},
    {{1, {1, 1, 1}, {1, 64, 64}, {1, 64, 64}, {1, 128, 128}, {1, 4, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 32},
};
/* clang-format on */

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    struct attn_out_args out;
    const struct attn_moe_case *s = CASE_OF(c, cases, &p);
    if (!s) return false;
    attn_out_clear_case(c, &p, s->router, &out);
    make(c, &out, s->intermediate, args);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_moe_args *a = args;
    return case_routing_outputs(offsetof(struct attn_moe_args, out.routing), a->out.m,
                                a->out.n_experts, a->out.top_k, out);
}

static void problem(const void *args, struct op_problem *out)
{
    op_attn_out.problem(&((const struct attn_moe_args *)args)->out, out);
}

/* The tolerance of moe. */
const struct op op_attn_moe = {
    .name = "attn_moe",
    .summary = "attn_out and moe: all of a layer that follows its attention",
    .args_size = sizeof(struct attn_moe_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f,
                   [NUMERICS_BF16] = 1.5e-2f,
                   [NUMERICS_I8] = 3e-2f,
                   [NUMERICS_I8_ROW] = 4e-2f},
                  3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_attn_out, &op_moe},
    .is_sequence = true,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 2880, .k = 4096, .groups = 32, .top_k = 4},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct attn_moe_args, out.attn)},
                 {OP_UPDATES, offsetof(struct attn_moe_args, out.x)},
                 {OP_WRITES, offsetof(struct attn_moe_args, out.normed)}},
    .weights = {offsetof(struct attn_moe_args, out.wo), offsetof(struct attn_moe_args, gate),
                offsetof(struct attn_moe_args, up), offsetof(struct attn_moe_args, down)},
    .n_weights = 4,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
