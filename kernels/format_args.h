/* Number formats (formats.list) and layouts of matrices as host and device number them.
 *
 * Tiles: a matrix of a group is cut into tiles of rows, a tile into units of 64 columns; what rows
 * and columns lack is filled with zeros. A unit is 512 bytes, 16 for each lane of a warp, so that a
 * lane's load gives it its share of products of 16x16 (the A operand of mma.m16n8k16 and of wgmma);
 * a tile has as many rows as fill it. Scales lie apart, in the same order: for every unit those of
 * its rows' blocks. Where an element is in a unit: pack/mxfp4_tiles.h, q8_0_tiles.h. */
#ifndef KERNELS_FORMAT_ARGS_H
#define KERNELS_FORMAT_ARGS_H

#include "types.h"

enum dtype {
#define SOL_FORMAT(id, ...) DTYPE_##id,
#include "formats.list"
    DTYPE_COUNT
};

enum layout {
    LAYOUT_ROWS, /* as stored, without padding */
    LAYOUT_TILES,
};

enum { UNIT_COLUMNS = 64, UNIT_BYTES = 512 };

enum {
    FORMAT_BITS_NONE = 0,
#define SOL_FORMAT(id, name, use, block, bits, ...) FORMAT_BITS_##id = bits,
#include "formats.list"
};

/* A block, and its bytes with its scale; what a kernel calls tiles of a format: a tile's rows are
 * in the second byte, the bytes of a unit's scales in the third. Rows as stored are called by their
 * dtype. */
enum {
#define SOL_FORMAT(id, name, use, block, bits, scale, ...)                                         \
    BLOCK_##id = block, BLOCK_BYTES_##id = (block * bits + FORMAT_BITS_##scale) / 8,               \
    UNIT_SCALES_##id = UNIT_BYTES * 8 / bits / block * FORMAT_BITS_##scale / 8,                    \
    TILE_ROWS_##id = UNIT_BYTES * 8 / bits / UNIT_COLUMNS,                                         \
    TILES_##id = DTYPE_##id | TILE_ROWS_##id << 8 | UNIT_SCALES_##id << 16,
#include "formats.list"
};
#define TYPE_TILE_ROWS(type)   ((type) >> 8 & 255) /* 0: rows as stored */
#define TYPE_UNIT_SCALES(type) ((type) >> 16)      /* bytes */
/* Tiles over so many rows; 1 for rows as stored, so that nobody divides by 0. */
#define TYPE_TILES_OVER(type, n) ((n) / (TYPE_TILE_ROWS(type) ? TYPE_TILE_ROWS(type) : (n)))

/* For `use` and `layout` of a line: what is said of one kind alone. */
#define IF_WEIGHTS(...) __VA_ARGS__
#define IF_NUMBERS(...)
#define IF_TILES(...) __VA_ARGS__
#define IF_ROWS(...)

static inline SOL_DEVICE uint32_t tile_count(int type, int64_t rows)
{
    return (uint32_t)((rows + TYPE_TILE_ROWS(type) - 1) / TYPE_TILE_ROWS(type));
}

static inline SOL_DEVICE uint32_t unit_count(int64_t columns)
{
    return (uint32_t)((columns + UNIT_COLUMNS - 1) / UNIT_COLUMNS);
}

/* Bytes of a tile, and of its scales. */
static inline SOL_DEVICE uint32_t tile_bytes(int64_t columns)
{
    return unit_count(columns) * UNIT_BYTES;
}

static inline SOL_DEVICE uint32_t tile_scales_bytes(int type, int64_t columns)
{
    return unit_count(columns) * (uint32_t)TYPE_UNIT_SCALES(type);
}

#endif
