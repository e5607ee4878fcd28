/* matmul on any card, in float32 (kernels/matmul/matmul_any.cu). */
#include <stdio.h>

#include "gpu/kernel.h"
#include "matmul/matmul_args.h"
#include "ops/op.h"
#include "ops/train_args.h"

enum { PRODUCTS_MAX = 65535 }; /* of a grid's second dimension */

static int64_t tiles_of(int64_t n)
{
    return (n + MATMUL_ANY_TILE - 1) / MATMUL_ANY_TILE;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    (void)device;
    if (a->batch <= PRODUCTS_MAX && tiles_of(a->m) * tiles_of(a->n) <= INT32_MAX) return true;
    snprintf(why, OP_REASON_MAX, "%lld products of %lld x %lld, which are too many",
             (long long)a->batch, (long long)a->m, (long long)a->n);
    return false;
}

static unsigned bf16_of(const struct matmul_args *a)
{
    return (a->a.dtype == DTYPE_BF16 ? MATMUL_A : 0u) | (a->b.dtype == DTYPE_BF16 ? MATMUL_B : 0u) |
           (a->add.dtype == DTYPE_BF16 ? MATMUL_ADD : 0u) |
           (a->out.dtype == DTYPE_BF16 ? MATMUL_OUT : 0u);
}

static void run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    if (a->batch * a->m * a->n == 0) return;
    const struct matmul_any_args k = {.m = a->m,
                                      .n = a->n,
                                      .k = a->k,
                                      .a = a->a.data,
                                      .b = a->b.data,
                                      .add = a->add.data,
                                      .out = a->out.data,
                                      .factor_a = a->factor_a,
                                      .factor_b = a->factor_b,
                                      .alpha = a->alpha,
                                      .beta = a->beta,
                                      .transpose_a = a->transpose_a,
                                      .transpose_b = a->transpose_b,
                                      .bf16 = bf16_of(a),
                                      .tiles = (int32_t)tiles_of(a->n)};
    gpu_put(context->stream, "matmul/matmul_any.cu", "matmul_any",
            &(struct gpu_launch){
                .grid = {(unsigned)(tiles_of(a->m) * tiles_of(a->n)), (unsigned)a->batch},
                .block = {MATMUL_ANY_THREADS},
                .overlaps = true},
            &k);
}

/* Any of the four. */
static const unsigned typed[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0};

const struct op_variant matmul_f32_any_cuda = {
    .name = "matmul_f32_any_cuda",
    .summary = "64 x 64 results a block in float32, any types",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .typed = typed,
    .run = run,
    .images = {"matmul/matmul_any.cu"},
};
