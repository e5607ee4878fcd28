/* route: top-k over the router's logits, softmax over the chosen, and the rows grouped by expert.
 * Small integer work that is far from any limit, so the reference is also what runs. */
#include <math.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/route.h"

#define OP_LIST "ops/route.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct route_args *a = args;
    return (struct op_cost){0, 4.0 * (double)(a->m * (a->n_experts + 4 * a->top_k))};
}

static bool has_nan(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i])) return true;
    return false;
}

/* Insertion into a short sorted list: strictly greater moves ahead, so the lower index wins a tie.
 */
static void choose_top(const float *logits, int64_t n, int64_t top_k, int32_t *expert)
{
    int64_t count = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t at = count;
        while (at > 0 && logits[e] > logits[expert[at - 1]]) at--;
        if (at == top_k) continue;
        if (count < top_k) count++;
        memmove(expert + at + 1, expert + at, sizeof *expert * (size_t)(count - 1 - at));
        expert[at] = (int32_t)e;
    }
}

/* Softmax over the logits of the row's experts. */
static void weigh(const struct route_args *a, int64_t i)
{
    const float *logits = matrix_floats(&a->logits) + i * a->n_experts;
    const int32_t *expert = a->routing.expert + i * a->top_k;
    float *weight = a->routing.weight + i * a->top_k;
    double total = 0;
    for (int64_t j = 0; j < a->top_k; j++)
        total += exp((double)logits[expert[j]] - logits[expert[0]]);
    for (int64_t j = 0; j < a->top_k; j++)
        weight[j] = (float)(exp((double)logits[expert[j]] - logits[expert[0]]) / total);
}

static void route_token(const struct route_args *a, int64_t i)
{
    const float *logits = matrix_floats(&a->logits) + i * a->n_experts;
    int32_t *expert = a->routing.expert + i * a->top_k;
    float *weight = a->routing.weight + i * a->top_k;
    if (has_nan(logits, a->n_experts)) {
        for (int64_t j = 0; j < a->top_k; j++) expert[j] = (int32_t)j, weight[j] = NAN;
        return;
    }
    choose_top(logits, a->n_experts, a->top_k, expert);
    weigh(a, i);
}

/* A counting sort of the slots by expert. */
static void group_rows(const struct route_args *a)
{
    const struct routing *r = &a->routing;
    int64_t slots = a->m * a->top_k;
    memset(r->group_offsets, 0, sizeof(int32_t) * (size_t)(a->n_experts + 1));
    for (int64_t s = 0; s < slots; s++) r->group_offsets[r->expert[s] + 1]++;
    for (int64_t e = 0; e < a->n_experts; e++) r->group_offsets[e + 1] += r->group_offsets[e];
    for (int64_t s = 0; s < slots; s++) {
        int32_t row = r->group_offsets[r->expert[s]]++;
        r->row_of_slot[s] = row;
        r->token_of_row[row] = (int32_t)(s / a->top_k);
    }
    /* Each offset now is the end of its group: shift them back to the beginnings. */
    memmove(r->group_offsets + 1, r->group_offsets, sizeof(int32_t) * (size_t)a->n_experts);
    r->group_offsets[0] = 0;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct route_args *a = args;
    for (int64_t i = 0; i < a->m; i++) route_token(a, i);
    group_rows(a);
}

void route_given(const struct route_args *a, const int32_t *experts)
{
    memcpy(a->routing.expert, experts, (size_t)(a->m * a->top_k) * sizeof *experts);
    for (int64_t i = 0; i < a->m; i++) weigh(a, i);
    group_rows(a);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct route_args *)args = (struct route_args){
        .m = p->rows,
        .n_experts = p->n,
        .top_k = p->top_k,
        .logits = case_rows(c, p->rows, p->n, 1.0f),
        .routing = case_routing_buffers(c, p->rows, p->n, p->top_k),
    };
}

static bool make_case(struct case_maker *c, void *args)
{
    /* The last one: more than the blocks that sort read in one go. */
    enum { SMALL = 6, LAST = 8 };
    if (c->index > LAST) return false;
    int64_t m = c->index < SMALL ? case_size(c, 1, 60) : rng_range(c->rng, 300, 900),
            experts = case_size(c, 4, 128), top_k = rng_range(c->rng, 1, 4);
    if (c->index == LAST) m += 800, top_k = 4;
    struct route_args *a = args;
    make_problem(c, &(struct op_problem){.rows = m, .n = experts, .top_k = top_k}, a);
    /* Ties are part of the contract. */
    float *logits = a->logits.data;
    for (int64_t i = 0; logits && c->index % 2 && i < m * experts; i++)
        logits[i] = roundf(logits[i]);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct route_args *a = args;
    return case_routing_outputs(offsetof(struct route_args, routing), a->m, a->n_experts, a->top_k,
                                out);
}

static void problem(const void *args, struct op_problem *out)
{
    const struct route_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n_experts, .top_k = a->top_k};
}

const struct op op_route = {
    .name = "route",
    .summary = "top-k experts per token, softmax over them, rows grouped by expert; a row with NaN "
               "chooses experts 0.. with NaN weights",
    .args_size = sizeof(struct route_args),
    .problem = problem,
    .tolerance = {{1e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 32, .top_k = 4},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct route_args, logits)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
