/* Products of many rows by NVIDIA's library: gemm, with which other products are compared, and
 * attn_add, where the library adds them to the residual. */
#include <stdio.h>

#include "ops/args.h"
#include "ops/cuda/cublaslt_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"

enum { ALIGN = 256 };

static bool serves(const struct tensor *w, const float *bias, const void *c,
                   char why[OP_REASON_MAX])
{
    if (w->dtype != DTYPE_BF16)
        snprintf(why, OP_REASON_MAX, "%s; it multiplies by bf16", dtype_info(w->dtype)->name);
    else if (w->cols % 8 || w->rows % 4)
        snprintf(why, OP_REASON_MAX, "k %lld is no multiple of 8 or n %lld none of 4",
                 (long long)w->cols, (long long)w->rows);
    else if (!few_rows_aligned(w->data) || !few_rows_aligned(bias) || !few_rows_aligned(c))
        snprintf(why, OP_REASON_MAX, "an operand at an address that is no multiple of 16");
    else
        return true;
    return false;
}

static size_t rows_bytes(int64_t m, int64_t k)
{
    return (many_rows_bytes(m, k) + ALIGN - 1) / ALIGN * ALIGN;
}

/* c = a w^T + bias, or all of that added to c. */
struct product {
    int64_t m;
    const struct matrix *a;
    const int32_t *a_rows;
    const struct tensor *w;
    const float *bias;
    float *c;
    bool adds;
};

static void multiply(const struct op_context *context, const struct product *p)
{
    char *space = context->workspace;
    const void *x = many_rows_operand(context->stream, p->m, p->a, p->a_rows, space);
    gpu_put_matmul(context->stream,
                   &(struct gpu_matmul){.m = p->m,
                                        .n = p->w->rows,
                                        .k = p->w->cols,
                                        .x_stride = many_rows_columns(p->w->cols),
                                        .x = x,
                                        .w = p->w->data,
                                        .bias = p->bias,
                                        .c = p->c,
                                        .beta = p->adds ? 1 : 0,
                                        .add = p->c,
                                        .workspace = space + rows_bytes(p->m, p->w->cols)});
}

/* ---- gemm ---- */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    (void)device;
    if (a->group_offsets) snprintf(why, OP_REASON_MAX, "rows by group; it multiplies all rows");
    return !a->group_offsets && serves(&a->w, a->bias, a->c.data, why);
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return many_rows_enough(((const struct gemm_args *)args)->m, MANY_ROWS_MIN, why);
}

static size_t workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    (void)workers;
    return rows_bytes(a->m, a->k) + gpu_matmul_workspace(1, a->m, a->n);
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    multiply(context, &(struct product){.m = a->m,
                                        .a = &a->a,
                                        .a_rows = a->a_rows,
                                        .w = &a->w,
                                        .bias = a->bias,
                                        .c = a->c.data});
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
    .narrow = 1 << 0, /* a */
    .workspace = workspace,
    .run = run,
    .images = {"gemm/round_rows.cu"},
};

/* ---- attn_add ---- */

static bool can_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    (void)device;
    return serves(&a->wo, a->bo, a->x.data, why);
}

/* H200, 2,880 features, us of this and of attn_add_many_cuda: k 4096 of 128 rows 15.6 and 18.9; k
 * 1024 of 64 rows 7.4 and 6.8, of 128 7.9 and 7.7, of 512 11.9 and 12.9. */
static bool suits_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    enum { ADD_MIN = 128 };
    (void)device;
    return many_rows_enough(((const struct attn_out_args *)args)->m, ADD_MIN, why);
}

static size_t add_workspace(const void *args, int workers)
{
    const struct attn_out_args *a = args;
    (void)workers;
    return rows_bytes(a->m, a->width) + gpu_matmul_workspace(1, a->m, a->hidden);
}

static void run_add(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    multiply(
        context,
        &(struct product){
            .m = a->m, .a = &a->attn, .w = &a->wo, .bias = a->bo, .c = a->x.data, .adds = true});
}

const struct op_variant attn_add_cublaslt_cuda = {
    .name = "attn_add_cublaslt_cuda",
    .summary = "bf16 weights and rows in bf16 by NVIDIA's cuBLASLt, which adds to the residual",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .usable = cublaslt_usable,
    .can_run = can_add,
    .suits = suits_add,
    .narrow = 1 << 0, /* attn */
    .workspace = add_workspace,
    .run = run_add,
    .images = {"gemm/round_rows.cu"},
};
