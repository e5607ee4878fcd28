/* attn_out: everything between attention and the experts: output projection, residual, norm,
 * router, top-k. */
#include "ops/attn_out.h"

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
    cost_add(&sum, 0, matrix_bytes(&a->attn));
    cost_add_product(&sum, m, &a->wo, 1, a->bo != NULL);
    cost_add(&sum, 5 * m * hidden,
             4 * (2 * m + 1) * hidden + matrix_bytes(&a->normed)); /* residual and norm */
    cost_add_product(&sum, m, &a->router, 1, a->router_bias != NULL);
    cost_add(&sum, 0, 4 * (m * 4 * (double)a->top_k + (double)a->n_experts)); /* routing */
    return sum;
}

/* The projection as an op, which may add to the residual. The rest by primitives: H200, 2,048 rows:
 * 22 us in a step, where attn_route_many_cuda takes 59 alone. */
static enum sol_status compose(struct plan *plan, const void *args)
{
    plan_call(plan, &op_attn_add, args);
    plan_call(plan, &op_attn_route, args);
    return SOL_OK;
}

enum { ROUTED_ROWS = 60 }; /* of cases: more than random ones have */
static const float case_gap = 0.4f;

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

void attn_out_clear_case(struct case_maker *c, const struct op_problem *p, enum dtype router,
                         struct attn_out_args *a)
{
    float *bias = case_vector(c, p->groups, 0.2f);
    separate(c->rng, bias, p->groups);
    make(c, p, router, 0.002f, bias, a);
    if (c->kind < CASE_EXTREME) divide(c->rng, a);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, DTYPE_F32, 0.02f, case_vector(c, p->groups, 0.2f), args);
}

/* A case a line. */
/* clang-format off */
static const struct attn_out_case {
    struct case_shape shape; /* rows, n, k, experts, of a token */
    enum dtype router;
    float scale;
    bool clear, divided; /* biases are far apart; rows want either end of them */
} cases[] = {
    {{5, {0, 1, 20}, {32, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_F32, 0.2f, false, false},
    {{5, {1, 1, 1}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_F32, 0.01f, true, false},
    {{5, {1, 1, 1}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, CASE_ANY_DTYPE}, DTYPE_BF16, 0.01f, true, false},
    /* one, sizes of real models one at a time */
    {{1, {1, 1, 1}, {1, 64, 64}, {1, 4096, 4096}, {1, 128, 128}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.01f, true, false},
    {{1, {1, 1, 1}, {1, 2880, 2880}, {1, 64, 64}, {1, 128, 128}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.01f, true, false},
    {{1, {1, 1, 1}, {1, 96, 96}, {1, 4088, 4088}, {1, 40, 40}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.01f, true, false},
    {{1, {1, 1, 1}, {1, 64, 64}, {1, 4096, 4096}, {1, 100, 100}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.01f, true, false},
    {{1, {1, 1, 1}, {1, 2880, 2880}, {1, 64, 64}, {1, 128, 128}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.01f, true, false},
    {{1, {1, 2, 2}, {1, 64, 64}, {1, 4096, 4096}, {1, 40, 40}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.01f, true, false},
    {{1, {1, 2, 2}, {1, 64, 64}, {1, 2976, 2976}, {1, 40, 40}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.01f, true, false},
    /* that decode together */
    {{1, {1, 2, 2}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 2, 2}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 3, 3}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 3, 3}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 8, 8}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 8, 8}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 9, 9}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 9, 9}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 16, 16}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 16, 16}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 17, 17}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.002f, true, true},
    {{1, {1, 17, 17}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 32, 32}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.002f, true, true},
    {{1, {1, 32, 32}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.002f, true, true},
    /* prompts */
    {{1, {1, 172, 172}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.001f, true, false},
    {{1, {1, 186, 186}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.001f, true, false},
    {{1, {1, 200, 200}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.001f, true, false},
    {{1, {1, 214, 214}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.001f, true, false},
    {{1, {1, 165, 165}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.05f, false, false},
    {{1, {1, 179, 179}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.05f, false, false},
    {{1, {1, 193, 193}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_F32, 0.05f, false, false},
    {{1, {1, 207, 207}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_BF16}, DTYPE_BF16, 0.05f, false, false},
    {{1, {1, 165, 165}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 0.05f, false, false},
    {{1, {1, 179, 179}, {160, 1, 4}, {64, 1, 4}, {0, 4, 33}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.05f, false, false},
    {{1, {1, 193, 193}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_F32, 0.05f, false, false},
    {{1, {1, 207, 207}, {160, 1, 4}, {64, 1, 4}, {0, 44, 73}, {1, 1, 4}, {0}, DTYPE_Q8_0}, DTYPE_BF16, 0.05f, false, false},
};
/* clang-format on */

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    const struct attn_out_case *s = CASE_OF(c, cases, &p);
    if (!s) return false;
    float *bias = case_vector(c, p.groups, 0.2f);
    if (s->clear) separate(c->rng, bias, p.groups);
    make(c, &p, s->router, s->scale, bias, args);
    if (s->divided && c->kind < CASE_EXTREME) divide(c->rng, args);
    return true;
}

/* Which experts win may change with the rounding of the projection when two logits are close, so
 * the choice is verified at route, where the logits are given; here where the case keeps them
 * apart. Weights hardly change when two experts change places. */
static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_out_args *a = args;
    if (a->m < ROUTED_ROWS) return 0;
    out[0] = (struct op_output){offsetof(struct attn_out_args, routing.weight),
                                (size_t)(a->m * a->top_k) * 4, true, a->top_k, DTYPE_F32};
    return 1;
}

static int case_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_out_args *a = args;
    if (!is_separate(a->router_bias, a->n_experts)) return more_outputs(args, out);
    return case_routing_outputs(offsetof(struct attn_out_args, routing), a->m, a->n_experts,
                                a->top_k, out);
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
    .calls = {&op_attn_add, &op_attn_route},
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 2880, .k = 4096, .groups = 32, .top_k = 4},
    .more_outputs = more_outputs,
    .case_outputs = case_outputs,
    .matrices = {{OP_READS, offsetof(struct attn_out_args, attn)},
                 {OP_UPDATES, offsetof(struct attn_out_args, x)},
                 {OP_WRITES, offsetof(struct attn_out_args, normed)}},
    .weights = {offsetof(struct attn_out_args, wo)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
