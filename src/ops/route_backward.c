/* route_backward: through the softmax over the chosen logits, and where asked of the loss that
 * spreads tokens over experts. Small work beside the products, so the reference is also what runs
 * on the CPU. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/route_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct route_backward_args *a = args;
    const double logits = (double)(a->m * a->n_experts), slots = (double)(a->m * a->top_k);
    const bool balanced = a->balance != 0;
    return (struct op_cost){4 * slots + (balanced ? 6 * logits : 0),
                            4 * (logits * (balanced ? 2 : 1) + 3 * slots)};
}

/* Adds the gradient of the balance loss to a token's row. */
static void add_balance(const struct route_backward_args *a, const float *logits, float *dlogits)
{
    const double slots = (double)(a->m * a->top_k);
    const double factor = (double)a->balance * (double)*a->scale * (double)a->n_experts;
    const int32_t *offsets = a->routing.group_offsets;
    double largest = -INFINITY, total = 0, mean = 0;
    for (int64_t e = 0; e < a->n_experts; e++) /* GCC 12 for aarch64 fails at fmax here */
        if ((double)logits[e] > largest) largest = (double)logits[e];
    for (int64_t e = 0; e < a->n_experts; e++) {
        const double p = exp((double)logits[e] - largest);
        total += p;
        mean += p * (double)(offsets[e + 1] - offsets[e]) / slots;
    }
    mean /= total;
    for (int64_t e = 0; e < a->n_experts; e++) {
        const double p = exp((double)logits[e] - largest) / total;
        const double share = (double)(offsets[e + 1] - offsets[e]) / slots;
        dlogits[e] = (float)((double)dlogits[e] + factor * p * (share - mean));
    }
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct route_backward_args *a = args;
    for (int64_t i = 0; i < a->m; i++) {
        const float *w = a->routing.weight + i * a->top_k, *dw = a->dweight + i * a->top_k;
        const int32_t *expert = a->routing.expert + i * a->top_k;
        float *dlogits = matrix_floats(&a->dlogits) + i * a->n_experts;
        double mean = 0;
        for (int64_t j = 0; j < a->top_k; j++) mean += (double)w[j] * (double)dw[j];
        for (int64_t e = 0; e < a->n_experts; e++) dlogits[e] = 0;
        for (int64_t j = 0; j < a->top_k; j++)
            dlogits[expert[j]] = (float)((double)w[j] * ((double)dw[j] - mean));
        if (a->balance != 0) add_balance(a, matrix_floats(&a->logits) + i * a->n_experts, dlogits);
    }
}

static void make(struct case_maker *c, const struct op_problem *p, float balance, void *args)
{
    float *scale = case_vector(c, 1, 1.0f);
    *(struct route_backward_args *)args = (struct route_backward_args){
        .m = p->rows,
        .n_experts = p->n,
        .top_k = p->top_k,
        .balance = balance,
        .scale = scale,
        .dweight = case_vector(c, p->rows * p->top_k, 1.0f),
        .routing = case_routing(c, p->rows, p->n, p->top_k),
        .logits = case_rows(c, p->rows, p->n, 1.0f),
        .dlogits = case_output(c, p->rows, p->n),
    };
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, 0.01f, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 6) return false;
    const struct op_problem p = {
        .rows = case_size(c, 1, 60), .n = case_size(c, 4, 128), .top_k = rng_range(c->rng, 1, 4)};
    make(c, &p, c->index % 2 ? 0.5f : 0, args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct route_backward_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->dlogits.dtype, .n = a->n_experts, .top_k = a->top_k};
}

const struct op op_route_backward = {
    .name = "route_backward",
    .summary = "gradients of the chosen experts' weights as those of the router's logits, with "
               "that of the balance loss",
    .args_size = sizeof(struct route_backward_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 32, .top_k = 4},
    .matrices = {{OP_READS, offsetof(struct route_backward_args, logits)},
                 {OP_WRITES, offsetof(struct route_backward_args, dlogits)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
