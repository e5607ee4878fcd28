/* Arguments of the kernel that lays weights of grouped products out in tiles, shared by host and
 * device. */
#ifndef KERNELS_GROUPED_GEMM_PACK_SCALED_ARGS_H
#define KERNELS_GROUPED_GEMM_PACK_SCALED_ARGS_H

#include "grouped_gemm/grouped_gemm_args.h"

/* A block writes a tile, 16 bytes a thread and turn. */
enum {
    PACK_SCALED_UNIT = 16,
    PACK_SCALED_TURNS = 3,
    PACK_SCALED_THREADS = WEIGHT_TILE_BYTES / PACK_SCALED_UNIT / PACK_SCALED_TURNS
};
SOL_STATIC_ASSERT(PACK_SCALED_THREADS *PACK_SCALED_UNIT *PACK_SCALED_TURNS == WEIGHT_TILE_BYTES,
                  "a tile is whole units");

struct pack_scaled_kernel_args {
    const uint8_t *codes, *scales; /* in rows; scales as `layout` says */
    uint8_t *tiles;
    int32_t rows, k;
    int32_t layout; /* enum scale_layout */
    int32_t pad;
};
SOL_STATIC_ASSERT(sizeof(struct pack_scaled_kernel_args) == 40, "host and device agree");

#endif
