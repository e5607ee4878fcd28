/* silu_mul: the gated MLP of a Llama, SwiGLU without clamps and shift. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/silu_mul.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct silu_mul_args *a = args;
    double count = (double)(a->m * a->n);
    return (struct op_cost){5 * count, 12 * count};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct silu_mul_args *a = args;
    float *out = matrix_floats(&a->gate);
    const float *in = matrix_floats(&a->up);
    for (int64_t i = 0; i < a->m * a->n; i++)
        out[i] = (float)(out[i] / (1 + exp(-(double)out[i])) * in[i]);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct silu_mul_args *)args = (struct silu_mul_args){
        .m = p->rows,
        .n = p->n,
        .up = case_rows(c, p->rows, p->n, 4.0f),
        .gate = case_rows(c, p->rows, p->n, 4.0f),
    };
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct silu_mul_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_silu_mul = {
    .name = "silu_mul",
    .summary = "gate = gate * sigmoid(gate) * up, in place; NaN stays NaN",
    .args_size = sizeof(struct silu_mul_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 17280},
    .matrices = {{OP_READS, offsetof(struct silu_mul_args, up)},
                 {OP_UPDATES, offsetof(struct silu_mul_args, gate)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
