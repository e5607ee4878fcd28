/* gemm of many rows on Hopper's tensor cores, and moe_up with its two products as one. */
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/cuda/wgmma_product.h"

static bool can_run_gemm(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return wgmma_serves(&((const struct gemm_args *)args)->w, why);
}

extern const struct op_variant gemm_cublaslt_cuda;

/* A head of 201,088 features, H200, us of cuBLASLt and of these: 128 rows 328 and 334, 192 377 and
 * 409, 256 450 and 520, 512 837 and 974. */
static bool library_is_faster(const struct gemm_args *a, const struct op_device *device)
{
    enum { LIBRARY_MIN = 128 };
    char why[OP_REASON_MAX];
    return a->n >= WIDE && a->m >= LIBRARY_MIN && gemm_cublaslt_cuda.can_run(a, device, why) &&
           gemm_cublaslt_cuda.usable(why);
}

static bool suits_gemm(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    if (library_is_faster(a, device))
        return few_rows_refuse(why, "cuBLASLt is faster with so many results");
    return many_rows_gemm(a, a->n >= WIDE ? WIDE_ROWS_MIN : MANY_ROWS_MIN, device, why);
}

static size_t gemm_workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    (void)workers;
    return many_rows_bytes(a->m, a->k);
}

static void run_gemm(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    const void *x = many_rows_operand(context->stream, a->m, &a->a, a->a_rows, context->workspace);
    wgmma_multiply(context->stream, &(struct wgmma_product){.m = a->m,
                                                            .w = a->w,
                                                            .bias = a->bias,
                                                            .group_offsets = a->group_offsets,
                                                            .x = x,
                                                            .c = a->c.data,
                                                            .choice = context->choice});
}

const struct op_variant gemm_wgmma_cuda = {
    .name = "gemm_wgmma_cuda",
    .summary = "bf16, packed mxfp4 or q8_0 weights, 64 features by up to 256 rows in bf16",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run_gemm,
    .suits = suits_gemm,
    .choices = &wgmma_gemm_choices,
    .narrow = 1 << 0, /* a */
    .workspace = gemm_workspace,
    .run = run_gemm,
    .images = {"gemm/round_rows.cu", "gemm/gemm_wgmma.cu"},
};

static bool can_run_up(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    (void)device;
    return wgmma_serves(&a->gate, why) && wgmma_serves(&a->up, why) && many_rows_gated(a, why);
}

static size_t up_workspace(const void *args, int workers)
{
    const struct moe_up_args *a = args;
    (void)workers;
    return many_rows_bytes(a->m * a->top_k, a->hidden);
}

static void run_up(const struct op_context *context, const void *args)
{
    const struct moe_up_args *a = args;
    int64_t rows = a->m * a->top_k;
    many_rows_operand(context->stream, rows, &a->normed, a->routing.token_of_row,
                      context->workspace);
    wgmma_multiply(context->stream,
                   &(struct wgmma_product){.m = rows,
                                           .w = a->gate,
                                           .up = a->up,
                                           .bias = a->gate_bias,
                                           .up_bias = a->up_bias,
                                           .group_offsets = a->routing.group_offsets,
                                           .x = context->workspace,
                                           .c = a->act.data,
                                           .alpha = a->alpha,
                                           .limit = a->limit,
                                           .choice = context->choice});
}

const struct op_variant moe_up_wgmma_cuda = {
    .name = "moe_up_wgmma_cuda",
    .summary = "gate, up and swiglu in one product of packed mxfp4 weights",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run_up,
    .suits = many_rows_suits_moe_up,
    .choices = &wgmma_up_choices,
    .narrow = 1 << 0, /* normed */
    .workspace = up_workspace,
    .run = run_up,
    .images = {"gemm/round_rows.cu", "moe_up/moe_up_wgmma.cu"},
};
