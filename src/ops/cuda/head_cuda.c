#include "gemm/gemm_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

/* Blocks are dealt out as they end, about three tiles each of gpt-oss-20b, though two an SM run at
 * a time. With two an SM in all, some took 1.5 times as long as the others in one step of eight:
 * H200, bf16, 128 tokens at depth 0: 2, 4, 8, 16, 32 blocks an SM 673, 673, 687, 689, 693 t/s, 90th
 * percentile of a step 1.61, 1.61, 1.52, 1.48, 1.48 ms. */
enum { BLOCKS = 32 }; /* an SM */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct head_args *a = args;
    (void)device;
    if (!few_rows_just(a->n_outputs, 1, why)) return false;
    if (!few_rows_dense(&a->w, why)) return false;
    if (a->hidden > FEW_ROWS_HELD_MAX) return few_rows_refuse(why, "a row of more than 4096");
    if (!a->norm) return few_rows_refuse(why, "a norm without a gain");
    if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

static void run(const struct op_context *context, const void *args)
{
    const struct head_args *a = args;
    const struct gemm_kernel_args k = {
        .m = 1,
        .n = a->w.rows,
        .k = a->hidden,
        .groups = 1,
        .a = a->x.data,
        .a_rows = a->batch->output_rows,
        .w = a->w.data,
        .c = a->logits.data,
        .scales = a->w.scales,
        .gain = a->norm,
        .eps = a->eps,
    };
    unsigned tiles = (unsigned)((a->w.rows + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES);
    unsigned most = BLOCKS * (unsigned)gpu_stream_info(context->stream)->sm_count;
    static const char *const name[DTYPE_COUNT] = {
        [DTYPE_BF16] = "gemv_f32_bf16_normed", [DTYPE_Q8_0] = "gemv_f32_q8_0_normed"};
    gpu_put(
        context->stream, "gemm/gemv.cu", name[a->w.dtype],
        &(struct gpu_launch){
            .grid = {tiles < most ? tiles : most},
            .block = {FEW_ROWS_THREADS},
            .shared_bytes = (unsigned)(FEW_ROWS_PARTS * few_rows_column(a->hidden, a->w.layout)),
            .overlaps = true,
        },
        &k);
}

const struct op_variant head_row_cuda = {
    .name = "head_row_cuda",
    .summary = "one row: norm and logits in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .run = run,
    .images = {"gemm/gemv.cu"},
};
