/* Arguments of the products of many rows on mma.sync (gemm_mma.cuh), shared by host and device. */
#ifndef KERNELS_GEMM_GEMM_MMA_ARGS_H
#define KERNELS_GEMM_GEMM_MMA_ARGS_H

#include "format_args.h"

/* A block: threads, rows of weights, tokens at most; blocks of an SM. Widths of tiles are multiples
 * of MMA_WIDTH. */
enum { MMA_THREADS = 128, MMA_ROWS = 128, MMA_TOKENS = 128, MMA_BLOCKS = 2, MMA_WIDTH = 32 };

struct gemm_mma_args {
    const void *w[2], *scales[2]; /* the second: up, where the first is gate; scales: MXFP4 */
    const float *bias[2];         /* of w; NULL: none */
    const int32_t *group_offsets; /* or NULL */
    const uint16_t *x;            /* bf16 [m + MMA_TOKENS][k_padded] */
    float *c;                     /* [m][n] */
    int32_t m, n, k, k_padded;    /* k_padded: a multiple of 64; zeros from k on in x */
    int32_t groups;
    int32_t tokens;     /* of a tile, at most */
    float alpha, limit; /* of swiglu */
};
SOL_STATIC_ASSERT(sizeof(struct gemm_mma_args) == 104, "host and device agree");

/* Every kernel of gemm_mma.cuh: KIND(symbol, weights, gated, columns of a stage, stages). Shared
 * memory: 96 KiB, which every card has for one block and an H100 for two; the narrow one 64, of
 * which an A100 has room for two (H100, 2048x4096x2880: 389 TFLOP/s, narrow 357 with 4 stages and
 * 356 with 6); MXFP4 61, where 2, 3 and 4 stages are equally fast. Which one is chosen:
 * src/ops/cuda/gemm_mma_cuda.c. */
#define MMA_DENSE_KINDS(KIND)  KIND(gemm_mma_bf16, DTYPE_BF16, false, 64, 3)
#define MMA_NARROW_KINDS(KIND) KIND(gemm_mma_bf16_narrow, DTYPE_BF16, false, 32, 4)
#define MMA_MXFP4_KINDS(KIND)  KIND(gemm_mma_mxfp4, TILES_MXFP4, false, 64, 3)
#define MMA_MOE_UP_KINDS(KIND) KIND(moe_up_mma_mxfp4, TILES_MXFP4, true, 64, 3)

/* Shared memory: the tokens' rows, weights and scales (padded to whole lines) of each stage. */
#define MMA_X_BYTES(columns) (MMA_TOKENS * (columns)*2)
#define MMA_W_BYTES(type, columns)                                                                 \
    (TYPE_TILE_ROWS(type)                                                                          \
         ? TYPE_TILES_OVER(type, MMA_ROWS) * UNIT_BYTES * (columns) / UNIT_COLUMNS                 \
         : MMA_ROWS * (columns)*2)
#define MMA_SCALES_BYTES(type, columns)                                                            \
    (TYPE_TILE_ROWS(type)                                                                          \
         ? TYPE_TILES_OVER(type, MMA_ROWS) * TYPE_UNIT_SCALES(type) * (columns) / UNIT_COLUMNS     \
         : 0)
#define MMA_STAGE_BYTES(type, columns)                                                             \
    (MMA_X_BYTES(columns) + MMA_W_BYTES(type, columns) + MMA_SCALES_BYTES(type, columns))
#define MMA_SHARED_BYTES(type, columns, stages) ((stages)*MMA_STAGE_BYTES(type, columns))

#endif
