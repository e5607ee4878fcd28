/* Arguments of the kernels that measure a GPU's limits, shared by host and device. */
#ifndef KERNELS_CEILING_CEILING_ARGS_H
#define KERNELS_CEILING_CEILING_ARGS_H

#include "types.h"

/* Passes `rounds` times over `count` units of 16 bytes. */
struct ceiling_memory_args {
    const void *from;
    void *to; /* of a read: where a value goes that never comes */
    int64_t count;
    int64_t rounds;
};
SOL_STATIC_ASSERT(sizeof(struct ceiling_memory_args) == 32, "host and device agree");

enum {                          /* of the loops of math.cu and wgmma.cu */
       CEILING_THREADS = 256,   /* a block */
       CEILING_FMA_UNITS = 16,  /* multiply-adds of a thread in an iteration */
       CEILING_MMA_TILES = 8,   /* products of a warp */
       CEILING_WGMMA_STEPS = 8, /* products of a warpgroup */
};

struct ceiling_math_args {
    int64_t iterations;
    float factor; /* near 1, so that numbers stay numbers */
    uint32_t seed;
    void *sink;
};
SOL_STATIC_ASSERT(sizeof(struct ceiling_math_args) == 24, "host and device agree");

#endif
