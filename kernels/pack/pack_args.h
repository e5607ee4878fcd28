/* Arguments of the kernels that lay weights out for the others, shared by host and device. */
#ifndef KERNELS_PACK_PACK_ARGS_H
#define KERNELS_PACK_PACK_ARGS_H

#include "types.h"

/* GGUF's MXFP4 blocks (scale, 16 bytes) into aligned nibbles and scales, each in the order of
 * blocks. */
struct pack_mxfp4_args {
    int64_t count;       /* blocks */
    const uint8_t *from; /* [count][17] */
    uint8_t *nibbles;    /* [count][16], 16-byte aligned */
    uint8_t *scales;     /* [count] */
};
SOL_STATIC_ASSERT(sizeof(struct pack_mxfp4_args) == 32, "host and device agree");

#endif
