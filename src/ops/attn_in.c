/* attn_in: everything before attention: norm, q k v projections, rope, key and value write. */
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/attn_in.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct attn_in_args *a = args;
    double m = (double)a->m, q = (double)a->wq.rows, kv = (double)(a->wk.rows + a->wv.rows);
    struct op_cost sum = {0, 0};
    cost_add(&sum, 4 * m * (double)a->hidden, 4 * (m + 1) * (double)a->hidden); /* norm */
    cost_add_product(&sum, m, &a->wq, 1, a->bq != NULL);
    cost_add_product(&sum, m, &a->wk, 1, a->bk != NULL);
    cost_add_product(&sum, m, &a->wv, 1, a->bv != NULL);
    cost_add(&sum, 3 * m * (q + kv / 2), /* rope */
             m * (4 * q + kv * (double)dtype_info(a->kv.dtype)->block_bytes));
    return sum;
}

static void project(struct plan *plan, const struct attn_in_args *a, struct matrix x,
                    struct tensor w, const float *bias, struct matrix y)
{
    plan_call(plan, &op_gemm,
              &(struct gemm_args){
                  .m = a->m, .n = w.rows, .k = a->hidden, .a = x, .w = w, .bias = bias, .c = y});
}

static void rotate(struct plan *plan, const struct attn_in_args *a, int64_t n_heads,
                   struct matrix x)
{
    plan_call(plan, &op_rope,
              &(struct rope_args){.m = a->m,
                                  .n_heads = n_heads,
                                  .head_dim = a->kv.head_dim,
                                  .batch = a->batch,
                                  .inv_freq = a->inv_freq,
                                  .scale = a->rope_scale,
                                  .x = x});
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct attn_in_args *a = args;
    struct matrix normed = plan_scratch(plan, a->m, a->hidden);
    struct matrix k = plan_scratch(plan, a->m, a->wk.rows);
    struct matrix v = plan_scratch(plan, a->m, a->wv.rows);
    plan_call(
        plan, &op_rmsnorm,
        &(struct rmsnorm_args){
            .m = a->m, .n = a->hidden, .eps = a->eps, .x = a->x, .gain = a->norm, .y = normed});
    project(plan, a, normed, a->wq, a->bq, a->q);
    project(plan, a, normed, a->wk, a->bk, k);
    project(plan, a, normed, a->wv, a->bv, v);
    rotate(plan, a, a->n_heads, a->q);
    rotate(plan, a, a->kv.n_kv_heads, k);
    plan_call(plan, &op_kv_write,
              &(struct kv_write_args){.m = a->m, .batch = a->batch, .k = k, .v = v, .kv = a->kv});
    return SOL_OK;
}

static void make(struct case_maker *c, const struct op_problem *p, int64_t window,
                 struct attn_in_args *a)
{
    int64_t m = p->rows, hidden = p->k, width = p->n * p->head_dim, kv = p->groups * p->head_dim;
    const struct batch *batch = case_batch(c, m, 2, 60, 1);
    *a = (struct attn_in_args){
        .m = m,
        .hidden = hidden,
        .n_heads = p->n,
        .eps = 1e-5f,
        .rope_scale = 1.3465736f,
        .batch = batch,
        .x = case_rows(c, m, hidden, 1.0f),
        .norm = case_vector(c, hidden, 1.0f),
        .wq = case_tensor(c, p->dtype, 1, width, hidden, 0.2f),
        .wk = case_tensor(c, p->dtype, 1, kv, hidden, 0.2f),
        .wv = case_tensor(c, p->dtype, 1, kv, hidden, 0.2f),
        .bq = case_vector(c, width, 0.2f),
        .bk = case_vector(c, kv, 0.2f),
        .bv = case_vector(c, kv, 0.2f),
        .inv_freq = case_vector(c, p->head_dim / 2, 0.1f),
        .q = case_output(c, m, width),
    };
    a->kv = case_kv(c, batch, case_kv_dtype(c->index), window, p->groups, p->head_dim);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, 0, args);
}

