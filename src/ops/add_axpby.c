/* add_axpby: the residual stream behind a layer, which added to it twice, and what the next one
 * makes of it; why the sum is not rounded in between: add_rmsnorm.c. */
#include <math.h>

#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

#define OP_LIST "ops/add_axpby.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct add_axpby_args *a = args;
    return (struct op_cost){7 * (double)(a->m * a->n), 6 * matrix_bytes(&a->out)};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct add_axpby_args *p = args;
    plan_call(plan, &op_axpby,
              &(struct axpby_args){
                  .m = p->m, .n = p->n, .factor = 1, .x = p->x, .y = p->first, .out = p->sum});
    plan_call(plan, &op_add, &(struct add_args){.m = p->m, .n = p->n, .y = p->second, .x = p->sum});
    plan_call(plan, &op_axpby,
              &(struct axpby_args){.m = p->m,
                                   .n = p->n,
                                   .a = p->a,
                                   .b = p->b,
                                   .factor = p->factor,
                                   .x = p->sum,
                                   .y = p->y.data ? p->y : p->sum,
                                   .out = p->out});
    return SOL_OK;
}

/* With a of about b the sum goes from `out`, and its rounding stays. */
static bool row_norms(const void *args, int output, double *norms)
{
    const struct add_axpby_args *p = args;
    const double a = p->a && output ? fabs((double)*p->a) : 1, b = p->b ? fabs((double)*p->b) : 1;
    for (int64_t i = 0; i < p->m; i++) {
        const double sum =
            op_row_norm(&p->x, i) + op_row_norm(&p->first, i) + op_row_norm(&p->second, i);
        norms[i] = a * sum;
        if (output) norms[i] += b * (p->y.data ? op_row_norm(&p->y, i) : sum);
    }
    return true;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct add_axpby_args *a = args;
    *a = (struct add_axpby_args){.m = p->rows,
                                 .n = p->n,
                                 .a = case_vector(c, 1, 1.0f),
                                 .b = case_vector(c, 1, 1.0f),
                                 .factor = 1,
                                 .x = case_rows(c, p->rows, p->n, 1.0f),
                                 .first = case_rows(c, p->rows, p->n, 0.1f),
                                 .second = case_rows(c, p->rows, p->n, 0.1f),
                                 .sum = case_output(c, p->rows, p->n),
                                 .y = case_rows(c, p->rows, p->n, 1.0f),
                                 .out = case_output(c, p->rows, p->n)};
    if (c->index & 1) a->a = NULL;
    if (c->index & 2) a->factor = -1;
    if (c->index % 3 == 2) a->y = (struct matrix){0};
}

/* rows, n */
static const struct case_shape cases[] = {
    {8, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {4, {0, 1, 20}, {8, 1, 100}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct add_axpby_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_add_axpby = {
    .name = "add_axpby",
    .summary = "sum = x + first + second, and out = a sum + factor b y, before it is rounded",
    .args_size = sizeof(struct add_axpby_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .compose = compose,
    .calls = {&op_axpby, &op_add},
    .row_norms = row_norms,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct add_axpby_args, x)},
                 {OP_READS, offsetof(struct add_axpby_args, first)},
                 {OP_READS, offsetof(struct add_axpby_args, second)},
                 {OP_WRITES, offsetof(struct add_axpby_args, sum)},
                 {OP_READS, offsetof(struct add_axpby_args, y)},
                 {OP_WRITES, offsetof(struct add_axpby_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
