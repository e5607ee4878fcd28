/* head: final norm and logits of the rows that are asked for. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/head.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct head_args *a = args;
    double m = (double)a->n_outputs, hidden = (double)a->hidden;
    struct op_cost sum = {0, 0};
    cost_add(&sum, 4 * m * hidden, 4 * (m + 1) * hidden); /* norm */
    cost_add_product(&sum, m, &a->w, 1, false);
    cost_add(&sum, 0, 4 * m * (double)a->w.rows);
    return sum;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct head_args *a = args;
    struct matrix normed = plan_scratch(plan, a->n_outputs, a->hidden);
    plan_call(plan, &op_rmsnorm,
              &(struct rmsnorm_args){.m = a->n_outputs,
                                     .n = a->hidden,
                                     .eps = a->eps,
                                     .x = a->x,
                                     .rows = a->batch->output_rows,
                                     .gain = a->norm,
                                     .y = normed});
    plan_call(plan, &op_gemm,
              &(struct gemm_args){.m = a->n_outputs,
                                  .n = a->w.rows,
                                  .k = a->hidden,
                                  .a = normed,
                                  .w = a->w,
                                  .c = a->logits});
    return SOL_OK;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t m = p->rows;
    const struct batch *batch = case_batch(c, m, 2, 60, p->n);
    *(struct head_args *)args = (struct head_args){
        .n_outputs = batch ? batch->n_outputs : 0,
        .hidden = p->k,
        .eps = 1e-5f,
        .batch = batch,
        .x = case_rows(c, m, p->k, 1.0f),
        .norm = case_vector(c, p->k, 1.0f),
        .w = case_tensor(c, p->dtype, 1, p->n, p->k, 0.2f),
        .logits = case_output(c, batch ? batch->n_outputs : 0, p->n),
    };
}

static const struct case_shape cases[] = {
    /* rows, n, k */
    {5, {0, 2, 20}, {1, 50, 300}, {32, 1, 4}, {0}, {0}, {0}, CASE_ANY_DTYPE},
    {10, {1, 1, 1}, {1, 50, 300}, {160, 1, 4}, {0}, {0}, {0}, CASE_ANY_DTYPE},
    /* wider than kernels hold, as wide, as real ones are: in this order, or the first lies as no
     * kernel takes it (case_vector) */
    {1, {1, 1, 1}, {1, 50, 50}, {1, 4096, 4096}, {0}, {0}, {0}, DTYPE_BF16},
    {1, {1, 2, 2}, {1, 51, 51}, {1, 3840, 3840}, {0}, {0}, {0}, DTYPE_BF16},
    {2, {1, 1, 1}, {1, 50, 50}, {1, 2880, 2880}, {0}, {0}, {0}, DTYPE_BF16},
};

static void problem(const void *args, struct op_problem *out)
{
    const struct head_args *a = args;
    *out = (struct op_problem){
        .rows = a->n_outputs, .dtype = a->w.dtype, .n = a->w.rows, .k = a->hidden};
}

const struct op op_head = {
    .name = "head",
    .summary = "rmsnorm and logits of the output rows",
    .args_size = sizeof(struct head_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_rmsnorm, &op_gemm},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 201088, .k = 2880},
    .matrices = {{OP_READS, offsetof(struct head_args, x)},
                 {OP_WRITES, offsetof(struct head_args, logits)}},
    .weights = {offsetof(struct head_args, w)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
