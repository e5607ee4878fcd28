#include <stdio.h>

#include "gemm/gemm_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"

enum { FEATURES = 8, ROWS = 8, THREADS = 256 }; /* of gemm_f32_any: a block's tile */

static struct gemm_kernel_args for_kernel(const struct gemm_args *a)
{
    return (struct gemm_kernel_args){.m = a->m,
                                     .n = a->n,
                                     .k = a->k,
                                     .groups = a->w.groups,
                                     .a = a->a,
                                     .a_rows = a->a_rows,
                                     .w = a->w.data,
                                     .bias = a->bias,
                                     .group_offsets = a->group_offsets,
                                     .c = a->c,
                                     .type = (int32_t)a->w.dtype};
}

/* As many tiles of `size` rows as there can be when every group begins its own. */
static unsigned row_tiles(const struct gemm_args *a, int64_t size)
{
    int64_t extra = a->group_offsets ? (a->w.groups < a->m ? a->w.groups : a->m) : 0;
    return (unsigned)((a->m + size - 1) / size + extra);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    (void)device;
    enum dtype t = a->w.dtype;
    bool known =
        t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_MXFP4 || t == DTYPE_Q8_0;
    if (!known) snprintf(why, OP_REASON_MAX, "no weights in %s", dtype_info(t)->name);
    return known;
}

static void run_f32(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    const struct gemm_kernel_args k = for_kernel(a);
    unsigned features = (unsigned)((a->n + FEATURES - 1) / FEATURES);
    gpu_put(context->gpu, "gemm/gemm_f32.cu", "gemm_f32_any",
            &(struct gpu_launch){
                .grid = {features, row_tiles(a, ROWS)}, .block = {THREADS}, .overlaps = true},
            &k);
}

const struct op_variant gemm_f32_any_cuda = {
    .name = "gemm_f32_any_cuda",
    .summary = "a warp a feature, eight rows, any weights, float32",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run_f32,
};
