/* axpby: a weighted sum, by weights that are the model's. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/axpby.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct axpby_args *a = args;
    double count = (double)(a->m * a->n), terms = a->y.data ? 2 : 1;
    return (struct op_cost){(2 * terms - 1) * count, (terms + 1) * matrix_bytes(&a->out)};
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct axpby_args *p = args;
    const float a = p->a ? *p->a : 1, b = p->factor * (p->b ? *p->b : 1);
    const float *x = matrix_floats(&p->x), *y = p->y.data;
    float *out = matrix_floats(&p->out);
    for (int64_t i = 0; i < p->m * p->n; i++) out[i] = y ? a * x[i] + b * y[i] : a * x[i];
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct axpby_args *)args = (struct axpby_args){.m = p->rows,
                                                     .n = p->n,
                                                     .a = case_vector(c, 1, 1.0f),
                                                     .b = case_vector(c, 1, 1.0f),
                                                     .factor = 1,
                                                     .x = case_rows(c, p->rows, p->n, 1.0f),
                                                     .y = case_rows(c, p->rows, p->n, 1.0f),
                                                     .out = case_output(c, p->rows, p->n)};
}

static bool make_case(struct case_maker *c, void *args)
{
    struct axpby_args *a = args;
    if (c->index >= 8) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 20), .n = case_size(c, 1, 300)};
    make_problem(c, &p, args);
    if (c->index & 1) a->a = NULL;
    if (c->index & 2) a->factor = -1;
    if (c->index & 4) a->y.data = NULL;
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct axpby_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_axpby = {
    .name = "axpby",
    .summary = "out = a x + factor b y, or a x alone; out may be x",
    .args_size = sizeof(struct axpby_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct axpby_args, x)},
                 {OP_READS, offsetof(struct axpby_args, y)},
                 {OP_WRITES, offsetof(struct axpby_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
