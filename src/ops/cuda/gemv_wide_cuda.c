#include "ops/cuda/gemv_wide_cuda.h"

#include <stdio.h>

#include "gemm/gemv_wide_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

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

bool gemv_wide_serves(int64_t m, const struct tensor *w, const struct op_device *device,
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

void gemv_wide_put(const struct op_context *context, const struct gemm_kernel_args *k, bool normed)
{
    static const char *const names[2][GEMV_WIDE_ROWS_MAX] = {
        {"gemv_wide_1", "gemv_wide_2"}, {"gemv_wide_1_normed", "gemv_wide_2_normed"}};
    const unsigned warps = GEMV_WIDE_THREADS / 32;
    const unsigned pairs = (unsigned)((k->n + GEMV_WIDE_PAIR - 1) / GEMV_WIDE_PAIR);
    const unsigned all = GEMV_WIDE_BLOCKS * (unsigned)gpu_stream_info(context->stream)->sm_count;
    const unsigned needed = (pairs + warps - 1) / warps;
    gpu_put(context->stream, GEMV_WIDE_IMAGE, names[normed][k->m - 1],
            &(struct gpu_launch){.grid = {needed < all ? needed : all},
                                 .block = {GEMV_WIDE_THREADS},
                                 .shared_bytes = (unsigned)shared_bytes(k->m, k->k),
                                 .overlaps = true},
            k);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    if (a->group_offsets) return few_rows_refuse(why, "groups");
    if (!few_rows_aligned(a->a.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return gemv_wide_serves(a->m, &a->w, device, why);
}

static bool suits(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct gemm_args *a = args;
    (void)device;
    if (a->n < GEMV_WIDE_MIN)
        snprintf(why, OP_REASON_MAX, "%lld features; it is for %d and more", (long long)a->n,
                 GEMV_WIDE_MIN);
    return a->n >= GEMV_WIDE_MIN;
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    gemv_wide_put(context,
                  &(struct gemm_kernel_args){.m = a->m,
                                             .n = a->n,
                                             .k = a->k,
                                             .groups = 1,
                                             .a = a->a.data,
                                             .a_rows = a->a_rows,
                                             .w = a->w.data,
                                             .bias = a->bias,
                                             .c = a->c.data},
                  false);
}

const struct op_variant gemv_wide_cuda = {
    .name = "gemv_wide_cuda",
    .summary = "one row or two, many features in bf16: memory's speed, without tensor cores",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run,
    .suits = suits,
    .run = run,
    .images = {GEMV_WIDE_IMAGE},
};
