/* Arguments of attention_prefill.cu and attention_mma.cu, shared by host and device. */
#ifndef KERNELS_ATTENTION_ATTENTION_PREFILL_ARGS_H
#define KERNELS_ATTENTION_ATTENTION_PREFILL_ARGS_H

#include "cache_args.h"
#include "tensor_map_args.h"

enum {
    PREFILL_DIM = 64,   /* head_dim */
    PREFILL_HEADS = 8,  /* query heads of a key head */
    PREFILL_GROUPS = 3, /* warpgroups that compute */
    PREFILL_ROWS = 24,  /* rows of a tile: 8 for each of them, with 8 heads each */
    PREFILL_KEYS = 128, /* positions of a step */
    PREFILL_STAGES = 4, /* steps in shared memory; a power of two */
    PREFILL_THREADS = 512,
    PREFILL_FINISH_THREADS = 384,
    PREFILL_LIST_THREADS = 512,
    PREFILL_BLOCKS = 132,    /* of the grid at most: the SMs of an H100 */
    PREFILL_PART = 36 * 128, /* floats of a warpgroup's part of a tile: sums, tops, totals */
    PREFILL_SHARED =
        (2 * PREFILL_STAGES * PREFILL_KEYS + 64 * PREFILL_GROUPS) * PREFILL_DIM * 2 + 1024,
};

/* The same of attention_mma.cu, whose four warps have two rows of each of two groups. 48 KiB of
 * shared memory: two blocks where an SM has 100. */
enum {
    MMA_PREFILL_GROUPS = 2,
    MMA_PREFILL_ROWS = 16,
    MMA_PREFILL_KEYS = 64,
    MMA_PREFILL_STAGES = 3,
    MMA_PREFILL_THREADS = 128,
    MMA_PREFILL_BLOCKS_PER_SM = 2,
    MMA_PREFILL_BLOCKS = 384,
    MMA_PREFILL_SHARED = 2 * MMA_PREFILL_STAGES * MMA_PREFILL_KEYS * PREFILL_DIM * 2,
};

/* Neighbouring rows of one sequence, at neighbouring positions, with all heads. */
struct prefill_tile {
    int32_t row, count, sequence, position; /* of the first row */
    int32_t begin;                          /* first position read, where a block or page begins */
    int32_t steps;                          /* of step_keys positions from there */
    int32_t start; /* work of the tiles before it: each costs its steps and TILE_WORK */
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct prefill_tile) == 32, "host and device agree");
SOL_STATIC_ASSERT((int)PREFILL_KEYS == (int)CACHE_PAGE, "a step reads one page");

struct attention_prefill_args {
    struct tensor_map k, v; /* boxes of one cache block: [64 dimensions][32], [32][64 dimensions] */
    struct cache_args cache;
    const int32_t *position, *sequence; /* [m] */
    const float *q;                     /* [m][n_heads][64] */
    const float *sinks;                 /* [n_heads], or NULL: none */
    void *out;                          /* as q, float32, or bf16 where `narrow` */
    struct prefill_tile *tiles;         /* [m], work of attention_prefill_tiles */
    int32_t *totals; /* number of tiles; their work, for one key head; results in `again` */
    int32_t *again;  /* [m x n_heads] row x n_heads + head of results that are not finite */
    float *partial;  /* [2 x blocks][groups][PREFILL_PART] */
    int32_t m, n_heads, window;
    float scale;
    int32_t blocks;               /* of the grid of attention_prefill */
    int32_t tile_rows, step_keys; /* PREFILL_ROWS and PREFILL_KEYS, or those of attention_mma */
    int32_t narrow;
    int32_t texts; /* so many texts at most are left out: attention_decode has them (texts.cuh) */
    int32_t padding[3];
};
SOL_STATIC_ASSERT(sizeof(struct attention_prefill_args) == 448, "host and device agree");

#endif
