/* Arguments of the kernels of matmul, shared by host and device. */
#ifndef KERNELS_MATMUL_MATMUL_ARGS_H
#define KERNELS_MATMUL_MATMUL_ARGS_H

#include "types.h"

/* A block of matmul_any.cu: a tile of the results, a thread 4 x 4 of them, steps of k. */
enum { MATMUL_ANY_TILE = 64, MATMUL_ANY_STEP = 16, MATMUL_ANY_THREADS = 256 };

/* Which matrices are bf16; all others are float32. */
enum { MATMUL_A = 1, MATMUL_B = 2, MATMUL_ADD = 4, MATMUL_OUT = 8 };

/* As struct matmul_args (src/ops/train_args.h). */
struct matmul_any_args {
    int64_t m, n, k;
    const void *a, *b, *add;
    void *out;
    const float *factor_a, *factor_b; /* or NULL */
    float alpha, beta;
    int32_t transpose_a, transpose_b;
    uint32_t bf16; /* MATMUL_A.. */
    int32_t tiles; /* along n */
};
SOL_STATIC_ASSERT(sizeof(struct matmul_any_args) == 96, "host and device agree");

#endif
