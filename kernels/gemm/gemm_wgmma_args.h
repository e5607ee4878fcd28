/* Arguments of the products of many rows on wgmma (gemm_wgmma.cuh), shared by host and device. */
#ifndef KERNELS_GEMM_GEMM_WGMMA_ARGS_H
#define KERNELS_GEMM_GEMM_WGMMA_ARGS_H

#include "cache_args.h"
#include "format_args.h"
#include "tensor_map_args.h"

/* Threads and rows of weights of a warpgroup, and columns of a stage. */
enum { WARPGROUP = 128, WGMMA_ROWS = 64, WGMMA_K = 64 };
/* Groups whose offsets a block keeps. */
enum { WGMMA_GROUPS_MAX = 512 };
/* Heads of q, k and v together, and room behind them for the rest of a tile. */
enum { WGMMA_HEADS_MAX = 124, WGMMA_HEADS_ROOM = 128, WGMMA_HEAD_WHICH = 1 << 14 };
/* Widths of tiles are multiples of this. A copy brings so many rows of x, or twice, four, eight
 * times as many: a thread that issues copies of 16 rows alone is slower than the tensor cores. */
enum { WGMMA_BOX = 16, WGMMA_BOXES = 4 };

/* What becomes of the results. */
enum wgmma_result {
    WGMMA_F32,
    WGMMA_ADDED, /* to what c holds */
    WGMMA_BF16,  /* n is a multiple of 64: rows are the operand of another product */
    /* The features are those of q, k and v, heads of 64: q and k are rotated, k and v go to the
     * cache. A warpgroup has a head, and a thread of it dimensions d and d + 32. */
    WGMMA_HEADS,
};

/* What activations are. */
enum wgmma_rows {
    WGMMA_ROWS_BF16,
    /* Numbers of -127 to 127 over one scale (i8_rows.cu), for weights in MXFP4, which then are
     * whole numbers over one scale too (i8_weights.cuh). */
    WGMMA_ROWS_I8,
};
/* Rows of x come in boxes of 128 bytes of each: 64 columns in bf16, 128 in int8. A stage has one,
 * but two where tokens are few, that is with more than three warpgroups: then what a stage costs
 * beside its products counts. WGMMA_UNITS: of 64 columns, in a stage. */
enum { WGMMA_ROW_BYTES = 128 };
#define WGMMA_BOXES_OF_X(x, warpgroups) ((x) == WGMMA_ROWS_BF16 && (warpgroups) > 3 ? 2 : 1)
#define WGMMA_UNITS(x, warpgroups)      ((x) == WGMMA_ROWS_I8 || (warpgroups) > 3 ? 2 : 1)

/* Of a row in int8: what its numbers are multiplied by, and their sum. */
struct i8_row {
    float scale;
    int32_t sum;
};

struct gemm_wgmma_args {
    struct tensor_map w[3];      /* gate and up, or q, k and v: rows of bf16 in five dimensions */
    struct tensor_map scales[3]; /* of MXFP4 and Q8_0 */
    struct tensor_map
        x[WGMMA_BOXES];   /* rows in bf16, those of a group together; dense: the first */
    const float *bias[3]; /* of w; NULL: none */
    const int32_t *group_offsets;
    void *c;                     /* float32 or bf16 */
    int32_t m, n, units, groups; /* units: of 64 columns */
    int32_t group_rows;          /* of w's map between two groups: tiles of MXFP4 and Q8_0 */
    int32_t padding;
    float alpha, limit;                                 /* of swiglu */
    const void *plain_w[2], *plain_scales[2], *plain_x; /* what the maps describe */
    /* WGMMA_HEADS. */
    struct cache_args cache;
    const float *turns;        /* [m][32] pairs: cosine and sine of a row's rotations */
    const int32_t *cache_rows; /* [m] of the first head: cache_row */
    /* Which of q, k and v (0, 1, 2) each 64 features are of, times WGMMA_HEAD_WHICH, and the head.
     */
    uint16_t heads[WGMMA_HEADS_ROOM];
    /* WGMMA_ROWS_I8: of the rows of x, 16 more than there are; of those of w, a byte a row of its
     * tiles, the largest scale (pack/mxfp4_tiles.h). */
    const struct i8_row *x_rows;
    const uint8_t *largest[2];
    /* WGMMA_BF16: c, a warpgroup's features of WGMMA_BOX rows. WGMMA_HEADS: 32 of them, of rows as
     * many as wait in shared memory. */
    struct tensor_map out;
};
SOL_STATIC_ASSERT(sizeof(struct gemm_wgmma_args) == 1920, "host and device agree");

