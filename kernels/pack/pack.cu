/* Run once, while a model is loaded. */
#include "common.cuh"
#include "pack/mxfp4_tiles.h"
#include "pack/pack_args.h"
#include "pack/q8_0_tiles.h"

/* ---- MXFP4 ---- */

/* The 4-bit code of an element; beyond the matrix 0. Byte n of a block holds elements n and n + 16. */
__device__ inline uint32_t code_at(const pack_args &a, int64_t row, uint32_t column)
{
    if (row >= a.rows || column >= a.columns) return 0;
    const uint8_t *block = a.from + (row * a.columns + column) / 32 * BLOCK_BYTES_MXFP4;
    uint32_t at = column % 32, byte = block[1 + at % 16];
    return at < 16 ? byte & 15 : byte >> 4;
}

__device__ inline uint8_t scale_at(const pack_args &a, int64_t row, uint32_t column)
{
    if (row >= a.rows || column >= a.columns) return MXFP4_NO_SCALE;
    return a.from[(row * a.columns + column) / 32 * BLOCK_BYTES_MXFP4];
}

/* Which of a lane's four blocks have something else than zeros, a bit each: the four lanes of a row
 * see them together. */
__device__ inline uint32_t blocks_used(const uint32_t (&words)[4])
{
    uint32_t used = 0;
    for (int w = 0; w < 4; w++)
        for (int pair = 0; pair < 4; pair++)
            used |= (mxfp4_pair(words[w], pair) & MXFP4_MAGNITUDES ? 1u : 0u) << w;
    used |= __shfl_xor_sync(FULL_MASK, used, 1);
    return used | __shfl_xor_sync(FULL_MASK, used, 2);
}

/* A block a tile, a warp a unit. */
KERNEL_OF(PACK_THREADS, pack_mxfp4, pack_args)
{
    __shared__ int32_t largest[TILE_ROWS_MXFP4];
    if (threadIdx.x < TILE_ROWS_MXFP4) largest[threadIdx.x] = 0;
    __syncthreads();
    uint32_t lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint32_t units = unit_count(a.columns);
    int64_t first = (int64_t)blockIdx.x * TILE_ROWS_MXFP4;
    uint8_t *tile = a.tiles + (int64_t)blockIdx.x * tile_bytes(a.columns);
    uint8_t *scales = a.scales + (int64_t)blockIdx.x * tile_scales_bytes(TILES_MXFP4, a.columns);
    for (uint32_t unit = threadIdx.x / WARP; unit < units; unit += blockDim.x / WARP) {
        uint32_t column = unit * UNIT_COLUMNS, words[4];
        for (uint32_t w = 0; w < 4; w++) {
            words[w] = 0;
            for (int pair = 0; pair < 4; pair++)
                for (uint32_t half = 0; half < 2; half++)
                    words[w] ^= mxfp4_word(code_at(a, first + g + w / 2 * 8,
                                                   column + w % 2 * 32 + pair * 8 + 2 * t + half),
                                           pair, half);
        }
        *(uint4 *)(tile + unit * UNIT_BYTES + lane * 16) = {words[0], words[1], words[2], words[3]};
        uint8_t scale = scale_at(a, first + g + t / 2 * 8, column + t % 2 * 32);
        scales[unit * UNIT_SCALES_MXFP4 + g * 4 + t] = scale;
        if (blocks_used(words) >> t & 1) atomicMax(&largest[g + t / 2 * 8], (int32_t)scale);
    }
    __syncthreads();
    if (threadIdx.x < TILE_ROWS_MXFP4)
        a.largest[blockIdx.x * TILE_ROWS_MXFP4 + threadIdx.x] = (uint8_t)largest[threadIdx.x];
}

/* ---- Q8_0 ---- */

/* Four bytes of a lane: columns 2t, 2t + 1, 2t + 8, 2t + 9 from `column` on. */
__device__ inline uint32_t q8_word(const pack_args &a, int64_t row, uint32_t column, uint32_t t)
{
    uint32_t word = 0;
    for (uint32_t n = 0; n < 4; n++) {
        uint32_t at = column + n / 2 * 8 + 2 * t + n % 2;
        bool present = row < a.rows && at < a.columns;
        uint32_t q = present ? a.from[(row * a.columns + at) / 32 * BLOCK_BYTES_Q8_0 + 2 + at % 32] : 0;
        word |= ((q + Q8_0_ZERO) & 255) << 8 * n;
    }
    return word;
}

/* A block a tile, a warp a unit. */
KERNEL_OF(PACK_THREADS, pack_q8_0, pack_args)
{
    uint32_t lane = threadIdx.x % WARP, t = lane % 4, units = unit_count(a.columns);
    int64_t row = (int64_t)blockIdx.x * TILE_ROWS_Q8_0 + lane / 4;
    uint8_t *tile = a.tiles + (int64_t)blockIdx.x * tile_bytes(a.columns);
    uint8_t *scales = a.scales + (int64_t)blockIdx.x * tile_scales_bytes(TILES_Q8_0, a.columns);
    for (uint32_t unit = threadIdx.x / WARP; unit < units; unit += blockDim.x / WARP) {
        uint32_t column = unit * UNIT_COLUMNS, words[4];
        for (uint32_t w = 0; w < 4; w++) words[w] = q8_word(a, row, column + 16 * w, t);
        *(uint4 *)(tile + unit * UNIT_BYTES + lane * 16) = {words[0], words[1], words[2], words[3]};
        /* Four lanes have the four bytes of a row's two scales. */
        uint32_t block = column + t / 2 * 32;
        bool present = row < a.rows && block < a.columns;
        scales[unit * UNIT_SCALES_Q8_0 + lane] =
            present ? a.from[(row * a.columns + block) / 32 * BLOCK_BYTES_Q8_0 + t % 2] : Q8_0_NO_SCALE;
    }
}
