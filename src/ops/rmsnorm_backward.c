/* rmsnorm_backward: gradient of a root-mean-square normalisation. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/rmsnorm_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct rmsnorm_backward_args *a = args;
    return (struct op_cost){10 * (double)(a->m * a->n),
                            matrix_bytes(&a->x) + matrix_bytes(&a->dy) + 2 * matrix_bytes(&a->dx)};
}

/* With h = x r, r = 1 / sqrt(mean(x^2) + eps) and g = gain dy: dx += r (g - h mean(g h)). */
static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct rmsnorm_backward_args *a = args;
    for (int64_t i = 0; i < a->m; i++) {
        const float *x = matrix_floats(&a->x) + i * a->n, *dy = matrix_floats(&a->dy) + i * a->n;
        float *dx = matrix_floats(&a->dx) + i * a->n;
        double squares = 0, along = 0;
        for (int64_t j = 0; j < a->n; j++) {
            squares += (double)x[j] * (double)x[j];
            along += (double)x[j] * (double)dy[j] * (a->gain ? (double)a->gain[j] : 1);
        }
        const double r = 1 / sqrt(squares / (double)a->n + (double)a->eps);
        const double mean = along * r / (double)a->n;
        for (int64_t j = 0; j < a->n; j++) {
            const double h = (double)x[j] * r,
                         g = (double)dy[j] * (a->gain ? (double)a->gain[j] : 1);
            dx[j] = (float)((double)dx[j] + r * (g - h * mean));
        }
    }
    for (int64_t j = 0; a->dgain && j < a->n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < a->m; i++) {
            const float *x = matrix_floats(&a->x) + i * a->n;
            double squares = 0;
            for (int64_t l = 0; l < a->n; l++) squares += (double)x[l] * (double)x[l];
            sum += (double)matrix_floats(&a->dy)[i * a->n + j] * (double)x[j] /
                   sqrt(squares / (double)a->n + (double)a->eps);
        }
        a->dgain[j] = (float)((double)a->dgain[j] + sum);
    }
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const bool gain = c->index % 2;
    *(struct rmsnorm_backward_args *)args = (struct rmsnorm_backward_args){
        .m = p->rows,
        .n = p->n,
        .eps = 1e-6f,
        .x = case_rows(c, p->rows, p->n, 1.0f),
        .dy = case_rows(c, p->rows, p->n, 1.0f),
        .gain = gain ? case_vector(c, p->n, 1.0f) : NULL,
        .dgain = gain ? case_vector(c, p->n, 1.0f) : NULL,
        .dx = case_rows(c, p->rows, p->n, 1.0f),
    };
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 5, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {2, {1, 100, 200}, {8, 1, 40}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {2, {1, 1, 3}, {8, 257, 1024}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {1, {1, 1, 2}, {1, 8200, 8300}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct rmsnorm_backward_args *a = args;
    if (!a->dgain) return 0;
    outputs[0] = (struct op_output){offsetof(struct rmsnorm_backward_args, dgain),
                                    (size_t)a->n * sizeof(float), true, a->n, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct rmsnorm_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->x.dtype, .n = a->n};
}

const struct op op_rmsnorm_backward = {
    .name = "rmsnorm_backward",
    .summary = "dx += the gradient of rmsnorm; dgain added up over rows",
    .args_size = sizeof(struct rmsnorm_backward_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct rmsnorm_backward_args, x)},
                 {OP_READS, offsetof(struct rmsnorm_backward_args, dy)},
                 {OP_UPDATES, offsetof(struct rmsnorm_backward_args, dx)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
