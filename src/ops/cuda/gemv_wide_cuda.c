/* The products of a head, or of anything with that many features in bf16, for one row or two:
 * alone, and with the norm before them. */
#include <stdio.h>

#include "gemm/gemm_args.h"
#include "gemm/gemv_wide_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

static const char image[] = "gemm/gemv_wide.cu";

static size_t shared_bytes(int64_t m, int64_t k)
{
    return sizeof(float) * (size_t)(m * GEMV_WIDE_COLUMNS(k));
}

/* A block's share of an SM, which has room for all of them. */
static bool fits(int64_t m, int64_t k, const struct op_device *device)
{
    enum { SYSTEM = 2 << 10 };
    return GEMV_WIDE_BLOCKS * (shared_bytes(m, k) + SYSTEM) <=
           (size_t)gpu_info(device->gpu)->shared_per_sm;
}

static bool serves(int64_t m, const struct tensor *w, const struct op_device *device,
                   char why[OP_REASON_MAX])
{
    if (!few_rows_bf16(w))
        return few_rows_refuse(why, "it reads weights in bf16, rows of 16-byte pieces");
    if (m < 1 || m > GEMV_WIDE_ROWS_MAX)
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for 1 or 2", (long long)m);
    else if (!fits(m, w->cols, device))
        snprintf(why, OP_REASON_MAX, "rows of %lld do not fit shared memory", (long long)w->cols);
    else
        return true;
    return false;
}

static void put(const struct op_context *context, const struct gemm_kernel_args *k,
                const char *const names[GEMV_WIDE_ROWS_MAX])
{
    const unsigned warps = GEMV_WIDE_THREADS / 32;
    const unsigned pairs = (unsigned)((k->n + GEMV_WIDE_PAIR - 1) / GEMV_WIDE_PAIR);
    const unsigned all = GEMV_WIDE_BLOCKS * (unsigned)gpu_stream_info(context->stream)->sm_count;
    const unsigned needed = (pairs + warps - 1) / warps;
    gpu_put(context->stream, image, names[k->m - 1],
            &(struct gpu_launch){.grid = {needed < all ? needed : all},
                                 .block = {GEMV_WIDE_THREADS},
                                 .shared_bytes = (unsigned)shared_bytes(k->m, k->k),
                                 .overlaps = true},
            k);
}

/* ---- gemm ---- */

static bool gemm_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    if (a->group_offsets) return few_rows_refuse(why, "groups");
    if (!few_rows_aligned(a->a.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return serves(a->m, &a->w, device, why);
}

static bool gemm_suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    (void)device;
    if (a->n < GEMV_WIDE_MIN)
        snprintf(why, OP_REASON_MAX, "%lld features; it is for %d and more", (long long)a->n,
                 GEMV_WIDE_MIN);
    return a->n >= GEMV_WIDE_MIN;
}

static void gemm_run(const struct op_context *context, const void *args)
{
    static const char *const names[] = {"gemv_wide_1", "gemv_wide_2"};
    const struct gemm_args *a = args;
    put(context,
        &(struct gemm_kernel_args){.m = a->m,
                                   .n = a->n,
                                   .k = a->k,
                                   .groups = 1,
                                   .a = a->a.data,
                                   .a_rows = a->a_rows,
                                   .w = a->w.data,
                                   .bias = a->bias,
                                   .c = a->c.data},
        names);
}

const struct op_variant gemv_wide_cuda = {
    .name = "gemv_wide_cuda",
    .summary = "one row or two, many features in bf16: memory's speed, without tensor cores",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = gemm_can_run,
    .suits = gemm_suits,
    .run = gemm_run,
    .images = {image},
};

/* ---- head ---- */

static bool head_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct head_args *a = args;
    if (a->hidden > GEMV_WIDE_HELD_MAX) return few_rows_refuse(why, "a row of more than 3840");
    if (!a->norm) return few_rows_refuse(why, "a norm without a gain");
    if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return serves(a->n_outputs, &a->w, device, why);
}

static void head_run(const struct op_context *context, const void *args)
{
    static const char *const names[] = {"gemv_wide_1_normed", "gemv_wide_2_normed"};
    const struct head_args *a = args;
    put(context,
        &(struct gemm_kernel_args){.m = a->n_outputs,
                                   .n = a->w.rows,
                                   .k = a->hidden,
                                   .groups = 1,
                                   .a = a->x.data,
                                   .a_rows = a->batch->output_rows,
                                   .w = a->w.data,
                                   .c = a->logits.data,
                                   .gain = a->norm,
                                   .eps = a->eps},
        names);
}

const struct op_variant head_wide_cuda = {
    .name = "head_wide_cuda",
    .summary = "one row or two, weights in bf16: norm and logits in one kernel",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = head_can_run,
    .run = head_run,
    .images = {image},
};
