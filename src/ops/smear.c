/* smear: a part of the token before is added to each. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/smear.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct smear_args *a = args;
    const double rows = (double)(a->sequences * a->length);
    return (struct op_cost){rows * 2 * (double)(a->n + a->channels),
                            matrix_bytes(&a->x) + matrix_bytes(&a->y)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct smear_args *a = args;
    for (int64_t i = 0; i < a->sequences * a->length; i++) {
        const float *x = matrix_floats(&a->x) + i * a->n;
        float *y = matrix_floats(&a->y) + i * a->n;
        double sum = 0, part = 0;
        for (int64_t j = 0; j < a->channels; j++) sum += (double)a->gate[j] * (double)x[j];
        if (i % a->length) part = (double)*a->lambda / (1 + exp(-sum));
        for (int64_t j = 0; j < a->n; j++)
            y[j] = i % a->length ? (float)((double)x[j] + part * (double)x[j - a->n]) : x[j];
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t sequences = case_sequences(c, p), rows = sequences * p->rows;
    *(struct smear_args *)args = (struct smear_args){.sequences = sequences,
                                                     .length = p->rows,
                                                     .n = p->n,
                                                     .lambda = case_vector(c, 1, 1.0f),
                                                     .gate = case_vector(c, p->k, 0.5f),
                                                     .channels = p->k,
                                                     .x = case_rows(c, rows, p->n, 1.0f),
                                                     .y = case_output(c, rows, p->n)};
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 7) return false;
    const int64_t channels = rng_range(c->rng, 1, 24);
    make_problem(c,
                 &(struct op_problem){.rows = case_size(c, 1, 20),
                                      .n = c->index % 2 ? channels + case_size(c, 1, 200)
                                                        : 64 * rng_range(c->rng, 1, 4),
                                      .k = channels,
                                      .sequences = rng_range(c->rng, 1, 3)},
                 args);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct smear_args *a = args;
    *out = (struct op_problem){.rows = a->length,
                               .dtype = a->x.dtype,
                               .n = a->n,
                               .k = a->channels,
                               .sequences = a->sequences};
}

/* A NaN or infinity reaches the row behind it, whose input it is: part times it is in there. */
const struct op op_smear = {
    .name = "smear",
    .summary = "y[i] = x[i] + lambda sigmoid(gate . x[i]) x[i - 1] but in the first row of a "
               "sequence; what is not finite reaches the next row too",
    .args_size = sizeof(struct smear_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280, .k = 24, .sequences = 1},
    .matrices = {{OP_READS, offsetof(struct smear_args, x)},
                 {OP_WRITES, offsetof(struct smear_args, y)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
