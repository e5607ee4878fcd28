/* attn_add: the first part of attn_out: output projection, residual. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_add.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct attn_out_args *a = args;
    double m = (double)a->m, hidden = (double)a->hidden;
    struct op_cost sum = {0, 0};
    cost_add(&sum, 0, matrix_bytes(&a->attn));
    cost_add_product(&sum, m, &a->wo, 1, a->bo != NULL);
    cost_add(&sum, m * hidden, 8 * m * hidden); /* residual */
    return sum;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_out_args *a = args;
    struct matrix projected = plan_scratch(plan, a->m, a->hidden);
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->m,
                                  .n = a->hidden,
                                  .k = a->width,
                                  .a = a->attn,
                                  .w = a->wo,
                                  .bias = a->bo,
                                  .c = projected});
    plan_call(plan, &op_add,
              &(struct add_args){.m = a->m, .n = a->hidden, .y = projected, .x = a->x});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct attn_out_args *)args = (struct attn_out_args){
        .m = p->rows,
        .hidden = p->n,
        .width = p->k,
        .attn = case_rows(c, p->rows, p->k, 1.0f),
        .wo = case_tensor(c, p->dtype, 1, p->n, p->k, 0.2f),
        .bo = case_vector(c, p->n, 0.2f),
        .x = case_rows(c, p->rows, p->n, 1.0f),
    };
}

static const struct case_shape cases[] = {
    /* rows, n, k */
    {5, {0, 1, 20}, {32, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, CASE_ANY_DTYPE},
    {5, {1, 1, 1}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, CASE_ANY_DTYPE},
    {1, {1, 1, 1}, {1, 64, 64}, {1, 4096, 4096}, {0}, {0}, {0}, DTYPE_BF16},
    {1, {1, 2, 2}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, DTYPE_BF16},
    {1, {1, 8, 8}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, DTYPE_Q8_0},
    {1, {1, 16, 16}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, DTYPE_BF16},
    {1, {1, 32, 32}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, DTYPE_Q8_0},
    {1, {1, 200, 200}, {160, 1, 4}, {64, 1, 4}, {0}, {0}, {0}, DTYPE_BF16},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct attn_out_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->wo.dtype, .n = a->hidden, .k = a->width};
}

const struct op op_attn_add = {
    .name = "attn_add",
    .summary = "output projection, residual: what attn_out begins with",
    .args_size = sizeof(struct attn_out_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_gemm, &op_add},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 2880, .k = 2048},
    .matrices = {{OP_READS, offsetof(struct attn_out_args, attn)},
                 {OP_UPDATES, offsetof(struct attn_out_args, x)}},
    .weights = {offsetof(struct attn_out_args, wo)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
