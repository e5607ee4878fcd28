/* What kernels share: number formats, sums over a warp and a block. Device code only. */
#ifndef KERNELS_COMMON_CUH
#define KERNELS_COMMON_CUH

#include "pack/mxfp4_tiles.h"
#include "pack/q8_0_tiles.h"
#include "ptx.cuh"
#include "types.h"

#ifndef INFINITY /* NVRTC has no <math.h> */
#define INFINITY __int_as_float(0x7f800000)
#endif

enum { WARP = 32 };
#define FULL_MASK 0xffffffffu

/* A kernel takes one struct, by value and in constant memory. */
#define KERNEL(name, args_type)        extern "C" __global__ void name(const __grid_constant__ args_type a)
#define KERNEL_OF(threads, name, args) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args a)

/* ---- numbers ---- */

__device__ inline float bf16_to_f32(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* 2^(e-127) for every byte: 0 is a denormal, 255 NaN. */
__device__ inline float e8m0_to_f32(uint8_t e)
{
    if (e == 0) return __uint_as_float(0x00400000u);
    return e == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((uint32_t)e << 23);
}

/* Low 4 bits: sign, two of exponent, one of mantissa: 0 .5 1 1.5 2 3 4 6. */
__device__ inline float e2m1_to_f32(uint32_t nibble)
{
    /* As a bf16, shifted into place, this is the value times 2^-126. */
    uint32_t bits = (nibble & 8) << 28 | (nibble & 7) << 22;
    return __uint_as_float(bits) * 0x1p126f;
}

/* ---- rows in any weight format ---- */

__device__ inline int64_t weight_row_bytes(int type, int64_t n)
{
    switch (type) {
    case WEIGHT_F32: return 4 * n;
    case WEIGHT_MXFP4: return n / 32 * 17;
    case WEIGHT_Q8_0: return n / 32 * 34;
    default: return 2 * n;
    }
}

/* Element j of a row of tiled MXFP4; `tile` and `scales` are those the row is in. */
__device__ inline float tiled_mxfp4_at(const uint8_t *tile, const uint8_t *scales, uint32_t row,
                                       uint32_t j)
{
    tile_place place = tile_place_of(row % TILE_ROWS, j);
    uint32_t word = *(const uint32_t *)(tile + place.byte);
    return e2m1_to_f32(mxfp4_code(word, place.pair, place.half)) * e8m0_to_f32(scales[place.scale]);
}

/* The same of tiled Q8_0. */
__device__ inline float tiled_q8_0_at(const uint8_t *tile, const uint8_t *scales, uint32_t row,
                                      uint32_t j)
{
    q8_place place = q8_place_of(row % Q8_TILE_ROWS, j);
    float q = (float)((int)tile[place.byte] - Q8_ZERO);
    return f16_to_f32(*(const uint16_t *)(scales + place.scale)) * q;
}

/* Rows of a group with what fills its last tile. */
__device__ inline int64_t tiled_group_rows(int type, int64_t rows)
{
    return type == WEIGHT_MXFP4_TILES ? (int64_t)tile_count(rows) * TILE_ROWS
                                      : (int64_t)q8_tile_count(rows) * Q8_TILE_ROWS;
}

/* Element j of a row of n of either; `row` counts what fills the groups' last tiles. */
__device__ inline float tiled_weight_at(int type, const void *w, const void *scales, int64_t n,
                                        int64_t row, int64_t j)
{
    const uint8_t *tile = (const uint8_t *)w, *s = (const uint8_t *)scales;
    if (type == WEIGHT_MXFP4_TILES) {
        tile += row / TILE_ROWS * tile_bytes(n);
        s += row / TILE_ROWS * tile_scales_bytes(n);
        return tiled_mxfp4_at(tile, s, (uint32_t)row, (uint32_t)j);
    }
    tile += row / Q8_TILE_ROWS * q8_tile_bytes(n);
    s += row / Q8_TILE_ROWS * q8_tile_scales_bytes(n);
    return tiled_q8_0_at(tile, s, (uint32_t)row, (uint32_t)j);
}

/* Element j of a row. Blocks of GGUF lie at odd addresses, hence single bytes. */
__device__ inline float weight_at(int type, const void *row, int64_t j)
{
    const uint8_t *bytes = (const uint8_t *)row;
    switch (type) {
    case WEIGHT_F32: return ((const float *)row)[j];
    case WEIGHT_F16: return f16_to_f32(((const uint16_t *)row)[j]);
    case WEIGHT_BF16: return bf16_to_f32(((const uint16_t *)row)[j]);
    case WEIGHT_MXFP4: {
        const uint8_t *block = bytes + j / 32 * 17;
        uint32_t at = (uint32_t)(j % 32), byte = block[1 + at % 16];
        return e2m1_to_f32(at < 16 ? byte : byte >> 4) * e8m0_to_f32(block[0]);
    }
    default: {
        const uint8_t *block = bytes + j / 32 * 34;
        uint16_t scale = (uint16_t)(block[0] | block[1] << 8);
        return f16_to_f32(scale) * (float)(int8_t)block[2 + j % 32];
    }
    }
}

/* An element of a cache in F32, F16 or BF16. */
__device__ inline float cache_at(int type, const void *data, int64_t index)
{
    if (type == WEIGHT_F32) return ((const float *)data)[index];
    uint16_t bits = ((const uint16_t *)data)[index];
    return type == WEIGHT_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

__device__ inline void cache_put(int type, void *data, int64_t index, float value)
{
    if (type == WEIGHT_F32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] = type == WEIGHT_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

/* ---- sums ---- */

__device__ inline float warp_sum(float value)
{
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

__device__ inline float warp_max(float value)
{
    for (int step = WARP / 2; step; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, step));
    return value;
}

/* Of all threads, to all threads; `scratch` has one float a warp. Whole warps only. */
__device__ inline float block_sum(float value, float *scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_sum(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = warp_sum(lane < warps ? scratch[lane] : 0);
    __syncthreads();
    return value;
}

#endif
