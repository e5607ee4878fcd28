/* Norm and logits in one kernel: a head of packed Q8_0 for one row, one in bf16 for one row or two.
 */
#include <stdio.h>

#include "gemm/gemv_wide_args.h"
#include "ops/cuda/gemv_wide_cuda.h"

/* What both ask of the rows; `most`: columns. */
static bool takes(const struct head_args *a, int64_t most, char why[OP_REASON_MAX])
{
    if (a->hidden > most)
        snprintf(why, OP_REASON_MAX, "a row of more than %lld", (long long)most);
    else if (!a->norm)
        return few_rows_refuse(why, "a norm without a gain");
    else if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return a->hidden <= most;
}

static struct gemm_kernel_args for_kernel(const struct head_args *a)
{
    return (struct gemm_kernel_args){
        .m = a->n_outputs,
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
}

/* ---- bf16 ---- */

static bool can_run_wide(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct head_args *a = args;
    return takes(a, GEMV_WIDE_HELD_MAX, why) && gemv_wide_serves(a->n_outputs, &a->w, device, why);
}

static void run_wide(const struct op_context *context, const void *args)
{
    const struct gemm_kernel_args k = for_kernel(args);
    gemv_wide_put(context, &k, true);
}

const struct op_variant head_wide_cuda = {
    .name = "head_wide_cuda",
    .summary = "one row or two, weights in bf16: norm and logits in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_wide,
    .run = run_wide,
    .images = {GEMV_WIDE_IMAGE},
};

/* ---- Q8_0 ---- */

enum { BLOCKS = 32 }; /* an SM, dealt out as they end, though two run at a time */

static bool can_run_row(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct head_args *a = args;
    (void)device;
    if (!few_rows_just(a->n_outputs, 1, why)) return false;
    if (!few_rows_q8_0(&a->w)) return few_rows_refuse(why, "it reads packed q8_0");
    return takes(a, FEW_ROWS_HELD_MAX, why);
}

static void run_row(const struct op_context *context, const void *args)
{
    const struct head_args *a = args;
    const struct gemm_kernel_args k = for_kernel(a);
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
    .can_run = can_run_row,
    .run = run_row,
    .images = {"gemm/gemv.cu"},
};
