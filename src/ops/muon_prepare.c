/* muon_prepare: momentum, and the matrix that Muon makes orthogonal, scaled so that it converges.
 */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/muon_prepare.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct muon_prepare_args *a = args;
    return (struct op_cost){12 * (double)(a->count * a->rows * a->cols),
                            2 * (matrix_bytes(&a->g) + matrix_bytes(&a->momentum)) +
                                matrix_bytes(&a->x)};
}

static double squares(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Rows to their mean norm: sqrt of all squares over the rows. */
static void equilibrate(float *x, int64_t rows, int64_t cols)
{
    const double target = sqrt(squares(x, rows * cols)) / sqrt((double)rows);
    for (int64_t i = 0; i < rows; i++) {
        const double norm = sqrt(squares(x + i * cols, cols));
        const float factor = (float)(target / (norm < 1e-6 ? 1e-6 : norm));
        for (int64_t j = 0; j < cols; j++) x[i * cols + j] *= factor;
    }
}

static void one(const struct muon_prepare_args *a, int64_t index)
{
    const int64_t n = a->rows * a->cols;
    const float clip = a->clip ? *a->clip : 1, mu = a->step->momentum;
    float *g = matrix_floats(&a->g) + index * n, *x = matrix_floats(&a->x) + index * n;
    float *momentum = matrix_floats(&a->momentum) + index * n;
    for (int64_t i = 0; i < n; i++) {
        const float grad = g[i] * clip;
        momentum[i] += (grad - momentum[i]) * (1 - mu);
        x[i] = grad + (momentum[i] - grad) * mu;
        g[i] = 0;
    }
    if (a->features & MUON_EQUILIBRATE) equilibrate(x, a->rows, a->cols);
    const double norm = sqrt(squares(x, n)) * (double)a->margin + (double)a->tiny;
    for (int64_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / norm);
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct muon_prepare_args *a = args;
    for (int64_t i = 0; i < a->count; i++) one(a, i);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t count = p->groups ? p->groups : 1, rows = p->rows, cols = p->n;
    struct muon_step *s = ARENA_NEW(c->arena, struct muon_step, 1);
    float *clip = case_vector(c, 1, 1.0f);
    if (clip) *clip = 0.5f;
    if (s) *s = (struct muon_step){.lr = 0.02f, .momentum = 0.9f, .beta2 = 0.9f, .decay = 0.1f};
    *(struct muon_prepare_args *)args =
        (struct muon_prepare_args){.count = count,
                                   .rows = rows,
                                   .cols = cols,
                                   .step = s,
                                   .clip = c->index % 3 == 2 ? clip : NULL,
                                   .features = c->index % 2 ? 0 : MUON_EQUILIBRATE,
                                   .margin = c->index % 2 ? 1 : 1.01f,
                                   .tiny = 1e-6f,
                                   .g = case_rows(c, count * rows, cols, 0.1f),
                                   .momentum = case_rows(c, count * rows, cols, 0.1f),
                                   .x = case_output(c, count * rows, cols)};
}

/* rows, n, matrices */
static const struct case_shape cases[] = {
    {5, {0, 1, 60}, {0, 1, 300}, {0}, {1, 1, 3}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct muon_prepare_args *a = args;
    *out =
        (struct op_problem){.rows = a->rows, .dtype = a->x.dtype, .n = a->cols, .groups = a->count};
}

const struct op op_muon_prepare = {
    .name = "muon_prepare",
    .summary = "momentum, then x = lerp(g, momentum) with rows of one norm where asked, over its "
               "norm; a NaN reaches all of its matrix",
    .args_size = sizeof(struct muon_prepare_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .matrices = {{OP_UPDATES, offsetof(struct muon_prepare_args, g)},
                 {OP_UPDATES, offsetof(struct muon_prepare_args, momentum)},
                 {OP_WRITES, offsetof(struct muon_prepare_args, x)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
