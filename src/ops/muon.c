/* muon: momentum, made orthogonal by a polynomial iteration, applied to a stack of matrices. */
#include <math.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

#define OP_LIST "ops/muon.list"
#include "ops/variant_table.h"

/* Of the Gram matrix: the shorter side. */
static int64_t side_of(const struct muon_args *a)
{
    return a->rows > a->cols ? a->cols : a->rows;
}

static struct op_cost cost(const void *args)
{
    const struct muon_args *a = args;
    const double side = (double)side_of(a), n = (double)(a->rows * a->cols);
    const double step = 2 * n * side * 2 + 2 * side * side * side;
    return (struct op_cost){(double)a->count * ((double)a->steps * step + 24 * n),
                            2 * 3 * matrix_bytes(&a->momentum)};
}

static void product(struct plan *plan, const struct matmul_args *args)
{
    plan_call(plan, &op_matmul, args);
}

/* gram = X X^T or X^T X; poly = b gram + c gram^2; to = a X + poly X or a X + X poly. */
static void iterate(struct plan *plan, const struct muon_args *a, const float coefficient[3],
                    struct matrix x, struct matrix gram, struct matrix poly, struct matrix to)
{
    const bool tall = a->rows > a->cols;
    const int64_t side = side_of(a), other = tall ? a->rows : a->cols;
    product(plan, &(struct matmul_args){.batch = a->count,
                                        .m = side,
                                        .n = side,
                                        .k = other,
                                        .transpose_a = tall,
                                        .transpose_b = !tall,
                                        .symmetric = true,
                                        .alpha = 1,
                                        .a = x,
                                        .b = x,
                                        .out = gram});
    product(plan, &(struct matmul_args){.batch = a->count,
                                        .m = side,
                                        .n = side,
                                        .k = side,
                                        .symmetric = true,
                                        .alpha = coefficient[2],
                                        .beta = coefficient[1],
                                        .a = gram,
                                        .b = gram,
                                        .add = gram,
                                        .out = poly});
    product(plan, &(struct matmul_args){.batch = a->count,
                                        .m = a->rows,
                                        .n = a->cols,
                                        .k = side,
                                        .alpha = 1,
                                        .beta = coefficient[0],
                                        .a = tall ? x : poly,
                                        .b = tall ? poly : x,
                                        .add = x,
                                        .out = to});
}

/* Run number `i`, and in *before how many matrices the runs before it have. */
static struct muon_run run_of(const struct muon_args *a, int64_t i, int64_t *before)
{
    *before = 0;
    if (!a->n_runs) return (struct muon_run){0, a->count};
    for (int64_t k = 0; k < i; k++) *before += a->runs[k].count;
    return a->runs[i];
}

static int64_t runs_of(const struct muon_args *a)
{
    return a->n_runs ? a->n_runs : 1;
}

/* `count` matrices of m from `first` on. */
static struct matrix matrices(const struct muon_args *a, const struct matrix *m, int64_t first,
                              int64_t count)
{
    return matrix_rows(m, first * a->rows, count * a->rows);
}

static void prepare(struct plan *plan, const struct muon_args *a, const struct matrix *x)
{
    for (int64_t i = 0, before; i < runs_of(a); i++) {
        const struct muon_run run = run_of(a, i, &before);
        plan_call(
            plan, &op_muon_prepare,
            &(struct muon_prepare_args){.count = run.count,
                                        .rows = a->rows,
                                        .cols = a->cols,
                                        .step = a->step,
                                        .clip = a->clip,
                                        .features = a->features,
                                        .margin = a->margin,
                                        .tiny = a->tiny,
                                        .g = matrices(a, &a->g, run.first, run.count),
                                        .momentum = matrices(a, &a->momentum, before, run.count),
                                        .x = matrices(a, x, before, run.count)});
    }
}

