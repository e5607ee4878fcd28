/* Arguments of the all-reduce of large parts between GPUs of one host, shared by host and device.
 *
 * Parts are rounded to bf16 and cut into tiles. Of two ranks each sends all of its tiles to the
 * other. Of more each tile has an owner, to whom the others send theirs, and who sends the sum
 * back.
 *
 * Each rank has a box in its memory, which the others write to: first words that tell how far a
 * tile has come, [2][ranks - 1][TILES_BLOCKS][TILES_OF_BLOCK], then tiles, as many. Tile number t
 * is of block t % blocks, alone; what a block has room for it does in a round, and counts its
 * rounds by itself in device memory. Rounds take the halves of the box in turn. Two are enough: a
 * block sends in round t when it has all tiles of round t - 1, so all others' block had begun that
 * round, and so ended round t - 2 (of a sum that comes back: all had sent what it is made of). */
#ifndef KERNELS_ALL_REDUCE_IN_TILES_ARGS_H
#define KERNELS_ALL_REDUCE_IN_TILES_ARGS_H

#include "types.h"

enum {
    TILES_RANKS = 8, /* at most */
    TILES_THREADS = 256,
    TILES_PIECE = 8, /* numbers, 16 bytes of bf16 */
    TILES_EACH = 4,  /* pieces of a thread in a tile, at most */
    TILES_BYTES = 2 * TILES_PIECE * TILES_EACH * TILES_THREADS,
    TILES_OF_BLOCK = 4, /* in a round */
    TILES_BLOCKS = 256, /* two for each multiprocessor of an H100 */
    TILES_SHARED = TILES_OF_BLOCK * TILES_BYTES,
};

struct tiles_args {
    float *part;   /* zeros behind the call */
    float *x;      /* which the sum is added to; both at multiples of 16 bytes */
    int64_t count; /* numbers, a multiple of TILES_PIECE */
    int32_t tiles; /* of TILES_PIECE * TILES_THREADS * each numbers */
    int32_t each;  /* 1 to TILES_EACH */
    int32_t rank, ranks;
    uint64_t limit_ns; /* of a wait for another rank */
    uint32_t *rounds;  /* [TILES_BLOCKS] so far */
    uint32_t *failed;  /* as in one_shot_args */
    void *boxes[TILES_RANKS];
};
SOL_STATIC_ASSERT(sizeof(struct tiles_args) == 128, "host and device agree");

/* Of a box: tiles, and its bytes. */
static inline SOL_DEVICE int64_t tiles_of_box(int ranks)
{
    return (int64_t)2 * (ranks - 1) * TILES_BLOCKS * TILES_OF_BLOCK;
}
static inline SOL_DEVICE int64_t tiles_box_bytes(int ranks)
{
    return tiles_of_box(ranks) * (TILES_BYTES + (int64_t)sizeof(uint32_t));
}

#endif
