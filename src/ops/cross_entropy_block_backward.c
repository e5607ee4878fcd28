/* cross_entropy_block_backward: gradients of a block of logits whose row's sum is known. */
#include "ops/cases.h"
#include "ops/cross_entropy.h"
#include "ops/ops.h"

#define OP_LIST "ops/cross_entropy_block_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct cross_entropy_block_backward_args *a = args;
    const double count = (double)(a->m * a->logits.cols);
    return (struct op_cost){10 * count, 2 * matrix_bytes(&a->logits) + 12 * (double)a->m};
}

static void row(const struct cross_entropy_block_backward_args *a, int64_t i)
{
    float *x = matrix_floats(&a->logits) + i * a->logits.cols;
    const int32_t target = a->target[i];
    for (int64_t j = 0; j < a->logits.cols; j++) {
        if (target < 0 || a->first + j >= a->vocab) {
            x[j] = 0;
            continue;
        }
        const double z = cross_entropy_capped(a->cap, x[j]);
        const double share = exp(z - (double)a->top[i]) / (double)a->total[i];
        x[j] = (float)((double)*a->scale * (share - (a->first + j == target)) *
                       cross_entropy_slope(a->cap, z));
    }
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct cross_entropy_block_backward_args *a = args;
    for (int64_t i = 0; i < a->m; i++) row(a, i);
}

/* Top and total as they are of the block's logits and some more. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct cross_entropy_block_args of;
    struct cross_entropy_block_backward_args *a = args;
    float *scale = case_vector(c, 1, 1.0f);
    op_cross_entropy_block.make_problem(c, p, &of);
    *a = (struct cross_entropy_block_backward_args){.m = of.m,
                                                    .vocab = of.vocab,
                                                    .first = of.first,
                                                    .cap = of.cap,
                                                    .target = of.target,
                                                    .scale = scale,
                                                    .top = of.top,
                                                    .total = of.total,
                                                    .logits = of.logits};
    if (!scale || !of.logits.data || !of.top || !of.total || !of.own || !of.nll || !of.target)
        return;
    *scale = 0.25f;
    if (c->kind == CASE_TIMED) { /* one is as good as another, and the loss of all takes long */
        for (int64_t i = 0; i < of.m; i++) of.top[i] = 15, of.total[i] = 100;
        return;
    }
    of.vocab -= of.first, of.first = 0; /* nothing came before */
    op_cross_entropy_block.reference(NULL, &of);
    for (int64_t i = 0; i < of.m; i++) of.total[i] += (float)rng_range(c->rng, 1, 9);
}

/* rows, n: columns of the block */
static const struct case_shape cases[] = {
    {8, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {4, {1, 1, 9}, {8, 1, 80}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 1, 3}, {1, 2000, 9000}, {0}, {0}, {0}, {0}, DTYPE_F32},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct cross_entropy_block_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->logits.dtype, .n = a->logits.cols};
}

const struct op op_cross_entropy_block_backward = {
    .name = "cross_entropy_block_backward",
    .summary = "a block of logits becomes its gradient, by what cross_entropy_block left of all",
    .args_size = sizeof(struct cross_entropy_block_backward_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2048},
    .matrices = {{OP_UPDATES, offsetof(struct cross_entropy_block_backward_args, logits)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