static bool make_case(struct case_maker *c, void *args)
{
    static const struct case_shape shapes[] = {
        /* rows, heads for one of keys, k, heads of keys, head_dim */
        {5, {0, 1, 20}, {1, 1, 4}, {32, 1, 4}, {1, 1, 3}, {0}, {2, 4, 32}, CASE_ANY_DTYPE},
        {10, {1, 1, 1}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, CASE_ANY_DTYPE},
        /* prompts */
        {1, {1, 11, 11}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_BF16},
        {1, {1, 90, 90}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_BF16},
        {1, {1, 180, 180}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_BF16},
        {1, {1, 11, 11}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_Q8_0},
        {1, {1, 90, 90}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_Q8_0},
        {1, {1, 180, 180}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {1, 64, 64}, DTYPE_Q8_0},
        /* that decode together */
        {1, {1, 2, 2}, {1, 1, 2}, {32, 128, 128}, {1, 1, 2}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 2, 2}, {1, 1, 2}, {32, 90, 90}, {1, 1, 2}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 2, 2}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 3, 3}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 8, 8}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 9, 9}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 16, 16}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 17, 17}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 32, 32}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_BF16},
        {1, {1, 2, 2}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 3, 3}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 8, 8}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 9, 9}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 16, 16}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 17, 17}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
        {1, {1, 32, 32}, {1, 1, 4}, {160, 1, 4}, {1, 1, 3}, {0}, {16, 1, 4}, DTYPE_Q8_0},
    };
    struct op_problem p = {0};
    struct attn_in_args *a = args;
    /* The cache holds finite numbers only, so non-finite rows are tested at the primitives. */
    if (c->kind == CASE_NONFINITE || !CASE_OF(c, shapes, &p)) return false;
    p.n *= p.groups;
    make(c, &p, c->index % 2 ? 40 : 0, a);
    /* Half of those with real models' heads have an f16 cache: kernels write it another way than
     * float32, which the others have, as they are compared by tolerance. */
    if (p.head_dim == 64 && c->index % 2 == 0) {
        a->kv = case_kv(c, a->batch, DTYPE_F16, 0, p.groups, p.head_dim);
        return true;
    }
    int64_t count = kv_elements(&a->kv);
    a->kv.dtype = DTYPE_F32;
    a->kv.k = case_vector(c, count, 1.0f);
    a->kv.v = case_vector(c, count, 1.0f);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct attn_in_args *a = args;
    int64_t count = kv_elements(&a->kv);
    size_t bytes = (size_t)count * dtype_info(a->kv.dtype)->block_bytes;
    out[0] =
        (struct op_output){offsetof(struct attn_in_args, kv.k), bytes, true, count, a->kv.dtype};
    out[1] =
        (struct op_output){offsetof(struct attn_in_args, kv.v), bytes, true, count, a->kv.dtype};
    return 2;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct attn_in_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->wq.dtype,
                               .n = a->n_heads,
                               .k = a->hidden,
                               .groups = a->kv.n_kv_heads,
                               .head_dim = a->kv.head_dim};
}

const struct op op_attn_in = {
    .name = "attn_in",
    .summary = "rmsnorm, q k v projections, rope, key/value write",
    .args_size = sizeof(struct attn_in_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 1e-2f, [NUMERICS_I8] = 2e-2f}, 3},
    .cost = cost,
    .compose = compose,
    .calls = {&op_rmsnorm, &op_gemm, &op_rope, &op_kv_write},
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 64, .k = 2880, .groups = 8, .head_dim = 64},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct attn_in_args, x)},
                 {OP_WRITES, offsetof(struct attn_in_args, q)}},
    .weights = {offsetof(struct attn_in_args, wq), offsetof(struct attn_in_args, wk),
                offsetof(struct attn_in_args, wv)},
    .n_weights = 3,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
