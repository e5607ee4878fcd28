/* Arguments of the kernels of attention, shared by host and device. */
#ifndef KERNELS_ATTENTION_ATTENTION_ARGS_H
#define KERNELS_ATTENTION_ATTENTION_ARGS_H

#include "cache_args.h"
#include "counters_args.h"

/* attention_any: head_dim, and query heads of a key head, a warp each. */
enum { ATTENTION_DIM_MAX = 128, ATTENTION_HEADS_MAX = 16 };

enum {
    DECODE_DIM = 64,   /* head_dim */
    DECODE_HEADS = 8,  /* query heads of a key head at most */
    DECODE_BLOCKS = 2, /* on an SM */
    DECODE_ROWS = 128,
    DECODE_ROWS_ALONE = 512, /* where each warp has pieces of its own */
    DECODE_PIECES = 32,      /* that the positions of a row are cut into at most, */
    /* and those of all rows, if all were so long */
    DECODE_PIECES_ALL = DECODE_ROWS * DECODE_PIECES,
    DECODE_PART =
        DECODE_HEADS *
        (DECODE_DIM + 2), /* floats of a piece: sums of the heads, their tops and totals */
    DECODE_WARPS = 4,
    DECODE_WARPS_WIDE = 8, /* where a block has an SM for itself */
    DECODE_STAGES = 3,     /* cache blocks under way, a warp; */
    DECODE_STAGES_FEW = 2, /* of wide blocks, and where shared memory is small */
    DECODE_STAGE = 2 * DECODE_DIM * CACHE_BLOCK * 2, /* keys and values */
    DECODE_END = DECODE_PART * 4,                    /* a warp's part at the end of a piece */
};

struct attention_kernel_args {
    struct cache_args cache;
    int64_t n_heads, window;
    const int32_t *position, *sequence; /* [rows] */
    const float *q;                     /* [rows][n_heads][head_dim] */
    const float *sinks;                 /* [n_heads], or NULL: none */
    void *out;                          /* as q; attention_decode: bf16 where `narrow` */
    float *partial;     /* attention_decode: [rows][n_kv_heads][pieces][DECODE_PART] */
    uint32_t *counters; /* attention_decode: of the stream */
    float scale;
    int32_t rows;
    int32_t piece_blocks; /* attention_decode: cache blocks of a piece at least */
    int32_t stages;       /* attention_decode */
    int32_t narrow;
    int32_t pieces; /* attention_decode: that the positions of a row are cut into at most */
    int32_t texts;  /* attention_decode: of the rows, only those that go on by themselves, and of
                       them the first DECODE_ROWS_ALONE (texts.cuh) */
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct attention_kernel_args) == 168, "host and device agree");

#endif
