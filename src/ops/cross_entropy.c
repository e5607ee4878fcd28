/* cross_entropy: loss of softcapped logits, and its gradient in their place. */
#include "ops/cross_entropy.h"

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/cross_entropy.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct cross_entropy_args *a = args;
    double count = (double)(a->m * a->vocab);
    double passes = a->gradient ? 2 : 1;
    return (struct op_cost){(a->gradient ? 16 : 10) * count,
                            passes * matrix_bytes(&a->logits) + 8 * (double)a->m};
}

static void row(const struct cross_entropy_args *a, int64_t i)
{
    float *x = matrix_floats(&a->logits) + i * a->logits.cols;
    const int32_t target = a->target[i];
    double top = -INFINITY, total = 0;
    for (int64_t j = 0; j < a->vocab; j++) {
        double z = cross_entropy_capped(a->cap, x[j]);
        top = z > top || isnan(z) ? z : top;
    }
    for (int64_t j = 0; j < a->vocab; j++) total += exp(cross_entropy_capped(a->cap, x[j]) - top);
    const double lse = top + log(total);
    a->nll[i] = target < 0 ? 0 : (float)(lse - cross_entropy_capped(a->cap, x[target]));
    if (!a->gradient) return;
    for (int64_t j = 0; j < a->logits.cols; j++) {
        if (target < 0 || j >= a->vocab) {
            x[j] = 0;
            continue;
        }
        const double z = cross_entropy_capped(a->cap, x[j]), share = exp(z - lse) - (j == target);
        x[j] = (float)((double)*a->scale * share * cross_entropy_slope(a->cap, z));
    }
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct cross_entropy_args *a = args;
    for (int64_t i = 0; i < a->m; i++) row(a, i);
}

/* Columns beyond the vocabulary: so many as fill the last 64. */
static void make(struct case_maker *c, const struct op_problem *p, bool gradient,
                 struct cross_entropy_args *a)
{
    const int64_t padded = (p->n + 63) / 64 * 64;
    float *scale = case_vector(c, 1, 1.0f), *nll = case_vector(c, p->rows, 1.0f);
    int32_t *target = ARENA_NEW(c->arena, int32_t, p->rows);
    *a = (struct cross_entropy_args){.m = p->rows,
                                     .vocab = p->n,
                                     .cap = c->index % 3 == 2 ? 0 : 15,
                                     .gradient = gradient,
                                     .target = target,
                                     .scale = scale,
                                     .logits = case_rows(c, p->rows, padded, 4.0f),
                                     .nll = nll};
    if (scale) *scale = 0.25f;
    for (int64_t i = 0; target && i < p->rows; i++)
        target[i] = (int32_t)rng_range(c->rng, i % 5 == 3 ? -1 : 0, p->n - 1);
    for (int64_t i = 3; target && i < p->rows; i += 9) target[i] = -1;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, true, args);
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 2, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 1, 6}, {1, 1000, 9000}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 1, 2}, {1, 33000, 60000}, {0}, {0}, {0}, {0}, DTYPE_F32},
};

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    if (!CASE_OF(c, cases, &p)) return false;
    if (p.n < 2) p.n = 2;
    make(c, &p, true, args);
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct cross_entropy_args *a = args;
    outputs[0] = (struct op_output){offsetof(struct cross_entropy_args, nll),
                                    (size_t)a->m * sizeof(float), true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct cross_entropy_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->logits.dtype, .n = a->vocab};
}

const struct op op_cross_entropy = {
    .name = "cross_entropy",
    .summary = "nll = ln sum exp z - z[target] of z = cap tanh(logit / cap); logits become the "
               "gradient; a row with NaN has nll NaN",
    .args_size = sizeof(struct cross_entropy_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1024, .dtype = DTYPE_F32, .n = 32768},
    .matrices = {{OP_UPDATES, offsetof(struct cross_entropy_args, logits)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
