/* Arguments of the kernels of matmul, shared by host and device. */
#ifndef KERNELS_MATMUL_MATMUL_ARGS_H
#define KERNELS_MATMUL_MATMUL_ARGS_H

#include "tensor_map_args.h"
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
    float alpha, beta;
    int32_t transpose_a, transpose_b;
    uint32_t bf16; /* MATMUL_A.. */
    int32_t tiles; /* along n */
};
SOL_STATIC_ASSERT(sizeof(struct matmul_any_args) == 80, "host and device agree");

/* A block of matmul_wgmma.cu: 128 rows of results, 64 for each of two warpgroups; a cluster of two
 * has the same columns. Stages are 64 of k. Results leave shared memory in rows of up to 256 bytes,
 * which lie so many bytes behind each other against bank conflicts. */
enum {
    MATMUL_ROWS = 128,
    MATMUL_K = 64,
    MATMUL_CLUSTER = 2,
    MATMUL_THREADS = 384,
    MATMUL_OUT_STRIDE = 272,
    MATMUL_GROUP = 8, /* clusters of rows whose tiles are computed together */
    MATMUL_JOIN_THREADS = 256
};
#define MATMUL_STAGES(columns)      ((columns) == 256 ? 4 : 6)
#define MATMUL_STAGE_BYTES(columns) ((MATMUL_ROWS + (columns)) * MATMUL_K * 2)
#define MATMUL_SHARED(columns)                                                                     \
    (MATMUL_STAGES(columns) * (MATMUL_STAGE_BYTES(columns) + 16) + MATMUL_ROWS * MATMUL_OUT_STRIDE)

struct matmul_wgmma_args {
    struct tensor_map a, b; /* [batch][rows][columns] as they lie, in boxes of 64 columns */
    const void *add;        /* of out's type */
    void *out;
    int32_t m, n, batch, units; /* units: of MATMUL_K */
    float alpha, beta;
    int32_t bf16;   /* out and add are, else float32 */
    int32_t splits; /* parts of k. More than one: out is [splits][batch * m][n] */
    int32_t padding[20];
};
SOL_STATIC_ASSERT(sizeof(struct matmul_wgmma_args) == 384, "host and device agree");

/* out = alpha * the sum of parts + beta * add; a thread four numbers. */
struct matmul_join_args {
    int64_t count; /* of a part, a multiple of 4 */
    const float *parts;
    const void *add;
    void *out;
    float alpha, beta;
    int32_t splits, bf16;
};
SOL_STATIC_ASSERT(sizeof(struct matmul_join_args) == 48, "host and device agree");

#endif
