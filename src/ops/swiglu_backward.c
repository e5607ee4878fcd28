/* swiglu_backward: slopes of gpt-oss's clamped, shifted SwiGLU. With g and u the clamped inputs and
 * s = sigmoid(alpha g): out = g s (u + 1), so that dout/dg = s (u + 1) (1 + alpha g (1 - s)) and
 * dout/du = g s; what was clamped has slope 0. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/swiglu_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct swiglu_backward_args *a = args;
    return (struct op_cost){16 * (double)(a->m * a->n), 3 * matrix_bytes(&a->d) +
                                                            matrix_bytes(&a->gate) +
                                                            matrix_bytes(&a->up)};
}

/* Comparisons written so that a NaN passes through. */
static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct swiglu_backward_args *a = args;
    const float *gate = matrix_floats(&a->gate), *up = matrix_floats(&a->up);
    float *d = matrix_floats(&a->d), *dup = matrix_floats(&a->dup);
    const double alpha = (double)a->alpha, limit = (double)a->limit;
    for (int64_t i = 0; i < a->m * a->n; i++) {
        const double g = clamp((double)gate[i], -INFINITY, limit);
        const double u = clamp((double)up[i], -limit, limit), s = 1 / (1 + exp(-alpha * g));
        const double gate_slope = s * (u + 1) * (1 + alpha * g * (1 - s)), dout = (double)d[i];
        d[i] = (float)(dout * ((double)gate[i] > limit ? 0 : gate_slope));
        dup[i] = (float)(dout * (fabs((double)up[i]) > limit ? 0 : g * s));
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct swiglu_backward_args *)args = (struct swiglu_backward_args){
        .m = p->rows,
        .n = p->n,
        .alpha = 1.702f,
        .limit = 7.0f,
        .gate = case_rows(c, p->rows, p->n, 4.0f),
        .up = case_rows(c, p->rows, p->n, 4.0f),
        .d = case_rows(c, p->rows, p->n, 1.0f),
        .dup = case_output(c, p->rows, p->n),
    };
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct swiglu_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->d.dtype, .n = a->n};
}

const struct op op_swiglu_backward = {
    .name = "swiglu_backward",
    .summary = "from swiglu's inputs: d becomes the gradient of gate, dup that of up; what was "
               "clamped has slope 0",
    .args_size = sizeof(struct swiglu_backward_args),
    .problem = problem,
    .tolerance = {{4e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_F32, .n = 2880},
    .matrices = {{OP_READS, offsetof(struct swiglu_backward_args, gate)},
                 {OP_READS, offsetof(struct swiglu_backward_args, up)},
                 {OP_UPDATES, offsetof(struct swiglu_backward_args, d)},
                 {OP_WRITES, offsetof(struct swiglu_backward_args, dup)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
