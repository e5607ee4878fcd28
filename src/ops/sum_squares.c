/* sum_squares: of a matrix, added to a number: the norm of gradients. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/sum_squares.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct sum_squares_args *a = args;
    return (struct op_cost){2 * (double)(a->m * a->n), matrix_bytes(&a->x)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct sum_squares_args *a = args;
    const float *x = matrix_floats(&a->x);
    double sum = 0;
    for (int64_t i = 0; i < a->m * a->n; i++) sum += (double)x[i] * (double)x[i];
    *a->sum = (float)((double)*a->sum + sum);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    float *sum = case_vector(c, 1, 1.0f);
    if (sum) *sum = 1;
    *(struct sum_squares_args *)args = (struct sum_squares_args){
        .m = p->rows, .n = p->n, .x = case_rows(c, p->rows, p->n, 1.0f), .sum = sum};
}

/* rows, n */
static const struct case_shape cases[] = {
    {4, {0, 1, 40}, {0, 1, 3000}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {1, {1, 170, 180}, {1, 1700, 1900}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    (void)args;
    outputs[0] = (struct op_output){offsetof(struct sum_squares_args, sum), 4, true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct sum_squares_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n};
}

const struct op op_sum_squares = {
    .name = "sum_squares",
    .summary = "sum += the squares of all numbers; NaN where one is",
    .args_size = sizeof(struct sum_squares_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct sum_squares_args, x)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
