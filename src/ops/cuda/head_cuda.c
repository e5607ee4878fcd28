/* A head of packed Q8_0 for one row; gemv_wide_cuda.c has those in bf16. */
#include "gemm/gemm_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

enum { BLOCKS = 32 }; /* an SM, dealt out as they end, though two run at a time */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct head_args *a = args;
    (void)device;
    if (!few_rows_just(a->n_outputs, 1, why)) return false;
    if (!few_rows_q8_0(&a->w)) return few_rows_refuse(why, "it reads packed q8_0");
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
    gpu_put(
        context->stream, "gemm/gemv.cu", "gemv_f32_q8_0_normed",
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
    .summary = "one row, packed q8_0: norm and logits in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .run = run,
    .images = {"gemm/gemv.cu"},
};
