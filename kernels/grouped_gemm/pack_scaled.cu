/* Weights of grouped products in NVFP4 from rows into tiles (WEIGHTS_TILES), run once when they are
 * loaded: a block writes a tile. It asks memory for all that its threads need before they store
 * anything, and stores whole units of 16 bytes; what the matrix lacks is 0. */
#include "common.cuh"
#include "grouped_gemm/pack_scaled_args.h"

enum { CODE_UNITS = WEIGHT_TILE_CODES / PACK_SCALED_UNIT, ROW_UNITS = WEIGHT_TILE_LINE / 16 };
enum { CODES_OF_UNIT = 2 * PACK_SCALED_UNIT, BLOCK = 16 };

/* 32 codes of a row from `column` on. Rows begin at multiples of 8 bytes, and of 16 where k is a
 * multiple of 32. */
__device__ inline uint4 load_codes(const pack_scaled_kernel_args &a, int64_t row, int64_t column)
{
    uint4 out = {0, 0, 0, 0};
    if (row >= a.rows || column >= a.k) return out;
    const uint8_t *from = a.codes + (row * a.k + column) / 2;
    if (a.k % CODES_OF_UNIT == 0) return *(const uint4 *)from;
    uint2 low = *(const uint2 *)from, high = {0, 0};
    if (column + BLOCK < a.k) high = *(const uint2 *)(from + 8);
    out.x = low.x, out.y = low.y, out.z = high.x, out.w = high.y;
    return out;
}

/* Scales of four blocks of a row, in rows: a word where all rows begin at words. */
__device__ inline uint32_t load_row_scales(const pack_scaled_kernel_args &a, int64_t row,
                                           int64_t block)
{
    const int64_t blocks = a.k / BLOCK;
    uint32_t out = 0;
    if (row >= a.rows || block >= blocks) return 0;
    const uint8_t *from = a.scales + row * blocks + block;
    if (blocks % ATOM_BLOCKS == 0) return *(const uint32_t *)from;
#pragma unroll
    for (int i = 0; i < ATOM_BLOCKS; i++)
        if (block + i < blocks) out |= (uint32_t)from[i] << 8 * i;
    return out;
}

/* The word of an atom without what the matrix lacks. */
__device__ inline uint32_t only_there(const pack_scaled_kernel_args &a, int64_t row, int64_t block,
                                      uint32_t word)
{
    const int64_t left = a.k / BLOCK - block;
    if (row >= a.rows || left <= 0) return 0;
    return left >= ATOM_BLOCKS ? word : word & ((1u << 8 * left) - 1);
}

/* 16 bytes of an atom: the four blocks from `block` on of rows `row`, and 32, 64 and 96 behind it.
 * In either layout they are four words, a row's each. */
__device__ inline uint4 load_scales(const pack_scaled_kernel_args &a, int64_t row, int64_t block)
{
    uint32_t words[4] = {0, 0, 0, 0};
    const int64_t blocks = a.k / BLOCK;
    if (a.layout == SCALES_ATOMS && block < blocks) {
        uint4 unit = *(const uint4 *)(a.scales + scale_index(SCALES_ATOMS, row, block, blocks));
        words[0] = unit.x, words[1] = unit.y, words[2] = unit.z, words[3] = unit.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (a.layout == SCALES_ROWS) words[i] = load_row_scales(a, row + 32 * i, block);
        words[i] = only_there(a, row + 32 * i, block, words[i]);
    }
    uint4 out = {words[0], words[1], words[2], words[3]};
    return out;
}

/* Unit number `unit` of the tile whose first row and column these are. */
__device__ inline uint4 load_unit(const pack_scaled_kernel_args &a, uint32_t unit, int64_t row,
                                  int64_t column)
{
    if (unit < CODE_UNITS)
        return load_codes(a, row + unit / ROW_UNITS, column + unit % ROW_UNITS * CODES_OF_UNIT);
    unit -= CODE_UNITS;
    return load_scales(a, row + unit % 32, column / BLOCK + unit / 32 * ATOM_BLOCKS);
}

KERNEL_OF(PACK_SCALED_THREADS, pack_scaled_nvfp4, pack_scaled_kernel_args)
{
    const int64_t over = weight_tiles_over(a.k);
    int64_t row = blockIdx.x / over * WEIGHT_TILE_ROWS;
    int64_t column = blockIdx.x % over * WEIGHT_TILE_COLUMNS;
    uint4 *to = (uint4 *)(a.tiles + (int64_t)blockIdx.x * WEIGHT_TILE_BYTES);
    uint4 units[PACK_SCALED_TURNS];
#pragma unroll
    for (int i = 0; i < PACK_SCALED_TURNS; i++)
        units[i] = load_unit(a, threadIdx.x + i * PACK_SCALED_THREADS, row, column);
#pragma unroll
    for (int i = 0; i < PACK_SCALED_TURNS; i++)
        to[threadIdx.x + i * PACK_SCALED_THREADS] = units[i];
}
