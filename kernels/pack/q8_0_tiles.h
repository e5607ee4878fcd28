/* Q8_0 in a unit of a tile (format_args.h): with g = lane / 4 and t = lane % 4, a lane has row g,
 * and word w of it the columns 16 w + {2t, 2t + 1, 2t + 8, 2t + 9}. Rows g and g + 8 of an operand
 * are two loads, so that any two tiles may be joined.
 *
 * A byte is the number plus 128: as the lower half of a bf16 it is a subnormal or the smallest
 * normals, 2^-133 times the byte without a gap, which one operation turns into the number
 * (q8_0_pair, q8_0.cuh).
 *
 * Scales of a unit: 4 bytes for each g: those of row g's two blocks of 32 columns, as float16. */
#ifndef KERNELS_PACK_Q8_0_TILES_H
#define KERNELS_PACK_Q8_0_TILES_H

#include "format_args.h"

enum { Q8_0_ZERO = 128 /* the byte of 0 */, Q8_0_NO_SCALE = 0 };

/* One element's byte in its tile, and its scale's first byte in the tile's scales; row < 8. */
struct q8_0_place {
    uint32_t byte, scale;
};

static inline SOL_DEVICE struct q8_0_place q8_0_place_of(uint32_t row, uint32_t column)
{
    uint32_t unit = column / UNIT_COLUMNS, k = column % 16;
    uint32_t lane = 4 * row + k % 8 / 2, word = column % UNIT_COLUMNS / 16;
    struct q8_0_place place = {unit * UNIT_BYTES + lane * 16 + word * 4 + k / 8 * 2 + k % 2,
                               unit * UNIT_SCALES_Q8_0 + row * 4 + column % UNIT_COLUMNS / 32 * 2};
    return place;
}

#endif
