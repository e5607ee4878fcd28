/* add_rmsnorm: what a part of a layer adds to the residual stream, and the norm of both. A stream
 * in bf16 loses additions that are small beside it: what is added to a number that the type has
 * comes back as that number. So the norm reads the sum before it is rounded; and a stream in
 * float32 can have a rounded copy, which is what the backward pass keeps. */
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

#define OP_LIST "ops/add_rmsnorm.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct add_rmsnorm_args *a = args;
    const double copies = a->copy.data ? 5 : 4;
    return (struct op_cost){7 * (double)(a->m * a->n),
                            copies * matrix_bytes(&a->y) + (a->gain ? 4 * (double)a->n : 0)};
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct add_rmsnorm_args *a = args;
    plan_call(plan, &op_axpby,
              &(struct axpby_args){
                  .m = a->m, .n = a->n, .factor = 1, .x = a->x, .y = a->add, .out = a->sum});
    plan_call(plan, &op_rmsnorm,
              &(struct rmsnorm_args){
                  .m = a->m, .n = a->n, .eps = a->eps, .x = a->sum, .gain = a->gain, .y = a->y});
    if (a->copy.data)
        plan_call(plan, &op_convert,
                  &(struct convert_args){.m = a->m, .n = a->n, .from = a->sum, .to = a->copy});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct add_rmsnorm_args *a = args;
    *a = (struct add_rmsnorm_args){.m = p->rows,
                                   .n = p->n,
                                   .eps = 1e-5f,
                                   .gain = c->index % 2 ? case_vector(c, p->n, 1.0f) : NULL,
                                   .x = case_rows(c, p->rows, p->n, 1.0f),
                                   .add = case_rows(c, p->rows, p->n, 0.1f),
                                   .sum = case_output(c, p->rows, p->n),
                                   .y = case_output(c, p->rows, p->n)};
    if (c->index % 3 == 2) a->copy = case_output(c, p->rows, p->n);
}

/* rows, n; the last are wider than what a warp or a block keeps */
static const struct case_shape cases[] = {
    {5, {0, 1, 20}, {0, 1, 300}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {0, 1, 20}, {8, 1, 200}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 2, 3}, {8, 257, 1024}, {0}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 1, 2}, {1, 8200, 8500}, {0}, {0}, {0}, {0}, DTYPE_F32}};

static void problem(const void *args, struct op_problem *out)
{
    const struct add_rmsnorm_args *a = args;
    *out = (struct op_problem){.rows = a->m, .n = a->n};
}

const struct op op_add_rmsnorm = {
    .name = "add_rmsnorm",
    .summary = "sum = x + add, and y = its rmsnorm, before it is rounded",
    .args_size = sizeof(struct add_rmsnorm_args),
    .problem = problem,
    .tolerance = {{2e-6f}},
    .cost = cost,
    .compose = compose,
    .calls = {&op_axpby, &op_rmsnorm, &op_convert},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 8192, .n = 1280},
    .matrices = {{OP_READS, offsetof(struct add_rmsnorm_args, x)},
                 {OP_READS, offsetof(struct add_rmsnorm_args, add)},
                 {OP_WRITES, offsetof(struct add_rmsnorm_args, sum)},
                 {OP_WRITES, offsetof(struct add_rmsnorm_args, y)},
                 {OP_WRITES, offsetof(struct add_rmsnorm_args, copy)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
