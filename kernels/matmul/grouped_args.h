/* Arguments of the kernels of grouped_matmul and grouped_wgrad, shared by host and device. */
#ifndef KERNELS_MATMUL_GROUPED_ARGS_H
#define KERNELS_MATMUL_GROUPED_ARGS_H

#include "matmul/matmul_args.h"

/* A block of grouped_mma.cu: a tile of the results, of which each of four warps has a quarter;
 * steps of k, whose operands are in shared memory one behind the other. 96 KiB, of which an H100
 * has room for two. */
enum {
    GROUPED_MMA_TILE = 128,
    GROUPED_MMA_STEP = 64,
    GROUPED_MMA_STAGES = 3,
    GROUPED_MMA_THREADS = 128,
    GROUPED_MMA_BLOCKS = 2,                                        /* of an SM */
    GROUPED_MMA_OPERAND = GROUPED_MMA_TILE * GROUPED_MMA_STEP * 2, /* bytes */
    GROUPED_MMA_STAGE = 2 * GROUPED_MMA_OPERAND,
    GROUPED_MMA_SHARED = GROUPED_MMA_STAGES * GROUPED_MMA_STAGE,
};

/* As struct grouped_matmul_args and grouped_wgrad_args (src/ops/train_moe_args.h). */
struct grouped_matmul_kernel_args {
    int64_t n, k;
    const int32_t *group_offsets; /* [groups + 1] */
    const void *a;                /* rows; of wgrad dy */
    const void *b;                /* weights; of wgrad x */
    void *out;
    float *partials; /* wgrad: [splits][groups][n][k], or NULL: there is one split */
    int32_t groups, splits;
    int32_t transpose, add;
    int32_t tiles; /* along a row of results */
    uint32_t bf16; /* of grouped_any.cu: MATMUL_A, _B, _OUT */
};
SOL_STATIC_ASSERT(sizeof(struct grouped_matmul_kernel_args) == 80, "host and device agree");

#endif
