/* Tiles of the grouped products of block-scaled matrices on the block-scaled instructions of
 * sm_12x, shared by host and device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_GEMM_MXF4_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_GEMM_MXF4_ARGS_H

#include "grouped_gemm/grouped_tiles_args.h"

/* A block computes a tile of 128 rows of A by 128 rows of B with 2 x 4 warps; where gated, 64
 * columns of gate and the same 64 of up take the place of the 128. A chunk is what a stage in
 * shared memory has of k. */
enum {
    MXF4_THREADS = 256,
    MXF4_ROWS = 128,
    MXF4_COLUMNS = 128,
    MXF4_COLUMNS_GATED = 64,
    MXF4_CHUNK = 128
};

/* A stage: the codes of all rows of the tile, then their scales in words of four, those of the
 * chunk's first half in front of those of the second. Five stages are what 99 KB have room for,
 * which is what a block may have on sm_120 and sm_121. */
enum {
    MXF4_LINES = MXF4_ROWS + MXF4_COLUMNS,
    MXF4_LINE = MXF4_CHUNK / 2,
    MXF4_SCALES_AT = MXF4_LINES * MXF4_LINE,
    MXF4_STAGE = MXF4_SCALES_AT + 2 * 4 * MXF4_LINES,
    MXF4_STAGES = 5
};
SOL_STATIC_ASSERT(MXF4_STAGES *MXF4_STAGE <= 99 << 10, "what a block may have");

#endif
