/* MXFP4 in a unit of a tile (format_args.h): with g = lane / 4 and t = lane % 4, words 0 and 1 of a
 * lane belong to row g, words 2 and 3 to row g + 8, and the four pairs of a word to columns
 * 32 (word % 2) + {2t, 2t + 1}, + {2t + 8, 2t + 9}, + {2t + 16, 2t + 17}, + {2t + 24, 2t + 25}.
 * Bits lie where few operations make two bf16 of a pair (mxfp4_pair, mxfp4.cuh).
 *
 * Scales of a unit: 4 bytes for each g: row g's two blocks of 32 columns, then row g + 8's.
 * Behind the scales of all tiles: for each row of a tile the largest scale of its blocks, but for
 * blocks of zeros; 0 where there is none. A row's weights are whole numbers over one scale with it
 * (gemm/i8_weights.cuh). */
#ifndef KERNELS_PACK_MXFP4_TILES_H
#define KERNELS_PACK_MXFP4_TILES_H

#include "format_args.h"

/* Bits of a word that are exponent and mantissa: a code without them is 0 or -0. */
#define MXFP4_MAGNITUDES 0xe1ffe1ffu

/* An element and the scale of a block that a tile has and its matrix has not. */
enum { MXFP4_ZERO = 0, MXFP4_NO_SCALE = 127 /* 1 */ };

/* As a bf16, 2^-126 times the value has a code's bit 3 (sign) at bit 15, and bits 2, 1 (exponent)
 * and 0 (mantissa) at bits 8 to 6. In the word each lies that many places to the right of there:
 * masks and shifts to the right are few in a kernel, shifts to the left are a multiplier's work. */
static inline SOL_DEVICE int mxfp4_left(int bit, int pair)
{
    if (pair == 1 || pair == 2) return 3 * pair;
    return bit == 3 ? (pair ? 5 : 4) : pair ? -7 : 0;
}

static inline SOL_DEVICE int mxfp4_bit(int bit, int pair, int half)
{
    return (bit == 3 ? 15 : 6 + bit) + 16 * half - mxfp4_left(bit, pair);
}

static inline SOL_DEVICE uint32_t mxfp4_word(uint32_t code, int pair, int half)
{
    uint32_t word = 0;
    for (int bit = 0; bit < 4; bit++) word |= (code >> bit & 1) << mxfp4_bit(bit, pair, half);
    return word;
}

static inline SOL_DEVICE uint32_t mxfp4_code(uint32_t word, int pair, int half)
{
    uint32_t code = 0;
    for (int bit = 0; bit < 4; bit++) code |= (word >> mxfp4_bit(bit, pair, half) & 1) << bit;
    return code;
}

/* The column within 32 whose code is byte `i` of a row that is multiplied with a word's codes as
 * bytes: a lane t has bytes 4 t .. 4 t + 3 for its first two pairs, and 16 more for the others. */
static inline SOL_DEVICE uint32_t mxfp4_byte_column(uint32_t i)
{
    return i % 16 / 4 * 2 + i % 2 + i % 4 / 2 * 8 + i / 16 * 16;
}

/* One element's place in its tile, and its scale's; row < 16. */
struct mxfp4_place {
    uint32_t byte; /* of the word, in the tile */
    int pair, half;
    uint32_t scale; /* byte, in the tile's scales */
};

static inline SOL_DEVICE struct mxfp4_place mxfp4_place_of(uint32_t row, uint32_t column)
{
    uint32_t unit = column / UNIT_COLUMNS, k = column % 16;
    uint32_t g = row % 8, t = k % 8 / 2, lane = 4 * g + t;
    uint32_t word = row / 8 * 2 + column % UNIT_COLUMNS / 32;
    struct mxfp4_place place = {
        unit * UNIT_BYTES + lane * 16 + word * 4, (int)(column % 32 / 16 * 2 + k / 8), (int)(k % 2),
        unit * UNIT_SCALES_MXFP4 + g * 4 + row / 8 * 2 + column % UNIT_COLUMNS / 32};
    return place;
}

#endif
