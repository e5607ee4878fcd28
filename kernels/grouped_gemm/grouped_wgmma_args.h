/* Arguments of grouped products of block-scaled operands on wgmma (grouped_wgmma.cuh), shared by
 * host and device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_WGMMA_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_WGMMA_ARGS_H

#include "grouped_gemm/grouped_gemm_args.h"
#include "tensor_map_args.h"

enum {
    GROUPED_PARTS_MAX = 32,                 /* of a launch: a lane of a warp looks at each */
    GROUPED_STEP = 128,                     /* columns of a step */
    GROUPED_ROW_BYTES = 128,                /* 64 halves: a row as the tensor cores read it */
    GROUPED_KILO = 8 * GROUPED_ROW_BYTES,   /* eight tokens by 64 columns, decoded */
    GROUPED_EIGHT_BYTES = 2 * GROUPED_KILO, /* eight tokens by a step, decoded */
};

/* Some tokens of a product (gated: of two, whose results swiglu makes one of), c [m][n] = a [m][k]
 * times b [n][k] transposed: `tiles` tiles of `width` tokens from `token` on. Decoded activations
 * are as the tensor cores read them: of each step, two kilobytes for each eight tokens. Costs are
 * cycles by 16, or what else the host takes them for. */
struct grouped_part {
    const uint8_t *a, *a_scales, *b_scales, *up_scales; /* where weights are tiles, those */
    void *c;
    const float *bias, *up_bias, *factor, *up_factor; /* or NULL */
    int32_t m, n, k;
    uint32_t first; /* cost of the parts before */
    uint16_t width, tiles, token, steps;
    uint32_t map;     /* codes of b; those of up are the next one */
    uint32_t at;      /* where the decoded activations begin, in GROUPED_EIGHT_BYTES */
    uint32_t eights;  /* m / 8, rounded up */
    uint32_t decodes; /* eights; 0 where a part before decodes the same activations */
    uint32_t before;  /* eights by steps that the parts before decode */
    uint32_t step_cost, tile_cost;
    uint32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct grouped_part) == 128, "host and device agree");

/* Blocks at most; words of a stream's counters that they use, which are 0 at first, and where
 * nobody else writes. */
enum { GROUPED_BLOCKS_MAX = 160, GROUPED_WORDS = GROUPED_BLOCKS_MAX + 1 };

struct grouped_wgmma_args {
    struct tensor_map map[2 * GROUPED_PARTS_MAX]; /* boxes of a step by a tile's features */
    struct grouped_part part[GROUPED_PARTS_MAX];
    int32_t n_parts, c_type;
    int32_t scales;  /* enum scale_layout */
    int32_t weights; /* enum weight_layout */
    uint32_t decode; /* eights by steps, of all parts */
    uint8_t *decoded;
    float *partial;     /* a tile's sums for each block */
    uint32_t *words;    /* of all blocks, then one for each block: GROUPED_WORDS */
    float alpha, limit; /* of swiglu */
    /* Of each block: the cost before its work, and the part where that begins. */
    uint32_t begin[GROUPED_BLOCKS_MAX + 1];
    uint8_t begin_part[GROUPED_BLOCKS_MAX];
    uint32_t padding[2];
};
SOL_STATIC_ASSERT(sizeof(struct grouped_wgmma_args) % 64 == 0, "no hidden padding");

/* Every kernel: KIND(symbol, rows of 64 weights for each of two warpgroups, tokens of a tile at
 * most, stages, matrices of weights that the rows are of). */
#define GROUPED_WGMMA_KINDS(KIND)                                                                  \
    KIND(grouped_wgmma_128, 1, 128, 5, 1)                                                          \
    KIND(grouped_wgmma_256, 2, 128, 4, 1)                                                          \
    KIND(grouped_wgmma_gated, 2, 128, 4, 2)

/* Widths of tiles, of the one kernel and of the other. With more of them the compiler lets products
 * wait for each other (C7512). */
#define GROUPED_WIDTHS_1(WIDTH)                                                                    \
    WIDTH(16) WIDTH(40) WIDTH(64) WIDTH(72) WIDTH(80) WIDTH(88) WIDTH(96) WIDTH(128)
#define GROUPED_WIDTHS_2(WIDTH) WIDTH(64) WIDTH(80) WIDTH(88) WIDTH(96) WIDTH(128)

/* Threads of a block: a warpgroup that copies, two that multiply. */
enum {
    GROUPED_WARPGROUP = 128,
    GROUPED_MULTIPLY_THREADS = 2 * GROUPED_WARPGROUP,
    GROUPED_THREADS = GROUPED_WARPGROUP + GROUPED_MULTIPLY_THREADS,
};

/* Shared memory: stages, each of activations as halves, codes and scales of weights; results; two
 * barriers for each stage, and one for the sums of other blocks. */
#define GROUPED_FEATURES(rows)     (128 * (rows))               /* of a tile */
#define GROUPED_HALF_BYTES(tokens) ((tokens)*GROUPED_ROW_BYTES) /* 64 columns */
#define GROUPED_SCALES_BYTES       (2 * ATOM_BYTES)             /* of 128 features */
#define GROUPED_CODES_AT(tokens)   (2 * GROUPED_HALF_BYTES(tokens))
#define GROUPED_SCALES_AT(rows, tokens)                                                            \
    (GROUPED_CODES_AT(tokens) + GROUPED_FEATURES(rows) * GROUPED_STEP / 2)
#define GROUPED_STAGE_BYTES(rows, tokens)                                                          \
    (GROUPED_SCALES_AT(rows, tokens) + GROUPED_SCALES_BYTES * (rows))
#define GROUPED_OUT_AT(rows, tokens, stages) ((stages)*GROUPED_STAGE_BYTES(rows, tokens))
#define GROUPED_OUT_TOKENS                   64 /* results of so many tokens wait for a warpgroup */
#define GROUPED_OUT_BYTES                    (GROUPED_OUT_TOKENS * GROUPED_ROW_BYTES)
#define GROUPED_BARRIERS_AT(rows, tokens, stages)                                                  \
    (GROUPED_OUT_AT(rows, tokens, stages) + 2 * GROUPED_OUT_BYTES)
#define GROUPED_SUMS_BARRIER_AT(rows, tokens, stages)                                              \
    (GROUPED_BARRIERS_AT(rows, tokens, stages) + 2 * 8 * (stages))
#define GROUPED_SHARED_BYTES(rows, tokens, stages)                                                 \
    (GROUPED_SUMS_BARRIER_AT(rows, tokens, stages) + 8)
/* Of a block's sums. */
#define GROUPED_PARTIAL_BYTES(rows, tokens) (GROUPED_FEATURES(rows) * (tokens)*4)

#endif
