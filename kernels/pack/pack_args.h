/* Arguments of the kernels that lay weights out for the others, shared by host and device. */
#ifndef KERNELS_PACK_PACK_ARGS_H
#define KERNELS_PACK_PACK_ARGS_H

#include "types.h"

/* GGUF's MXFP4 blocks (scale, 16 bytes) of consecutive rows into tiles (mxfp4_tiles.h). */
struct pack_mxfp4_args {
    int64_t rows, columns; /* columns: a multiple of 32 */
    const uint8_t *from;   /* [rows][columns / 32][17] */
    uint8_t *tiles;        /* [tile_count(rows)][tile_bytes(columns)] */
    uint8_t *scales;       /* [tile_count(rows)][tile_scales_bytes(columns)] */
};
SOL_STATIC_ASSERT(sizeof(struct pack_mxfp4_args) == 40, "host and device agree");

#endif
