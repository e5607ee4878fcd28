/* fp8_matmul by NVIDIA's library. */
#include "ops/args.h"
#include "ops/cuda/cublaslt_cuda.h"
#include "ops/cuda/typed_cuda.h"

enum { UNIT = 16 }; /* what the library wants all sides of operands to be multiples of */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct fp8_matmul_args *a = args;
    (void)device;
    if (a->m % UNIT || a->n % UNIT || a->k % UNIT)
        return typed_refuse(why, "a side that is no multiple of 16");
    if (a->format_b != DTYPE_FP8_E4M3) return typed_refuse(why, "B is not e4m3");
    if (!typed_aligned(a->a) || !typed_aligned(a->b) || !typed_aligned(a->out.data) ||
        !typed_aligned(a->add.data))
        return typed_refuse(why, "a matrix at an address that is no multiple of 16");
    if (!typed_aligned(a->factor_a) || !typed_aligned(a->factor_b))
        return typed_refuse(why, "a factor at an address that is no multiple of 16");
    return true;
}

static size_t workspace(const void *args, int workers)
{
    const struct fp8_matmul_args *a = args;
    (void)workers;
    return gpu_matmul_workspace(1, a->m, a->n);
}

static void run(const struct op_context *context, const void *args)
{
    const struct fp8_matmul_args *a = args;
    gpu_put_matmul(context->stream, &(struct gpu_matmul){.m = a->m,
                                                         .n = a->n,
                                                         .k = a->k,
                                                         .x_stride = a->k,
                                                         .x = a->a,
                                                         .w = a->b,
                                                         .c = a->out.data,
                                                         .fp8 = true,
                                                         .x_e5m2 = a->format_a == DTYPE_FP8_E5M2,
                                                         .fast = a->fast,
                                                         .x_scale = a->factor_a,
                                                         .w_scale = a->factor_b,
                                                         .narrow = typed_narrow(&a->out),
                                                         .batch = 1,
                                                         .beta = a->beta,
                                                         .add = a->add.data,
                                                         .choice = context->choice,
                                                         .workspace = context->workspace});
}

static const unsigned typed[] = {3, 0}; /* both */

const struct op_variant fp8_matmul_cublaslt_cuda = {
    .name = "fp8_matmul_cublaslt_cuda",
    .summary = "NVIDIA's cuBLASLt, where it is installed",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8, .minor = 9},
    .usable = cublaslt_usable,
    .can_run = can_run,
    .choices = &cublaslt_choices,
    .typed = typed,
    .workspace = workspace,
    .run = run,
};
