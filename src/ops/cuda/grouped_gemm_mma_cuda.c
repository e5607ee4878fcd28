/* grouped_gemm on every card from sm_80 on: kernels/grouped_gemm/grouped_gemm_mma.cu. */
#include <stdio.h>

#include "gpu/kernel.h"
#include "grouped_gemm/grouped_gemm_mma_args.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static uint64_t tiles_of(const struct gemm_group *g)
{
    return (uint64_t)(many_rows_over(g->m, GROUPED_ROWS) * many_rows_over(g->n, GROUPED_COLUMNS));
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    const uint64_t most = INT32_MAX / GROUPED_GROUPS; /* so that all of a launch can be counted */
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    for (int64_t i = 0; i < a->n_groups; i++) {
        if (tiles_of(&a->groups[i]) <= most) continue;
        snprintf(why, OP_REASON_MAX, "group %lld has more than %llu tiles", (long long)i,
                 (unsigned long long)most);
        return false;
    }
    return true;
}

static struct grouped_gemm_mma_group for_kernel(const struct grouped_gemm_args *a,
                                                const struct gemm_group *g, uint64_t first_tile)
{
    return (struct grouped_gemm_mma_group){
        .a = g->a.codes,
        .b = g->b.codes,
        .up = g->up.codes,
        .a_scales = g->a.scales,
        .b_scales = g->b.scales,
        .up_scales = g->up.scales,
        .bias = g->bias,
        .up_bias = g->up_bias,
        .factor = g->factor,
        .up_factor = g->up_factor,
        .c = (char *)a->c + g->c_at,
        .m = (int32_t)g->m,
        .n = (int32_t)g->n,
        .k = (int32_t)g->k,
        .first_tile = (uint32_t)first_tile,
    };
}

static const char *kernel_name(const struct grouped_gemm_args *a)
{
    switch (a->format) {
    case DTYPE_MXFP4:
        return a->gated ? "grouped_gemm_mxfp4_gated" : "grouped_gemm_mxfp4";
    case DTYPE_FP8_E4M3:
        return a->gated ? "grouped_gemm_fp8_gated" : "grouped_gemm_fp8";
    default:
        return a->gated ? "grouped_gemm_nvfp4_gated" : "grouped_gemm_nvfp4";
    }
}

/* As many groups as a launch takes, from `next` on; where to go on. */
static int64_t put_some(const struct op_context *context, const struct grouped_gemm_args *a,
                        int64_t next)
{
    struct grouped_gemm_mma_args k = {.scales = (int32_t)a->scales,
                                      .c_type = (int32_t)a->c_type,
                                      .alpha = a->alpha,
                                      .limit = a->limit};
    uint64_t tiles = 0;
    for (; next < a->n_groups && k.n_groups < GROUPED_GROUPS; next++) {
        const struct gemm_group *g = &a->groups[next];
        if (grouped_gemm_is_empty(g)) continue;
        k.groups[k.n_groups++] = for_kernel(a, g, tiles);
        tiles += tiles_of(g);
    }
    if (tiles)
        gpu_put(context->stream, "grouped_gemm/grouped_gemm_mma.cu", kernel_name(a),
                &(struct gpu_launch){
                    .grid = {(unsigned)tiles}, .block = {GROUPED_THREADS}, .overlaps = true},
                &k);
    return next;
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    for (int64_t i = 0; i < a->n_groups;) i = put_some(context, a, i);
}

const struct op_variant grouped_gemm_mma_cuda = {
    .name = "grouped_gemm_mma_cuda",
    .summary = "mma.sync on fp16 operands, made in shared memory; all formats",
    .target = TARGET_CUDA,
    .arch = {8, 0, false},
    .can_run = can_run,
    .run = run,
    .images = {"grouped_gemm/grouped_gemm_mma.cu"},
};
