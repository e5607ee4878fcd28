/* Layouts of scales, and sizes, that kernels of grouped products and their host share. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_GEMM_ARGS_H
#define KERNELS_GROUPED_GEMM_GROUPED_GEMM_ARGS_H

#include "types.h"

/* Where the scales of a block-scaled matrix lie. Row r has `blocks` of them, one a block of k. */
enum scale_layout {
    SCALES_ROWS, /* [rows][blocks] */
    /* Atoms of 128 rows by 4 blocks, 512 bytes each; what the matrix lacks of the last ones is
     * there, with any contents. In an atom the rows are 32 by 4: (32, 4, rest_rows, 4, rest_blocks)
     * as shape, the last atom's index moving fastest behind the atom's own. */
    SCALES_ATOMS,
    SCALES_COUNT
};

enum { ATOM_ROWS = 128, ATOM_BLOCKS = 4, ATOM_BYTES = 512 };

static inline SOL_DEVICE int64_t scale_index(int layout, int64_t row, int64_t block, int64_t blocks)
{
    if (layout == SCALES_ROWS) return row * blocks + block;
    int64_t atom =
        row / ATOM_ROWS * ((blocks + ATOM_BLOCKS - 1) / ATOM_BLOCKS) + block / ATOM_BLOCKS;
    return atom * ATOM_BYTES + row % 32 * 16 + row % ATOM_ROWS / 32 * 4 + block % ATOM_BLOCKS;
}

/* Bytes of all scales of a matrix. */
static inline SOL_DEVICE int64_t scale_bytes(int layout, int64_t rows, int64_t blocks)
{
    if (layout == SCALES_ROWS) return rows * blocks;
    return (rows + ATOM_ROWS - 1) / ATOM_ROWS * ((blocks + ATOM_BLOCKS - 1) / ATOM_BLOCKS) *
           ATOM_BYTES;
}

#endif
