/* Arguments of grouped products of block-scaled operands on wgmma (grouped_wgmma.cuh), shared by
 * host and device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_WGMMA_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_WGMMA_ARGS_H

#include "grouped_gemm/grouped_gemm_args.h"

enum {
    GROUPED_PARTS_MAX = 40,               /* of a launch: what 4 KB of arguments hold */
    GROUPED_STEP = 128,                   /* columns of a step */
    GROUPED_EXTRA = 4,                    /* cost of a step beside its width */
    GROUPED_ROW_BYTES = 128,              /* 64 halves: a row as the tensor cores read it */
    GROUPED_KILO = 8 * GROUPED_ROW_BYTES, /* eight tokens by 64 columns, decoded */
};

static inline SOL_DEVICE int grouped_step_cost(int width)
{
    return width / 8 + GROUPED_EXTRA;
}

/* Some tokens of a product, c [m][n] = a [m][k] times b [n][k] transposed: `tiles` tiles of `width`
 * tokens from `token` on. Decoded activations are kilobytes as the tensor cores read them: those of
 * the first 64 columns, of all tokens, then those of the next. */
struct grouped_part {
    const uint8_t *a, *b, *a_scales, *b_scales;
    void *c;
    const float *bias, *factor; /* or NULL */
    int32_t m, n, k;
    uint32_t first; /* cost of the parts before */
    uint16_t width, tiles, token, steps;
    uint32_t at;      /* where the decoded activations begin, in kilobytes */
    uint32_t eights;  /* m / 8, rounded up */
    uint32_t decodes; /* eights; 0 where a part before decodes the same activations */
    uint32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct grouped_part) == 96, "host and device agree");

struct grouped_wgmma_args {
    int32_t n_parts, c_type;
    uint32_t cost;  /* of all parts */
    int32_t whole;  /* no tile is divided */
    int32_t scales; /* enum scale_layout */
    int32_t padding;
    uint8_t *decoded;
    float *partial;  /* a tile's sums for each block */
    uint32_t *words; /* of all blocks, then one for each block: GROUPED_WORDS */
    struct grouped_part part[GROUPED_PARTS_MAX];
};
SOL_STATIC_ASSERT(sizeof(struct grouped_wgmma_args) <= 4096, "as much as a launch takes");

/* Blocks at most; words of a stream's counters that they use, which are 0 at first, and where
 * nobody else writes. */
enum { GROUPED_BLOCKS_MAX = 160, GROUPED_WORDS = GROUPED_BLOCKS_MAX + 1 };

/* Every kernel: KIND(symbol, rows of 64 features for each of two warpgroups, tokens of a tile at
 * most, stages). */
#define GROUPED_WGMMA_KINDS(KIND)                                                                  \
    KIND(grouped_wgmma_128, 1, 128, 4)                                                             \
    KIND(grouped_wgmma_256, 2, 128, 4)

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
