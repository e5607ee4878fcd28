/* muon_apply: what an orthogonal matrix does to the weights: its norm set, its rows or columns
 * scaled by their second moment, decay where update and weight agree in sign. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/muon_apply.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct muon_apply_args *a = args;
    return (struct op_cost){12 * (double)(a->count * a->rows * a->cols),
                            matrix_bytes(&a->x) + 2 * matrix_bytes(&a->p)};
}

/* Number `line` of the rows where there are as many as columns, else of the columns. */
static double mean_square(const struct muon_apply_args *a, const float *x, int64_t line)
{
    const bool tall = a->rows >= a->cols;
    const int64_t n = tall ? a->cols : a->rows;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)(tall ? x[line * a->cols + i] : x[i * a->cols + line]);
        sum += v * v;
    }
    return sum / (double)n;
}

static double all_squares(const struct muon_apply_args *a, const float *x)
{
    double sum = 0;
    for (int64_t i = 0; i < a->rows * a->cols; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The second moment learns, and x's lines are divided by its root; the norm of all stays. `snap` is
 * what x is to be multiplied with before. */
static double line_factor(const struct muon_apply_args *a, const float *second, int64_t line)
{
    const double least = 1e-10, moment = (double)second[line];
    (void)a;
    return 1 / sqrt(moment < least ? least : moment);
}

static double learn(const struct muon_apply_args *a, const float *x, double snap, float *second)
{
    const int64_t lines = a->rows >= a->cols ? a->rows : a->cols;
    const double width = (double)(a->rows >= a->cols ? a->cols : a->rows);
    double before = 0, after = 0;
    for (int64_t i = 0; i < lines; i++) {
        const double mean = mean_square(a, x, i) * snap * snap;
        second[i] += ((float)mean - second[i]) * (1 - a->step->beta2);
        const double factor = line_factor(a, second, i);
        before += mean * width;
        after += mean * width * factor * factor;
    }
    after = sqrt(after);
    return sqrt(before) / (after < 1e-10 ? 1e-10 : after);
}

static void one(const struct muon_apply_args *a, int64_t index)
{
    const int64_t n = a->rows * a->cols;
    const bool tall = a->rows >= a->cols;
    const float *x = matrix_floats(&a->x) + index * n;
    float *p = matrix_floats(&a->p) + index * n;
    float *second = a->second ? a->second + index * (tall ? a->rows : a->cols) : NULL;
    double scale = 1;
    if (a->features & MUON_SNAP) {
        const double norm = sqrt(all_squares(a, x));
        scale = sqrt((double)(tall ? a->cols : a->rows)) / (norm < 1e-6 ? 1e-6 : norm);
    }
    const double keep = a->features & MUON_SECOND ? learn(a, x, scale, second) : 1;
    for (int64_t i = 0; i < n; i++) {
        double factor = scale * keep;
        if (a->features & MUON_SECOND)
            factor *= line_factor(a, second, tall ? i / a->cols : i % a->cols);
        const float u = (float)((double)x[i] * factor), lr = a->step->lr;
        const float decay = u * p[i] >= 0 ? lr * a->step->decay * p[i] : 0;
        p[i] -= lr * u + decay;
    }
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct muon_apply_args *a = args;
    for (int64_t i = 0; i < a->count; i++) one(a, i);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const int64_t count = p->groups ? p->groups : 1, rows = p->rows, cols = p->n;
    const int64_t lines = count * (rows >= cols ? rows : cols);
    const bool july = c->index % 3 != 2;
    struct muon_step *s = ARENA_NEW(c->arena, struct muon_step, 1);
    float *second = case_vector(c, lines, 0.03f);
    for (int64_t i = 0; second && i < lines; i++) second[i] *= second[i];
    if (s) *s = (struct muon_step){.lr = 0.02f, .momentum = 0.9f, .beta2 = 0.9f, .decay = 0.1f};
    *(struct muon_apply_args *)args =
        (struct muon_apply_args){.count = count,
                                 .rows = rows,
                                 .cols = cols,
                                 .step = s,
                                 .features = july ? MUON_SNAP | MUON_SECOND : 0,
                                 .x = case_rows(c, count * rows, cols, 0.03f),
                                 .second = july ? second : NULL,
                                 .p = case_rows(c, count * rows, cols, 1.0f)};
}

/* rows, n, matrices */
static const struct case_shape cases[] = {
    {6, {0, 1, 60}, {0, 1, 300}, {0}, {1, 1, 3}, {0}, {0}, DTYPE_F32},
    {3, {0, 100, 300}, {0, 1, 60}, {0}, {1, 1, 3}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct muon_apply_args *a = args;
    const int64_t lines = a->rows >= a->cols ? a->rows : a->cols;
    if (!a->second) return 0;
    outputs[0] =
        (struct op_output){offsetof(struct muon_apply_args, second),
                           (size_t)(a->count * lines) * sizeof(float), true, lines, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct muon_apply_args *a = args;
    *out =
        (struct op_problem){.rows = a->rows, .dtype = a->x.dtype, .n = a->cols, .groups = a->count};
}

const struct op op_muon_apply = {
    .name = "muon_apply",
    .summary = "p -= lr x, x scaled by the second moment of its rows or columns where asked; decay "
               "where x and p agree in sign; a NaN reaches all of its matrix",
    .args_size = sizeof(struct muon_apply_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .matrices = {{OP_READS, offsetof(struct muon_apply_args, x)},
                 {OP_UPDATES, offsetof(struct muon_apply_args, p)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
