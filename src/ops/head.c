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
    float *normed = plan_scratch(plan, a->n_outputs * a->hidden);
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
                                  .a_count = a->n_outputs,
                                  .a = normed,
                                  .w = a->w,
                                  .c = a->logits});
    return SOL_OK;
}

static bool make_case(struct arena *arena, struct rng *rng, enum op_case_kind kind, int index,
                      void *args)
{
    if (index >= 15) return false;
    struct case_maker c = {arena, rng, kind, index};
    int64_t m = case_size(&c, 2, 20), hidden = 32 * rng_range(rng, 1, 4),
            vocab = rng_range(rng, 50, 300);
    if (index >= 5) m = 1, hidden *= 5; /* decoding */
    const struct batch *batch = case_batch(&c, m, 2, 60, vocab);
    *(struct head_args *)args = (struct head_args){
        .n_outputs = batch ? batch->n_outputs : 0,
        .hidden = hidden,
        .eps = 1e-5f,
        .batch = batch,
        .x = case_rows(&c, m, hidden, 1.0f),
        .norm = case_vector(&c, hidden, 1.0f),
        .w = case_tensor(&c, case_weight_dtype(&c), 1, vocab, hidden, 0.2f),
        .logits = case_output(&c, m * vocab),
    };
    return true;
}

static int outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct head_args *a = args;
    out[0] = (struct op_output){offsetof(struct head_args, logits),
                                (size_t)(a->n_outputs * a->w.rows) * 4, true, a->w.rows};
    return 1;
}

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
    .make_case = make_case,
    .outputs = outputs,
    .weights = {offsetof(struct head_args, w)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
