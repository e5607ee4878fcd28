/* Arguments of the kernels that lay weights out for the others, shared by host and device. */
#ifndef KERNELS_PACK_PACK_ARGS_H
#define KERNELS_PACK_PACK_ARGS_H

#include "types.h"

enum { PACK_THREADS = 256 }; /* of a block */

/* GGUF's blocks of consecutive rows into tiles: format_args.h. */
struct pack_args {
    int64_t rows, columns; /* columns: a multiple of 32 */
    const uint8_t *from;   /* [rows][blocks] */
    uint8_t *tiles;        /* as many as the rows take, each of tile_bytes(columns) */
    uint8_t *scales;       /* as many, each of tile_scales_bytes(type, columns) */
    uint8_t *largest;      /* MXFP4: a byte for each row of these tiles */
};
SOL_STATIC_ASSERT(sizeof(struct pack_args) == 48, "host and device agree");

#endif
