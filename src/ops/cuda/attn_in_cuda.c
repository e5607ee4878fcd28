#include "ops/cuda/attn_in_cuda.h"
#include "gpu/kernel.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/cuda/few_rows_operands.h"

bool attn_in_reads(const struct attn_in_args *a, char why[OP_REASON_MAX])
{
    if (!few_rows_dense(&a->wq, why) || !few_rows_dense(&a->wk, why) ||
        !few_rows_dense(&a->wv, why))
        return false;
    if (a->wk.dtype != a->wq.dtype || a->wv.dtype != a->wq.dtype)
        return few_rows_refuse(why, "q, k and v in different formats");
    if (a->kv.head_dim % FEW_ROWS_FEATURES)
        return few_rows_refuse(why, "head_dim is no multiple of 16");
    return few_rows_aligned(a->x.data) && few_rows_aligned(a->norm)
               ? true
               : few_rows_refuse(why, "an operand at an address that is no multiple of 16");
}

struct attn_in_kernel_args attn_in_for_kernel(const struct attn_in_args *a)
{
    return (struct attn_in_kernel_args){
        .cache = cache_for_kernel(&a->kv),
        .hidden = a->hidden,
        .n_heads = a->n_heads,
        .x = a->x.data,
        .norm = a->norm,
        .wq = a->wq.data,
        .wk = a->wk.data,
        .wv = a->wv.data,
        .scales = {a->wq.scales, a->wk.scales, a->wv.scales},
        .bq = a->bq,
        .bk = a->bk,
        .bv = a->bv,
        .inv_freq = a->inv_freq,
        .position = a->batch->position,
        .sequence = a->batch->sequence,
        .q = a->q.data,
        .eps = a->eps,
        .rope_scale = a->rope_scale,
    };
}

int64_t attn_in_tiles(const struct attn_in_args *a)
{
    return (a->n_heads + 2 * a->kv.n_kv_heads) * (a->kv.head_dim / FEW_ROWS_FEATURES);
}

static bool can_run(const void *args, int64_t rows, char why[OP_REASON_MAX])
{
    const struct attn_in_args *a = args;
    if (!few_rows_just(a->m, rows, why) || !attn_in_reads(a, why)) return false;
    if (a->hidden > FEW_ROWS_HELD_MAX) return few_rows_refuse(why, "a row of more than 4096");
    return true;
}

static bool can_run_row(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return can_run(args, 1, why);
}

static bool can_run_two(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return can_run(args, 2, why);
}

static void run(const struct op_context *context, const void *args)
{
    const struct attn_in_args *a = args;
    const struct attn_in_kernel_args k = attn_in_for_kernel(a);
    size_t shared = (size_t)a->m * FEW_ROWS_PARTS * few_rows_column(a->hidden, a->wq.layout);
    static const char *const name[][DTYPE_COUNT] = {
        {[DTYPE_BF16] = "attn_in_row", [DTYPE_Q8_0] = "attn_in_row_q8_0"},
        {[DTYPE_BF16] = "attn_in_two", [DTYPE_Q8_0] = "attn_in_two_q8_0"}};
    gpu_put(context->stream, "attn_in/attn_in.cu", name[a->m - 1][a->wq.dtype],
            &(struct gpu_launch){
                .grid = {(unsigned)attn_in_tiles(a)},
                .block = {FEW_ROWS_THREADS},
                .shared_bytes = (unsigned)shared,
                .overlaps = true,
            },
            &k);
}

const struct op_variant attn_in_row_cuda = {
    .name = "attn_in_row_cuda",
    .summary = "one row: norm, products, rotation and the cache in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_row,
    .run = run,
    .images = {"attn_in/attn_in.cu"},
};

const struct op_variant attn_in_two_cuda = {
    .name = "attn_in_two_cuda",
    .summary = "two rows, in three parts: norm, products, rotation and the cache in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_two,
    .run = run,
    .images = {"attn_in/attn_in.cu"},
};
