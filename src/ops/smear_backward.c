/* smear_backward: gradients of smear's input, scale and gate. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/smear_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct smear_backward_args *a = args;
    const double rows = (double)(a->sequences * a->length);
    return (struct op_cost){rows * 4 * (double)(a->n + a->channels),
                            matrix_bytes(&a->x) + matrix_bytes(&a->dy) + matrix_bytes(&a->dx)};
}

static double open_of(const struct smear_backward_args *a, const float *x)
{
    double sum = 0;
    for (int64_t j = 0; j < a->channels; j++) sum += (double)a->gate[j] * (double)x[j];
    return 1 / (1 + exp(-sum));
}

/* The gradient of the gate's argument in row i, which is not the first of its sequence. */
static double slope_at(const struct smear_backward_args *a, int64_t i, double *dlambda)
{
    const float *x = matrix_floats(&a->x) + i * a->n, *dy = matrix_floats(&a->dy) + i * a->n;
    const double open = open_of(a, x);
    double along = 0;
    for (int64_t j = 0; j < a->n; j++) along += (double)dy[j] * (double)x[j - a->n];
    *dlambda += open * along;
    return (double)*a->lambda * open * (1 - open) * along;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct smear_backward_args *a = args;
    const int64_t rows = a->sequences * a->length;
    double dlambda = 0, dgate[1024] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const float *x = matrix_floats(&a->x) + i * a->n, *dy = matrix_floats(&a->dy) + i * a->n;
        float *dx = matrix_floats(&a->dx) + i * a->n;
        const bool has_next = i % a->length + 1 < a->length;
        const double next = has_next ? (double)*a->lambda * open_of(a, x + a->n) : 0;
        const double slope = i % a->length ? slope_at(a, i, &dlambda) : 0;
        for (int64_t j = 0; j < a->n; j++) {
            double d = (double)dy[j];
            if (has_next) d += next * (double)dy[j + a->n];
            if (j < a->channels && i % a->length) d += slope * (double)a->gate[j];
            dx[j] = (float)d;
        }
        for (int64_t j = 0; i % a->length && j < a->channels; j++) dgate[j] += slope * (double)x[j];
    }
    *a->dlambda = (float)((double)*a->dlambda + dlambda);
    for (int64_t j = 0; j < a->channels; j++) a->dgate[j] = (float)((double)a->dgate[j] + dgate[j]);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t sequences = case_sequences(c, p), rows = sequences * p->rows;
    *(struct smear_backward_args *)args =
        (struct smear_backward_args){.sequences = sequences,
                                     .length = p->rows,
                                     .n = p->n,
                                     .lambda = case_vector(c, 1, 1.0f),
                                     .gate = case_vector(c, p->k, 0.5f),
                                     .channels = p->k,
                                     .x = case_rows(c, rows, p->n, 1.0f),
                                     .dy = case_rows(c, rows, p->n, 1.0f),
                                     .dx = case_output(c, rows, p->n),
                                     .dlambda = case_vector(c, 1, 1.0f),
                                     .dgate = case_vector(c, p->k, 1.0f)};
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 8) return false;
    const int64_t channels = rng_range(c->rng, 1, 24), rows = c->index == 7 ? 8300 : 0;
    make_problem(c,
                 &(struct op_problem){.rows = rows ? rows : case_size(c, 1, 20),
                                      .n = c->index % 2
                                               ? channels + (rows ? 8 : case_size(c, 1, 200))
                                               : 64 * rng_range(c->rng, 1, 4),
                                      .k = channels,
                                      .sequences = rng_range(c->rng, 1, 3)},
                 args);
    /* The scale's gradient is a sum of terms of either sign: of a row and the one before. Here they
     * go along with each other, so that the sum is as large as its terms. */
    struct smear_backward_args *a = args;
    float *x = a->x.data, *dy = a->dy.data;
    for (int64_t i = a->n; x && dy && i < a->sequences * a->length * a->n; i++)
        if (dy[i] * x[i - a->n] < 0) dy[i] = -dy[i];
    return true;
}

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct smear_backward_args *a = args;
    outputs[0] =
        (struct op_output){offsetof(struct smear_backward_args, dlambda), 4, true, 1, DTYPE_F32};
    outputs[1] =
        (struct op_output){offsetof(struct smear_backward_args, dgate),
                           (size_t)a->channels * sizeof(float), true, a->channels, DTYPE_F32};
    return 2;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct smear_backward_args *a = args;
    *out = (struct op_problem){.rows = a->length,
                               .dtype = a->x.dtype,
                               .n = a->n,
                               .k = a->channels,
                               .sequences = a->sequences};
}

const struct op op_smear_backward = {
    .name = "smear_backward",
    .summary = "gradients of smear's input, scale and gate (at most 1024 channels)",
    .args_size = sizeof(struct smear_backward_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280, .k = 24, .sequences = 1},
    .matrices = {{OP_READS, offsetof(struct smear_backward_args, x)},
                 {OP_READS, offsetof(struct smear_backward_args, dy)},
                 {OP_WRITES, offsetof(struct smear_backward_args, dx)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
