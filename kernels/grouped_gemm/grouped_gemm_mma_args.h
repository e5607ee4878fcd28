/* Tiles of the grouped products of block-scaled matrices on mma.sync, shared by host and device. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_GEMM_MMA_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_GEMM_MMA_ARGS_H

#include "grouped_gemm/grouped_tiles_args.h"

/* A block computes a tile of C with 2 x 2 warps. Columns of k that are in shared memory at a time.
 */
enum { GROUPED_THREADS = 128, GROUPED_ROWS = 64, GROUPED_COLUMNS = 64, GROUPED_CHUNK = 64 };

#endif