static void apply(struct plan *plan, const struct muon_args *a, const struct matrix *x)
{
    const int64_t lines = a->rows >= a->cols ? a->rows : a->cols;
    for (int64_t i = 0, before; i < runs_of(a); i++) {
        const struct muon_run run = run_of(a, i, &before);
        plan_call(plan, &op_muon_apply,
                  &(struct muon_apply_args){.count = run.count,
                                            .rows = a->rows,
                                            .cols = a->cols,
                                            .step = a->step,
                                            .features = a->features,
                                            .x = matrices(a, x, before, run.count),
                                            .second = a->second ? a->second + before * lines : NULL,
                                            .p = matrices(a, &a->p, run.first, run.count)});
    }
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct muon_args *a = args;
    const int64_t side = a->count * side_of(a), rows = a->count * a->rows;
    struct matrix x = plan_scratch_of(plan, a->dtype, rows, a->cols);
    struct matrix to = plan_scratch_of(plan, a->dtype, rows, a->cols);
    const struct matrix gram = plan_scratch_of(plan, a->dtype, side, side_of(a));
    const struct matrix poly = plan_scratch_of(plan, a->dtype, side, side_of(a));
    prepare(plan, a, &x);
    for (int32_t i = 0; i < a->steps; i++) {
        iterate(plan, a, a->coefficients[i], x, gram, poly, to);
        const struct matrix last = x;
        x = to;
        to = last;
    }
    apply(plan, a, &x);
    return SOL_OK;
}

/* Coefficients that keep what they iterate near 1, so that errors of the order of sums do not
 * grow. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    static const float gentle[3] = {1.875f, -1.25f, 0.375f};
    const int64_t count = p->groups ? p->groups : 1, rows = p->rows, cols = p->n;
    const int64_t lines = count * (rows >= cols ? rows : cols);
    struct muon_args *a = args;
    struct muon_step *s = ARENA_NEW(c->arena, struct muon_step, 1);
    float *second = case_vector(c, lines, 0.03f);
    for (int64_t i = 0; second && i < lines; i++) second[i] *= second[i];
    if (s) *s = (struct muon_step){.lr = 0.02f, .momentum = 0.9f, .beta2 = 0.9f, .decay = 0.1f};
    *a = (struct muon_args){.count = count,
                            .rows = rows,
                            .cols = cols,
                            .step = s,
                            .features = MUON_EQUILIBRATE | MUON_SNAP | MUON_SECOND,
                            .margin = 1.01f,
                            .tiny = 1e-6f,
                            .steps = c->index % 2 ? 2 : MUON_STEPS_MAX,
                            .dtype = DTYPE_F32,
                            .p = case_rows(c, count * rows, cols, 1.0f),
                            .g = case_rows(c, count * rows, cols, 0.1f),
                            .momentum = case_rows(c, count * rows, cols, 0.1f),
                            .second = second};
    for (int i = 0; i < MUON_STEPS_MAX; i++) memcpy(a->coefficients[i], gentle, sizeof gentle);
}

/* rows, n, matrices */
static const struct case_shape cases[] = {
    {3, {0, 1, 40}, {0, 1, 60}, {0}, {1, 1, 3}, {0}, {0}, DTYPE_F32},
    {2, {0, 60, 90}, {0, 1, 40}, {0}, {1, 1, 3}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct muon_args *a = args;
    const int64_t lines = a->rows >= a->cols ? a->rows : a->cols;
    if (!a->second) return 0;
    outputs[0] =
        (struct op_output){offsetof(struct muon_args, second),
                           (size_t)(a->count * lines) * sizeof(float), true, lines, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct muon_args *a = args;
    *out =
        (struct op_problem){.rows = a->rows, .dtype = a->dtype, .n = a->cols, .groups = a->count};
}

const struct op op_muon = {
    .name = "muon",
    .summary = "a step of Muon on a stack of matrices: momentum made orthogonal; a NaN reaches all "
               "of its matrix",
    .args_size = sizeof(struct muon_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 2e-2f}},
    .cost = cost,
    .compose = compose,
    .calls = {&op_muon_prepare, &op_matmul, &op_muon_apply},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1280, .dtype = DTYPE_F32, .n = 1280, .groups = 1},
    .matrices = {{OP_UPDATES, offsetof(struct muon_args, p)},
                 {OP_UPDATES, offsetof(struct muon_args, g)},
                 {OP_UPDATES, offsetof(struct muon_args, momentum)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
