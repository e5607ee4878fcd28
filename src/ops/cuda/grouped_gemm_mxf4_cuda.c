/* grouped_gemm on the block-scaled tensor cores of consumer Blackwell and GB10:
 * kernels/grouped_gemm/grouped_gemm_mxf4.cu. */
#include <stdio.h>

#include "grouped_gemm/grouped_gemm_mxf4_args.h"
#include "ops/cuda/grouped_tiles.h"
#include "ops/grouped_gemm.h"

static struct grouped_tiles tiles(const struct grouped_gemm_args *a)
{
    static const char *const names[2][2] = {{"grouped_mxf4_nvfp4", "grouped_mxf4_nvfp4_gated"},
                                            {"grouped_mxf4_mxfp4", "grouped_mxf4_mxfp4_gated"}};
    return (struct grouped_tiles){.image = "grouped_gemm/grouped_gemm_mxf4.cu",
                                  .kernel = names[a->format == DTYPE_MXFP4][a->gated],
                                  .rows = MXF4_ROWS,
                                  .columns = a->gated ? MXF4_COLUMNS_GATED : MXF4_COLUMNS,
                                  .threads = MXF4_THREADS,
                                  .shared_bytes = MXF4_STAGES * MXF4_STAGE};
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    const char *reason = a->format == DTYPE_FP8_E4M3  ? "codes of 4 bits only"
                         : a->weights != WEIGHTS_ROWS ? "it reads weights in rows, not in tiles"
                         : a->format == DTYPE_NVFP4 && !a->unsigned_scales
                             ? "scales may have signs, which its instruction does not know "
                               "(unsigned_scales says that they have none)"
                             : NULL;
    if (reason) {
        snprintf(why, OP_REASON_MAX, "%s", reason);
        return false;
    }
    const struct grouped_tiles t = tiles(a);
    return grouped_tiles_can_run(a, &t, why);
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_tiles t = tiles(args);
    grouped_tiles_run(context, args, &t);
}

const struct op_variant grouped_gemm_mxf4_cuda = {
    .name = "grouped_gemm_mxf4_cuda",
    .summary = "block-scaled tensor cores of sm_12x, codes and scales as they are; e2m1, scales of "
               "NVFP4 without signs",
    .target = TARGET_CUDA,
    .arch = {.major = 12, .family = true},
    .unproven = true,
    .can_run = can_run,
    .run = run,
    .images = {"grouped_gemm/grouped_gemm_mxf4.cu"},
};
