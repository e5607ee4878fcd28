/* Arguments of the all-reduce between GPUs of one host, shared by host and device.
 *
 * Each rank has a box in its memory, which the others write to. A box has room for what every rank
 * sends in two calls that follow each other: [2][ranks][ONE_SHOT_BLOCKS][ONE_SHOT_SLOTS] slots. A
 * slot is 16 bytes for 8 bytes of numbers: each half has 4 of them, and the number of the call.
 * Block b of a call writes to the slots of block b alone, and counts its calls by itself, so that
 * blocks need not wait for each other.
 *
 * Why two are enough: a block sends for call t when it has everything of call t - 1, so the others'
 * block had begun that call, and so ended call t - 2, whose slots these are. (A kernel that starts
 * early sends behind wait_for_input.) */
#ifndef KERNELS_ALL_REDUCE_ONE_SHOT_ARGS_H
#define KERNELS_ALL_REDUCE_ONE_SHOT_ARGS_H

#include "types.h"

enum {
    ONE_SHOT_RANKS = 8, /* at most */
    ONE_SHOT_THREADS = 128,
    ONE_SHOT_STEPS = 4, /* slots of a thread, at most */
    ONE_SHOT_SLOTS = ONE_SHOT_THREADS * ONE_SHOT_STEPS,
    ONE_SHOT_BLOCKS = 128,
    ONE_SHOT_BYTES = ONE_SHOT_BLOCKS * ONE_SHOT_SLOTS * 8, /* of numbers, at most */
    ONE_SHOT_SLOT = 16,                                    /* bytes */
    ONE_SHOT_STOP = 255, /* *failed: the host says that nobody is to wait any longer */
};

struct one_shot_args {
    void *x;         /* in place; zeros where `onto` gets the sum */
    void *onto;      /* numbers as x has them, to which the sum is added; or NULL */
    int64_t count;   /* numbers */
    int32_t slots;   /* of a block: a multiple of ONE_SHOT_THREADS */
    int32_t aligned; /* x and onto, to 8 bytes */
    int32_t rank, ranks;
    uint64_t limit_ns; /* of a wait for another rank */
    uint32_t *calls;   /* [ONE_SHOT_BLOCKS] so far */
    uint32_t *failed;  /* in the host's memory: 1 + the rank that was waited for in vain; or 0 */
    void *boxes[ONE_SHOT_RANKS]; /* of all ranks */
};
SOL_STATIC_ASSERT(sizeof(struct one_shot_args) == 128, "host and device agree");

#endif
