/* kv_write: new keys and values into the cache, in its dtype and layout (ops/batch.h). */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/kv_write.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct kv_write_args *a = args;
    double count = 2.0 * (double)(a->m * a->kv.n_kv_heads * a->kv.head_dim);
    return (struct op_cost){0, count * (4.0 + (double)dtype_info(a->kv.dtype)->block_bytes)};
}

static void write_head(const struct kv_write_args *a, int64_t i, int64_t h)
{
    const struct kv_layer *kv = &a->kv;
    const struct dtype_info *info = dtype_info(kv->dtype);
    int64_t row = (i * kv->n_kv_heads + h) * kv->head_dim;
    int32_t sequence = a->batch->sequence[i], position = a->batch->position[i];
    char *k = (char *)kv->k + (size_t)kv_k_index(kv, sequence, h, position) * info->block_bytes;
    char *v = (char *)kv->v + (size_t)kv_v_index(kv, sequence, h, position) * info->block_bytes;
    for (int64_t d = 0; d < kv->head_dim; d++)
        info->encode(matrix_floats(&a->k) + row + d, k + (size_t)(d * KV_BLOCK) * info->block_bytes,
                     1);
    info->encode(matrix_floats(&a->v) + row, v, kv->head_dim);
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct kv_write_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t h = 0; h < a->kv.n_kv_heads; h++) write_head(a, i, h);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t width = p->k * p->head_dim;
    const struct batch *batch = case_batch(c, p->rows, 3, 100, 1);
    *(struct kv_write_args *)args = (struct kv_write_args){
        .m = p->rows,
        .batch = batch,
        .k = case_rows(c, p->rows, width, 1.0f),
        .v = case_rows(c, p->rows, width, 1.0f),
        .kv = case_kv(c, batch, p->dtype, p->window, p->k, p->head_dim),
    };
}

static bool make_case(struct case_maker *c, void *args)
{
    if (c->index >= 6 || c->kind == CASE_NONFINITE) return false;
    const struct op_problem p = {.rows = case_size(c, 1, 40),
                                 .dtype = case_kv_dtype(c->index),
                                 .k = case_size(c, 1, 4),
                                 .head_dim = case_size(c, 2, 64),
                                 .window = c->index % 2 ? 16 : 0};
    make_problem(c, &p, args);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct kv_write_args *a = args;
    const struct kv_layer *kv = &a->kv;
    size_t bytes = (size_t)kv_elements(kv) * dtype_info(kv->dtype)->block_bytes;
    out[0] = (struct op_output){offsetof(struct kv_write_args, kv.k), bytes, false, 0, DTYPE_F32};
    out[1] = (struct op_output){offsetof(struct kv_write_args, kv.v), bytes, false, 0, DTYPE_F32};
    return 2;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct kv_write_args *a = args;
    *out = (struct op_problem){
        .rows = a->m, .dtype = a->kv.dtype, .k = a->kv.n_kv_heads, .head_dim = a->kv.head_dim};
}

const struct op op_kv_write = {
    .name = "kv_write",
    .summary = "stores keys and values at their positions, rounded to the cache's dtype",
    .args_size = sizeof(struct kv_write_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_F16, .k = 8, .head_dim = 64},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct kv_write_args, k)},
                 {OP_READS, offsetof(struct kv_write_args, v)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
