/* MXFP4 in a unit of a tile (format_args.h): with g = lane / 4 and t = lane % 4, words 0 and 1 of a
 * lane belong to row g, words 2 and 3 to row g + 8, and the four pairs of a word to columns
 * 32 (word % 2) + {2t, 2t + 1}, + {2t + 8, 2t + 9}, + {2t + 16, 2t + 17}, + {2t + 24, 2t + 25}.
 * Bits lie such that few operations make two bf16 of a pair (mxfp4_pair).
 *
 * Scales of a unit: 4 bytes for each g: row g's two blocks of 32 columns, then row g + 8's.
 * Behind the scales of all tiles: for each row of a tile the largest scale of its blocks, but for
 * blocks of zeros; 0 where there is none. A row's weights are whole numbers over one scale with it
 * (gemm/i8_weights.cuh). */
#ifndef KERNELS_PACK_MXFP4_TILES_H
#define KERNELS_PACK_MXFP4_TILES_H

#include "format_args.h"

/* An element and the scale of a block that a tile has and its matrix has not. */
enum { MXFP4_ZERO = 0, MXFP4_NO_SCALE = 127 /* 1 */ };

/* As a bf16, 2^-126 times the value has a code's bit 3 (sign) at bit 15, and bits 2, 1 (exponent)
 * and 0 (mantissa) at bits 8 to 6. */
#define MXFP4_SIGNS      0x80008000u
#define MXFP4_MAGNITUDES 0x01c001c0u

/* Pair `pair` of a word as two bf16, their values times 2^-126: exact, the smallest being
 * subnormal. Shifts to the left are a multiplier's work, one to the right and the masks another
 * unit's. No word holds four pairs such that a shift and a mask uncover each; for two of them it is
 * the exclusive or of two shifts, which a mask joins in one instruction. */
static inline SOL_DEVICE uint32_t mxfp4_pair(uint32_t w, int pair)
{
    const uint32_t kept = MXFP4_SIGNS | MXFP4_MAGNITUDES;
    switch (pair) {
    case 0:
        return (w ^ w << 5) & kept;
    case 1:
        return w << 3 & kept;
    case 2:
        return w << 6 & kept;
    default:
        return (w >> 7 ^ w << 4) & kept;
    }
}

/* The word of one code and seven zeros. Words are linear: the exclusive or of eight such has all
 * codes. Pairs 1 and 2 lie in it as they are. Each further line adds bits of pair 0 or 3, less what
 * already lies where mxfp4_pair would take it for a part of them. */
static inline SOL_DEVICE uint32_t mxfp4_word(uint32_t code, int pair, int half)
{
    uint32_t pairs[4] = {0, 0, 0, 0}, w;
    pairs[pair] = (code >> 3 << 15 | (code & 7) << 6) << 16 * half;
    w = pairs[1] >> 3 | pairs[2] >> 6;
    w |= (pairs[0] ^ w << 5) & MXFP4_MAGNITUDES;
    w |= ((pairs[3] ^ w << 4) & MXFP4_MAGNITUDES) << 7;
    w |= ((pairs[0] ^ w) & MXFP4_SIGNS) >> 5;
    return w | ((pairs[3] ^ w >> 7) & MXFP4_SIGNS) >> 4;
}

static inline SOL_DEVICE uint32_t mxfp4_code(uint32_t word, int pair, int half)
{
    uint32_t bits = mxfp4_pair(word, pair) >> 16 * half;
    return (bits >> 12 & 8) | (bits >> 6 & 7);
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
