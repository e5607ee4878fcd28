/* Single elements of a matrix in any format of weights (formats.list): what kernels for every shape and
 * format read. Device code only. */
#ifndef KERNELS_WEIGHTS_CUH
#define KERNELS_WEIGHTS_CUH

#include "common.cuh"
#include "pack/mxfp4_tiles.h"
#include "pack/q8_0_tiles.h"

/* ---- element j of a row as stored; blocks of GGUF lie at odd addresses, hence single bytes ---- */

__device__ inline float f32_at(const void *row, int64_t j)
{
    return ((const float *)row)[j];
}

__device__ inline float f16_at(const void *row, int64_t j)
{
    return f16_to_f32(((const uint16_t *)row)[j]);
}

__device__ inline float bf16_at(const void *row, int64_t j)
{
    return bf16_to_f32(((const uint16_t *)row)[j]);
}

__device__ inline float mxfp4_at(const void *row, int64_t j)
{
    const uint8_t *block = (const uint8_t *)row + j / 32 * BLOCK_BYTES_MXFP4;
    uint32_t at = (uint32_t)(j % 32), byte = block[1 + at % 16];
    return e2m1_to_f32(at < 16 ? byte : byte >> 4) * e8m0_to_f32(block[0]);
}

__device__ inline float nvfp4_at(const void *row, int64_t j)
{
    const uint8_t *block = (const uint8_t *)row + j / BLOCK_NVFP4 * BLOCK_BYTES_NVFP4;
    uint32_t at = (uint32_t)(j % BLOCK_NVFP4), byte = block[1 + at / 2];
    return e2m1_to_f32(at % 2 ? byte >> 4 : byte) * fp8_e4m3_to_f32(block[0]);
}

__device__ inline float q8_0_at(const void *row, int64_t j)
{
    const uint8_t *block = (const uint8_t *)row + j / 32 * BLOCK_BYTES_Q8_0;
    uint16_t scale = (uint16_t)(block[0] | block[1] << 8);
    return f16_to_f32(scale) * (float)(int8_t)block[2 + j % 32];
}

/* ---- element j of a row of a tile, whose scales are `scales` ---- */

__device__ inline float mxfp4_tile_at(const uint8_t *tile, const uint8_t *scales, uint32_t row, uint32_t j)
{
    mxfp4_place place = mxfp4_place_of(row, j);
    uint32_t word = *(const uint32_t *)(tile + place.byte);
    return e2m1_to_f32(mxfp4_code(word, place.pair, place.half)) * e8m0_to_f32(scales[place.scale]);
}

__device__ inline float q8_0_tile_at(const uint8_t *tile, const uint8_t *scales, uint32_t row, uint32_t j)
{
    q8_0_place place = q8_0_place_of(row, j);
    float q = (float)((int)tile[place.byte] - Q8_0_ZERO);
    return f16_to_f32(*(const uint16_t *)(scales + place.scale)) * q;
}

/* ---- of any ---- */

__device__ inline int64_t weight_row_bytes(int type, int64_t n)
{
    switch (type) {
#define SOL_FORMAT(id, name, use, block, ...)                                                       \
    IF_##use(case DTYPE_##id : return n / block * BLOCK_BYTES_##id;)
#include "formats.list"
    default: return 0;
    }
}

/* Element j of a row as stored. */
__device__ inline float weight_at(int type, const void *row, int64_t j)
{
    switch (type) {
#define SOL_FORMAT(id, name, use, ...) IF_##use(case DTYPE_##id : return name##_at(row, j);)
#include "formats.list"
    default: __builtin_unreachable(); /* the host refuses them */
    }
}

/* A row of a matrix in tiles; `row` counts what fills the groups' last tiles. */
struct tiled_row {
    const uint8_t *tile, *scales;
    uint32_t row; /* of the tile */
};

__device__ inline tiled_row tiled_row_of(int type, const void *w, const void *scales, int64_t n, int64_t row)
{
    int64_t tile = row / TYPE_TILE_ROWS(type);
    return {(const uint8_t *)w + tile * tile_bytes(n),
            (const uint8_t *)scales + tile * tile_scales_bytes(type, n), (uint32_t)(row % TYPE_TILE_ROWS(type))};
}

__device__ inline float tiled_weight_at(int type, const tiled_row &r, int64_t j)
{
    switch (type) {
#define SOL_FORMAT(id, name, use, block, bits, scale, levels, layout, ...)                          \
    IF_##layout(case TILES_##id : return name##_tile_at(r.tile, r.scales, r.row, (uint32_t)j);)
#include "formats.list"
    default: __builtin_unreachable(); /* the host refuses them */
    }
}

#endif
