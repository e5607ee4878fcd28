/* gemm of many rows by NVIDIA's library: what other products are compared with. */
#include <stdio.h>

#include "ops/args.h"
#include "ops/cuda/cublaslt_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"

enum { ALIGN = 256 };

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    (void)device;
    if (a->w.dtype != DTYPE_BF16 || a->group_offsets)
        snprintf(why, OP_REASON_MAX, "%s%s; it multiplies all rows by bf16",
                 dtype_info(a->w.dtype)->name, a->group_offsets ? " by group" : "");
    else if (a->k % 8 || a->n % 4)
        snprintf(why, OP_REASON_MAX, "k %lld is no multiple of 8 or n %lld none of 4",
                 (long long)a->k, (long long)a->n);
    else if (!few_rows_aligned(a->w.data) || !few_rows_aligned(a->bias) ||
             !few_rows_aligned(a->c.data))
        snprintf(why, OP_REASON_MAX, "an operand at an address that is no multiple of 16");
    else
        return true;
    return false;
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return many_rows_enough(((const struct gemm_args *)args)->m, MANY_ROWS_MIN, why);
}

static size_t rows_bytes(const struct gemm_args *a)
{
    return (many_rows_bytes(a->m, a->k) + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    (void)workers;
    return rows_bytes(a) + gpu_matmul_workspace(1, a->m, a->n);
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    char *x = context->workspace;
    many_rows_operand(context->stream, a->m, &a->a, a->a_rows, x);
    gpu_put_matmul(context->stream, &(struct gpu_matmul){.m = a->m,
                                                         .n = a->n,
                                                         .k = a->k,
                                                         .x_stride = many_rows_columns(a->k),
                                                         .x = x,
                                                         .w = a->w.data,
                                                         .bias = a->bias,
                                                         .c = a->c.data,
                                                         .workspace = x + rows_bytes(a)});
}

const struct op_variant gemm_cublaslt_cuda = {
    .name = "gemm_cublaslt_cuda",
    .summary = "bf16 weights and rows in bf16 by NVIDIA's cuBLASLt, where it is installed",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .usable = cublaslt_usable,
    .can_run = can_run,
    .suits = suits,
    .workspace = workspace,
    .run = run,
    .images = {"gemm/round_rows.cu"},
};
