/* grouped_gemm on every card from sm_80 on: kernels/grouped_gemm/grouped_gemm_mma.cu. */
#include "grouped_gemm/grouped_gemm_mma_args.h"
#include "ops/cuda/grouped_tiles.h"
#include "ops/grouped_gemm.h"

static const char *kernel_name(const struct grouped_gemm_args *a)
{
    switch (a->format) {
    case DTYPE_MXFP4:
        return a->gated ? "grouped_gemm_mxfp4_gated" : "grouped_gemm_mxfp4";
    case DTYPE_FP8_E4M3:
        return a->gated ? "grouped_gemm_fp8_gated" : "grouped_gemm_fp8";
    default:
        if (a->weights == WEIGHTS_TILES)
            return a->gated ? "grouped_gemm_nvfp4_tiles_gated" : "grouped_gemm_nvfp4_tiles";
        return a->gated ? "grouped_gemm_nvfp4_gated" : "grouped_gemm_nvfp4";
    }
}

static struct grouped_tiles tiles(const struct grouped_gemm_args *a)
{
    return (struct grouped_tiles){.image = "grouped_gemm/grouped_gemm_mma.cu",
                                  .kernel = kernel_name(a),
                                  .rows = GROUPED_ROWS,
                                  .columns = GROUPED_COLUMNS,
                                  .threads = GROUPED_THREADS};
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    const struct grouped_tiles t = tiles(a);
    return grouped_tiles_can_run(a, &t, why);
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_tiles t = tiles(args);
    grouped_tiles_run(context, args, &t);
}

const struct op_variant grouped_gemm_mma_cuda = {
    .name = "grouped_gemm_mma_cuda",
    .summary =
        "mma.sync on fp16 operands, made in shared memory; all formats, weights in tiles too",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .run = run,
    .images = {"grouped_gemm/grouped_gemm_mma.cu"},
};
