/* Q8_0 as matrix kernels read it, shared by host and device. A matrix of a group is cut into tiles
 * of 8 rows, a tile into units of 64 columns; what rows and columns lack is filled with zeros. A
 * unit is 512 bytes, 16 for each lane of a warp, so that a lane's load gives it its share of one
 * row in four products of 16x16 (the A operand of mma.m16n8k16 and of wgmma): with g = lane / 4 and
 * t = lane % 4, a lane has row g, and word w of it the columns 16 w + {2t, 2t + 1, 2t + 8, 2t + 9}.
 * Rows g and g + 8 of an operand are two loads, so that any two tiles may be joined.
 *
 * A byte is the number plus 128: as the lower half of a bf16 it is a subnormal or the smallest
 * normals, 2^-133 times the byte without a gap, which one operation turns into the number
 * (q8_0_pair, q8_0.cuh).
 *
 * Scales, for every unit: 32 bytes, 4 for each g: those of row g's two blocks of 32 columns, as
 * float16. */
#ifndef KERNELS_PACK_Q8_0_TILES_H
#define KERNELS_PACK_Q8_0_TILES_H

#include "types.h"

enum {
    Q8_TILE_ROWS = 8,
    Q8_UNIT_COLUMNS = 64,
    Q8_UNIT_BYTES = 512,
    Q8_UNIT_SCALES = 32, /* bytes */
    Q8_ZERO = 128,       /* the byte of 0 */
};

static inline SOL_DEVICE uint32_t q8_tile_count(int64_t rows)
{
    return (uint32_t)((rows + Q8_TILE_ROWS - 1) / Q8_TILE_ROWS);
}

static inline SOL_DEVICE uint32_t q8_unit_count(int64_t columns)
{
    return (uint32_t)((columns + Q8_UNIT_COLUMNS - 1) / Q8_UNIT_COLUMNS);
}

/* Bytes of a tile, and of its scales. */
static inline SOL_DEVICE uint32_t q8_tile_bytes(int64_t columns)
{
    return q8_unit_count(columns) * Q8_UNIT_BYTES;
}

static inline SOL_DEVICE uint32_t q8_tile_scales_bytes(int64_t columns)
{
    return q8_unit_count(columns) * Q8_UNIT_SCALES;
}

/* One element's byte in its tile, and its scale's first byte in the tile's scales; row < 8. */
struct q8_place {
    uint32_t byte, scale;
};

static inline SOL_DEVICE struct q8_place q8_place_of(uint32_t row, uint32_t column)
{
    uint32_t unit = column / Q8_UNIT_COLUMNS, k = column % 16;
    uint32_t lane = 4 * row + k % 8 / 2, word = column % Q8_UNIT_COLUMNS / 16;
    struct q8_place place = {unit * Q8_UNIT_BYTES + lane * 16 + word * 4 + k / 8 * 2 + k % 2,
                             unit * Q8_UNIT_SCALES + row * 4 + column % Q8_UNIT_COLUMNS / 32 * 2};
    return place;
}

#endif
