/* matmul by NVIDIA's library: bf16 operands with float32 or bf16 results, and float32 throughout.
 */
#include "ops/args.h"
#include "ops/cuda/cublaslt_cuda.h"

static bool aligned(const struct matrix *m)
{
    return (uintptr_t)m->data % 16 == 0;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    const int64_t unit = a->a.dtype == DTYPE_BF16 ? 8 : 4; /* rows begin at multiples of 16 bytes */
    (void)device;
    if (a->a.cols % unit || a->b.cols % unit || a->n % unit)
        snprintf(why, OP_REASON_MAX, "rows that are no multiples of %lld numbers", (long long)unit);
    else if (!aligned(&a->a) || !aligned(&a->b) || !aligned(&a->out) || !aligned(&a->add))
        snprintf(why, OP_REASON_MAX, "a matrix at an address that is no multiple of 16");
    else if (a->factor_a || a->factor_b)
        snprintf(why, OP_REASON_MAX, "operands with factors");
    else
        return true;
    return false;
}

static void run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    gpu_put_matmul(context->stream, &(struct gpu_matmul){.m = a->m,
                                                         .n = a->n,
                                                         .k = a->k,
                                                         .x_stride = a->a.cols,
                                                         .x = a->a.data,
                                                         .w = a->b.data,
                                                         .c = a->out.data,
                                                         .f32 = a->a.dtype == DTYPE_F32,
                                                         .narrow = a->out.dtype == DTYPE_BF16,
                                                         .x_transposed = a->transpose_a,
                                                         .w_transposed = !a->transpose_b,
                                                         .batch = a->batch,
                                                         .alpha = a->alpha,
                                                         .beta = a->beta,
                                                         .add = a->add.data,
                                                         .choice = context->choice,
                                                         .workspace = context->workspace});
}

/* a and b; with results too. */
static const unsigned typed[] = {1 << 0 | 1 << 1, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3, 0};

const struct op_variant matmul_cublaslt_cuda = {
    .name = "matmul_cublaslt_cuda",
    .summary =
        "NVIDIA's cuBLASLt, where it is installed; the choices are what it offers, best first",
    .numerics = NUMERICS_EXACT,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .usable = cublaslt_usable,
    .can_run = can_run,
    .choices = &cublaslt_choices,
    .typed = typed,
    .workspace = cublaslt_workspace,
    .run = run,
};
