/* pack_scaled on a GPU: kernels/grouped_gemm/pack_scaled.cu. */
#include <stdio.h>

#include "gpu/kernel.h"
#include "grouped_gemm/pack_scaled_args.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static int64_t tiles_of(const struct pack_scaled_args *a)
{
    return many_rows_over(a->rows, WEIGHT_TILE_ROWS) * weight_tiles_over(a->k);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct pack_scaled_args *a = args;
    (void)device;
    if (!pack_scaled_check(a, why)) return false;
    if (tiles_of(a) <= INT32_MAX) return true;
    snprintf(why, OP_REASON_MAX, "more than %d tiles", INT32_MAX);
    return false;
}

static void run(const struct op_context *context, const void *args)
{
    const struct pack_scaled_args *a = args;
    const struct pack_scaled_kernel_args k = {.codes = a->from.codes,
                                              .scales = a->from.scales,
                                              .tiles = a->tiles,
                                              .rows = (int32_t)a->rows,
                                              .k = (int32_t)a->k,
                                              .layout = (int32_t)a->scales};
    gpu_put(context->stream, "grouped_gemm/pack_scaled.cu", "pack_scaled_nvfp4",
            &(struct gpu_launch){.grid = {(unsigned)tiles_of(a)}, .block = {PACK_SCALED_THREADS}},
            &k);
}

const struct op_variant pack_scaled_cuda = {
    .name = "pack_scaled_cuda",
    .summary = "a block a tile, 16 bytes a thread and turn",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"grouped_gemm/pack_scaled.cu"},
};
