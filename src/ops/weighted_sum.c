/* weighted_sum: a sum, times a number, added to a number: the loss of a micro-batch. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/weighted_sum.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct weighted_sum_args *a = args;
    return (struct op_cost){(double)a->n, 4 * (double)a->n};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct weighted_sum_args *a = args;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) sum += (double)a->x[i];
    *a->sum = (float)((double)*a->sum + (double)*a->scale * sum);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    float *x = case_vector(c, p->n, 1.0f), *scale = case_vector(c, 1, 1.0f);
    for (int64_t i = 0; x && i < p->n; i++) x[i] = x[i] * x[i]; /* losses are positive */
    if (scale) *scale = 0.5f;
    float *sum = case_vector(c, 1, 1.0f);
    if (sum) *sum = 1;
    *(struct weighted_sum_args *)args =
        (struct weighted_sum_args){.n = p->n, .x = x, .scale = scale, .sum = sum};
}

/* n */
static const struct case_shape cases[] = {
    {4, {1, 1, 1}, {0, 1, 5000}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    (void)args;
    outputs[0] = (struct op_output){offsetof(struct weighted_sum_args, sum), 4, true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct weighted_sum_args *a = args;
    *out = (struct op_problem){.rows = 1, .n = a->n};
}

const struct op op_weighted_sum = {
    .name = "weighted_sum",
    .summary = "sum += scale (x[0] + ... + x[n - 1])",
    .args_size = sizeof(struct weighted_sum_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 65536},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
