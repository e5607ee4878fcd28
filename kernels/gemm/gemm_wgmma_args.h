/* Arguments of the products of many rows on wgmma (gemm_wgmma.cuh), shared by host and device. */
#ifndef KERNELS_GEMM_GEMM_WGMMA_ARGS_H
#define KERNELS_GEMM_GEMM_WGMMA_ARGS_H

#include "tensor_map_args.h"

/* Rows of weights of a warpgroup, and columns of a stage. */
enum { WGMMA_ROWS = 64, WGMMA_K = 64 };
/* Groups whose offsets a block keeps. */
enum { WGMMA_GROUPS_MAX = 512 };
/* Widths of tiles are multiples of this. A copy brings so many rows of x, or twice, four, eight
 * times as many: a thread that issues copies of 16 rows alone is slower than the tensor cores. */
enum { WGMMA_BOX = 16, WGMMA_BOXES = 4 };

struct gemm_wgmma_args {
    struct tensor_map w[2];      /* the second: up, where the first is gate */
    struct tensor_map scales[2]; /* MXFP4 */
    struct tensor_map
        x[WGMMA_BOXES];   /* rows in bf16, those of a group together; dense: the first */
    const float *bias[2]; /* of w; NULL: none */
    const int32_t *group_offsets;
    float *c;
    int32_t m, n, units, groups; /* units: of 64 columns */
    int32_t group_rows;          /* of w's map between two groups: tiles of 16 for MXFP4 */
    int32_t padding;
    float alpha, limit;                                 /* of swiglu */
    const void *plain_w[2], *plain_scales[2], *plain_x; /* what the maps describe */
};
SOL_STATIC_ASSERT(sizeof(struct gemm_wgmma_args) == 1152, "host and device agree");

/* Every kernel of gemm_wgmma.cuh: KIND(symbol, weights, gated, warpgroups that multiply, tokens of
 * a tile, stages, tokens whose results wait in shared memory, blocks of a cluster). Stages: what
 * fits in 227 KiB. Which one is chosen: src/ops/cuda/gemm_wgmma.c. */
#define WGMMA_DENSE_KINDS(KIND)                                                                    \
    KIND(gemm_wgmma_bf16_16, WEIGHT_BF16, false, 2, 16, 10, 16, 1)                                 \
    KIND(gemm_wgmma_bf16_32, WEIGHT_BF16, false, 2, 32, 9, 32, 1)                                  \
    KIND(gemm_wgmma_bf16_64, WEIGHT_BF16, false, 2, 64, 7, 64, 1)                                  \
    KIND(gemm_wgmma_bf16_128, WEIGHT_BF16, false, 2, 128, 5, 64, 1)                                \
    KIND(gemm_wgmma_bf16_160, WEIGHT_BF16, false, 2, 160, 5, 64, 2)                                \
    KIND(gemm_wgmma_bf16_192, WEIGHT_BF16, false, 2, 192, 4, 64, 2)                                \
    KIND(gemm_wgmma_bf16_256, WEIGHT_BF16, false, 2, 256, 4, 32, 2)
#define WGMMA_MXFP4_KINDS(KIND)                                                                    \
    KIND(gemm_wgmma_mxfp4_64, WEIGHT_MXFP4_TILES, false, 4, 64, 11, 32, 1)                         \
    KIND(gemm_wgmma_mxfp4_256, WEIGHT_MXFP4_TILES, false, 2, 256, 5, 64, 1)
#define WGMMA_MOE_UP_KINDS(KIND)                                                                   \
    KIND(moe_up_wgmma_mxfp4_64, WEIGHT_MXFP4_TILES, true, 4, 64, 11, 32, 1)                        \
    KIND(moe_up_wgmma_mxfp4_256, WEIGHT_MXFP4_TILES, true, 2, 256, 5, 64, 1)

/* Shared memory of a block: the tokens' rows, weights and scales of each stage; results; barriers
 * and the groups' offsets. */
#define WGMMA_W_BYTES(type)                                                                        \
    ((type) == WEIGHT_BF16 ? WGMMA_ROWS * WGMMA_K * 2 : WGMMA_ROWS * WGMMA_K / 2)
#define WGMMA_SCALES_BYTES(type) ((type) == WEIGHT_BF16 ? 0 : WGMMA_ROWS * 2)
/* Whole kilobytes, since the swizzle goes by addresses. */
#define WGMMA_STAGE_BYTES(type, warpgroups, tokens)                                                \
    (((tokens)*WGMMA_K * 2 + (warpgroups) * (WGMMA_W_BYTES(type) + WGMMA_SCALES_BYTES(type)) +     \
      1023) /                                                                                      \
     1024 * 1024)
/* Of a warpgroup. A token's 64 results take 4 words more, against bank conflicts. */
enum { WGMMA_OUT_STRIDE = 64 + 4 };
#define WGMMA_OUT_BYTES(tokens) ((tokens)*WGMMA_OUT_STRIDE * 4)
#define WGMMA_SHARED_BYTES(type, warpgroups, tokens, stages, out_tokens)                           \
    ((stages) * (WGMMA_STAGE_BYTES(type, warpgroups, tokens) + 16) +                               \
     (warpgroups)*WGMMA_OUT_BYTES(out_tokens) + (WGMMA_GROUPS_MAX + 1) * 4)

/* Rows of float32, gathered, to bf16; columns from k to k_padded become 0. */
struct round_rows_args {
    int64_t rows, k, k_padded;
    const float *a;
    const int32_t *a_rows; /* or NULL */
    uint16_t *out;         /* [rows][k_padded] */
};
SOL_STATIC_ASSERT(sizeof(struct round_rows_args) == 48, "host and device agree");

#endif
