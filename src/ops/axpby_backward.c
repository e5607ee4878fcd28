/* axpby_backward: of a sum of two matrices with a factor each. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/axpby_backward.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct axpby_backward_args *a = args;
    const double count = (double)(a->m * a->n);
    return (struct op_cost){(3 + (a->da ? 2 : 0) + (a->db ? 2 : 0)) * count,
                            (a->da ? matrix_bytes(&a->x) : 0) + (a->db ? matrix_bytes(&a->y) : 0) +
                                2 * matrix_bytes(&a->d) +
                                (a->first ? 1 : 2) * matrix_bytes(&a->dy)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct axpby_backward_args *a = args;
    const float fa = a->a ? *a->a : 1, fb = a->factor * (a->b ? *a->b : 1);
    float *d = matrix_floats(&a->d), *dy = matrix_floats(&a->dy);
    double da = 0, db = 0;
    for (int64_t i = 0; i < a->m * a->n; i++) {
        if (a->da) da += (double)d[i] * (double)matrix_floats(&a->x)[i];
        if (a->db) db += (double)d[i] * (double)matrix_floats(&a->y)[i];
        dy[i] = (a->first ? 0 : dy[i]) + fb * d[i];
        d[i] = fa * d[i];
    }
    if (a->da) *a->da = (float)((double)*a->da + da);
    if (a->db) *a->db = (float)((double)*a->db + (double)a->factor * db);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const bool backout = c->index % 3 == 2;
    *(struct axpby_backward_args *)args = (struct axpby_backward_args){
        .m = p->rows,
        .n = p->n,
        .a = backout ? NULL : case_vector(c, 1, 1.0f),
        .b = case_vector(c, 1, 1.0f),
        .da = backout ? NULL : case_vector(c, 1, 1.0f),
        .db = case_vector(c, 1, 1.0f),
        .factor = backout ? -1 : 1,
        .first = c->index % 2,
        .x = backout ? (struct matrix){0} : case_rows(c, p->rows, p->n, 1.0f),
        .y = case_rows(c, p->rows, p->n, 1.0f),
        .d = case_rows(c, p->rows, p->n, 1.0f),
        .dy = case_rows(c, p->rows, p->n, 1.0f),
    };
    /* Sums of terms of either sign say little about their own error: these do not cancel. */
    struct axpby_backward_args *a = args;
    for (int64_t i = 0; a->d.data && a->y.data && i < p->rows * p->n; i++) {
        float *d = a->d.data, *y = a->y.data, *x = a->x.data;
        if (d[i] * y[i] < 0) y[i] = -y[i];
        if (x && d[i] * x[i] < 0) x[i] = -x[i];
    }
}

/* rows, n */
static const struct case_shape cases[] = {
    {6, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 50, 90}, {8, 1, 60}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {1, {1, 170, 180}, {1, 1700, 1900}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct axpby_backward_args *a = args;
    int n = 0;
    if (a->da)
        outputs[n++] =
            (struct op_output){offsetof(struct axpby_backward_args, da), 4, true, 1, DTYPE_F32};
    if (a->db)
        outputs[n++] =
            (struct op_output){offsetof(struct axpby_backward_args, db), 4, true, 1, DTYPE_F32};
    return n;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct axpby_backward_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->d.dtype, .n = a->n};
}

const struct op op_axpby_backward = {
    .name = "axpby_backward",
    .summary = "d = a d, dy += factor b d, and the gradients of a and b",
    .args_size = sizeof(struct axpby_backward_args),
    .problem = problem,
    .tolerance = {{5e-6f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct axpby_backward_args, x)},
                 {OP_READS, offsetof(struct axpby_backward_args, y)},
                 {OP_UPDATES, offsetof(struct axpby_backward_args, d)},
                 {OP_UPDATES, offsetof(struct axpby_backward_args, dy)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
