/* swiglu: the clamped, shifted SwiGLU of gpt-oss. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/swiglu.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct swiglu_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){8 * count, 12 * count};
}

/* Comparisons written so that a NaN passes through. */
static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct swiglu_args *a = args;
    float *out = matrix_floats(&a->gate);
    const float *in = matrix_floats(&a->up);
    for (int64_t i = 0; i < a->m * a->n; i++) {
        double gate = clamp(out[i], -INFINITY, a->limit);
        double up = clamp(in[i], -a->limit, a->limit);
        out[i] = (float)(gate / (1 + exp(-a->alpha * gate)) * (up + 1));
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct swiglu_args *)args = (struct swiglu_args){
        .m = p->rows,
        .n = p->n,
        .alpha = 1.702f,
        .limit = 7.0f,
        .up = case_rows(c, p->rows, p->n, 4.0f),
        .gate = case_rows(c, p->rows, p->n, 4.0f),
    };
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct swiglu_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_swiglu = {
    .name = "swiglu",
    .summary =
        "gate = min(gate, limit) * sigmoid(alpha * gate) * (clamp(up, +-limit) + 1), in place; NaN "
        "stays NaN, an infinity is clamped as the definition says",
    .args_size = sizeof(struct swiglu_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 4, .n = 2880},
    .matrices = {{OP_READS, offsetof(struct swiglu_args, up)},
                 {OP_UPDATES, offsetof(struct swiglu_args, gate)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