/* Every kernel of gemm_wgmma.cuh: KIND(symbol, weights, gated, warpgroups that multiply, tokens of
 * a tile, stages, tokens whose results wait in shared memory, blocks of a cluster that share rows
 * of x, and those that share the columns of a tile: one of the two is 1). Stages: what fits in
 * 227 KiB. Which one is chosen: src/ops/cuda/wgmma_product.c. */
#define WGMMA_DENSE_SIZES(KIND, name)                                                              \
    KIND(name##_16, DTYPE_BF16, false, 2, 16, 10, 16, 1, 1)                                        \
    KIND(name##_32, DTYPE_BF16, false, 2, 32, 9, 32, 1, 1)                                         \
    KIND(name##_64, DTYPE_BF16, false, 2, 64, 7, 64, 1, 1)                                         \
    KIND(name##_128, DTYPE_BF16, false, 2, 128, 5, 64, 1, 1)                                       \
    KIND(name##_160, DTYPE_BF16, false, 2, 160, 5, 80, 2, 1)                                       \
    KIND(name##_192, DTYPE_BF16, false, 2, 192, 4, 64, 2, 1)                                       \
    KIND(name##_256, DTYPE_BF16, false, 2, 256, 4, 32, 2, 1)
/* Few tokens, and not a tile for each SM. */
#define WGMMA_HEADS_SHARED_SIZES(KIND, name) KIND(name##_32, DTYPE_BF16, false, 3, 32, 7, 8, 1, 4)
#define WGMMA_ADDED_SHARED_SIZES(KIND, name)                                                       \
    KIND(name##_32, DTYPE_BF16, false, 2, 32, 10, 8, 1, 4)                                         \
    KIND(name##_64, DTYPE_BF16, false, 2, 64, 8, 16, 1, 4)                                         \
    KIND(name##_128, DTYPE_BF16, false, 2, 128, 4, 32, 1, 4)
#define WGMMA_Q8_0_SIZES(KIND, name)                                                               \
    KIND(name##_16, TILES_Q8_0, false, 2, 16, 18, 16, 1, 1)                                        \
    KIND(name##_32, TILES_Q8_0, false, 2, 32, 15, 32, 1, 1)                                        \
    KIND(name##_64, TILES_Q8_0, false, 2, 64, 11, 64, 1, 1)                                        \
    KIND(name##_128, TILES_Q8_0, false, 2, 128, 7, 64, 1, 1)                                       \
    KIND(name##_160, TILES_Q8_0, false, 2, 160, 6, 80, 2, 1)                                       \
    KIND(name##_192, TILES_Q8_0, false, 2, 192, 5, 64, 2, 1)                                       \
    KIND(name##_256, TILES_Q8_0, false, 2, 256, 5, 32, 2, 1)
#define WGMMA_MXFP4_SIZES(KIND, name, gated)                                                       \
    KIND(name##_64, TILES_MXFP4, gated, 6, 64, 4, 32, 1, 1)                                        \
    KIND(name##_256, TILES_MXFP4, gated, 2, 256, 5, (gated) ? 128 : 64, 1, 1)
#define WGMMA_MOE_SIZES(KIND, name, gated)                                                         \
    KIND(name##_64, TILES_MXFP4, gated, 6, 64, 4, 32, 1, 1)                                        \
    KIND(name##_128, TILES_MXFP4, gated, 4, 128, 4, (gated) ? 32 : 16, 1, 1)                       \
    KIND(name##_160, TILES_MXFP4, gated, 3, 160, 7, (gated) ? 64 : 32, 1, 1)                       \
    KIND(name##_256, TILES_MXFP4, gated, 2, 256, 5, (gated) ? 128 : 64, 1, 1)
#define WGMMA_I8_SIZES(KIND, name, gated) /* WGMMA_ROWS_I8 */                                      \
    KIND(name##_256, TILES_MXFP4, gated, 2, 256, 4, (gated) ? 128 : 64, 1, 1)                      \
    KIND(name##_320, TILES_MXFP4, gated, 2, 320, 3, (gated) ? 128 : 64, 1, 1)
#define WGMMA_DENSE_KINDS(KIND)   WGMMA_DENSE_SIZES(KIND, gemm_wgmma_bf16)
#define WGMMA_Q8_0_KINDS(KIND)    WGMMA_Q8_0_SIZES(KIND, gemm_wgmma_q8_0)
#define WGMMA_ATTN_IN_KINDS(KIND) /* WGMMA_HEADS */                                                \
    WGMMA_DENSE_SIZES(KIND, attn_in_wgmma_bf16)                                                    \
    WGMMA_Q8_0_SIZES(KIND, attn_in_wgmma_q8_0)                                                     \
    WGMMA_HEADS_SHARED_SIZES(KIND, attn_in_wgmma_bf16_shared)
#define WGMMA_ATTN_OUT_KINDS(KIND) /* WGMMA_ADDED */                                               \
    WGMMA_DENSE_SIZES(KIND, attn_out_wgmma_bf16)                                                   \
    WGMMA_Q8_0_SIZES(KIND, attn_out_wgmma_q8_0)                                                    \
    WGMMA_ADDED_SHARED_SIZES(KIND, attn_out_wgmma_bf16_shared)
#define WGMMA_MXFP4_KINDS(KIND)    WGMMA_MXFP4_SIZES(KIND, gemm_wgmma_mxfp4, false)
#define WGMMA_MOE_UP_KINDS(KIND)   WGMMA_MXFP4_SIZES(KIND, moe_up_wgmma_mxfp4, true)
#define WGMMA_MOE_KINDS_UP(KIND)   WGMMA_MOE_SIZES(KIND, moe_wgmma_up, true)      /* WGMMA_BF16 */
#define WGMMA_MOE_KINDS_DOWN(KIND) WGMMA_MOE_SIZES(KIND, moe_wgmma_down, false)   /* WGMMA_BF16 */
#define WGMMA_I8_KINDS_UP(KIND)    WGMMA_I8_SIZES(KIND, moe_wgmma_i8_up, true)    /* likewise */
#define WGMMA_I8_KINDS_DOWN(KIND)  WGMMA_I8_SIZES(KIND, moe_wgmma_i8_down, false) /* likewise */

/* Shared memory of a block: the tokens' rows, weights and scales of each stage; results; barriers
 * and the groups' offsets. */
#define WGMMA_W_BYTES(type)                                                                        \
    (TYPE_TILE_ROWS(type) ? TYPE_TILES_OVER(type, WGMMA_ROWS) * UNIT_BYTES                         \
                          : WGMMA_ROWS * WGMMA_K * 2)
#define WGMMA_SCALES_BYTES(type)                                                                   \
    (TYPE_TILE_ROWS(type) ? TYPE_TILES_OVER(type, WGMMA_ROWS) * TYPE_UNIT_SCALES(type) : 0)
/* Whole kilobytes, since the swizzle goes by addresses. */
#define WGMMA_STAGE_BYTES(type, x, warpgroups, tokens)                                             \
    (((tokens)*WGMMA_ROW_BYTES * WGMMA_BOXES_OF_X(x, warpgroups) +                                 \
      (warpgroups)*WGMMA_UNITS(x, warpgroups) * (WGMMA_W_BYTES(type) + WGMMA_SCALES_BYTES(type)) + \
      1023) /                                                                                      \
     1024 * 1024)
/* Of a warpgroup: a token's results take 4 words more than they are, against bank conflicts. */
#define WGMMA_OUT_STRIDE(features)     ((features) + 4)
#define WGMMA_OUT_BYTES(gated, tokens) ((tokens)*WGMMA_OUT_STRIDE((gated) ? 32 : 64) * 4)
/* Tokens of a tile that one of the blocks which share its columns finishes, at most; the sums of
 * these tokens that it gets from the others. */
#define WGMMA_SHARE_TOKENS(tokens, shares) (((tokens) / 8 + (shares)-1) / (shares)*8)
#define WGMMA_PARTS_BYTES(warpgroups, tokens, shares)                                              \
    (((shares)-1) * (warpgroups)*WGMMA_SHARE_TOKENS(tokens, shares) * WGMMA_ROWS * 4)
#define WGMMA_SHARED_BYTES(type, x, gated, warpgroups, tokens, stages, out_tokens, shares)         \
    ((stages) * (WGMMA_STAGE_BYTES(type, x, warpgroups, tokens) + 16) +                            \
     (warpgroups)*WGMMA_OUT_BYTES(gated, out_tokens) + (WGMMA_GROUPS_MAX + 1) * 4 +                \
     ((shares) > 1 ? WGMMA_PARTS_BYTES(warpgroups, tokens, shares) + 8 : 0) +                      \
     ((x) == WGMMA_ROWS_I8 ? (warpgroups)*I8_ROWS_BYTES(tokens) : 0))

/* Of a warpgroup: struct i8_row of each token, and two biases of each thread. */
#define I8_ROWS_BYTES(tokens) (((tokens) + WARPGROUP) * 8)

enum { ROUND_THREADS = 128 };

/* Rows of float32, gathered, to bf16; columns from k to k_padded become 0. gather_rows: they are
 * bf16 already, and nothing is padded. */
struct round_rows_args {
    int64_t rows, k, k_padded;
    const void *a;
    const int32_t *a_rows; /* or NULL */
    uint16_t *out;         /* [rows][k_padded] */
};
SOL_STATIC_ASSERT(sizeof(struct round_rows_args) == 48, "host and device agree");

#endif
