/* Layouts of scales and of weights, and sizes, that kernels of grouped products and their host
 * share. */
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

/* How weights, the operands of n rows, lie. */
enum weight_layout {
    WEIGHTS_ROWS, /* codes in rows, scales apart as scale_layout says */
    /* NVFP4 only. Tiles of 128 rows by 128 columns, 9216 bytes each, the tiles of the same rows one
     * behind the other: first the codes, [128][64] bytes, then the scales as two atoms, of columns
     * 0 to 63 and 64 to 127. What a tile has and the matrix has not is 0, codes and scales. Tiles
     * begin at multiples of 128 bytes. */
    WEIGHTS_TILES,
    WEIGHTS_COUNT
};

enum {
    WEIGHT_TILE_ROWS = 128,
    WEIGHT_TILE_COLUMNS = 128,
    WEIGHT_TILE_LINE = WEIGHT_TILE_COLUMNS / 2, /* bytes of a row's codes */
    WEIGHT_TILE_CODES = WEIGHT_TILE_ROWS * WEIGHT_TILE_LINE,
    WEIGHT_TILE_BLOCKS = WEIGHT_TILE_COLUMNS / 16, /* of a row, which share a scale */
    WEIGHT_TILE_BYTES = WEIGHT_TILE_CODES + WEIGHT_TILE_BLOCKS / ATOM_BLOCKS * ATOM_BYTES,
    WEIGHT_TILES_ALIGN = 128
};

/* Tiles that lie side by side over k columns. */
static inline SOL_DEVICE int64_t weight_tiles_over(int64_t k)
{
    return (k + WEIGHT_TILE_COLUMNS - 1) / WEIGHT_TILE_COLUMNS;
}

/* Bytes of a matrix [rows][k] in tiles. */
static inline SOL_DEVICE int64_t weight_tiles_bytes(int64_t rows, int64_t k)
{
    return (rows + WEIGHT_TILE_ROWS - 1) / WEIGHT_TILE_ROWS * weight_tiles_over(k) *
           WEIGHT_TILE_BYTES;
}

/* Bytes before the tile of a row and a column. */
static inline SOL_DEVICE int64_t weight_tile_index(int64_t row, int64_t column, int64_t k)
{
    return (row / WEIGHT_TILE_ROWS * weight_tiles_over(k) + column / WEIGHT_TILE_COLUMNS) *
           WEIGHT_TILE_BYTES;
}

/* Bytes before the code of a row and a column; of columns 2i and 2i + 1 it is the same byte. */
static inline SOL_DEVICE int64_t weight_code_index(int64_t row, int64_t column, int64_t k)
{
    return weight_tile_index(row, column, k) + row % WEIGHT_TILE_ROWS * WEIGHT_TILE_LINE +
           column % WEIGHT_TILE_COLUMNS / 2;
}

/* Bytes before the scale of a row and a block of 16 columns. */
static inline SOL_DEVICE int64_t weight_scale_index(int64_t row, int64_t block, int64_t k)
{
    return weight_tile_index(row, block * 16, k) + WEIGHT_TILE_CODES +
           scale_index(SCALES_ATOMS, row % WEIGHT_TILE_ROWS, block % WEIGHT_TILE_BLOCKS,
                       WEIGHT_TILE_BLOCKS);
}

#endif
