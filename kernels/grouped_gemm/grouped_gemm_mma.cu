/* Grouped products of block-scaled matrices on the tensor cores that every card from sm_80 on has:
 * any k that is whole blocks, any rows, every format and epilogue.
 *
 * Operands become fp16 on their way into shared memory. A code of e2m1, s|ee|m, placed as a half's
 * sign and bits 11 to 9, reads as its value times 2^-14; times the scale it is exact, since a value
 * and a scale have 6 significant bits together and 2^-10 * 2^-14 is a half still. A code of e4m3,
 * one bit to the right of a half's upper byte, reads as its value times 2^-8. Scales of MXFP4 are
 * no halves: they multiply the sums of each block. Where an element of a block of 16 lies does not
 * matter as long as it lies there in both operands.
 *
 * Weights in tiles have kernels of their own, so that those for rows ask nothing of it. */
#include "common.cuh"
#include "grouped_gemm/grouped_gemm_mma_args.h"
#include "grouped_gemm/grouped_tiles.cuh"
#include "mma.cuh"
#include "swiglu/swiglu.cuh"

typedef grouped_tiles_group group;

enum { BLOCK_16 = 16, CHUNK_BLOCKS = GROUPED_CHUNK / BLOCK_16 };
/* A row in shared memory, in words: the pad keeps eight rows of a fragment in banks of their own.
 */
enum { LINE = GROUPED_CHUNK / 2 + 4 };
/* Blocks of 16 that a thread moves for each operand. */
enum { PIECES = GROUPED_ROWS * CHUNK_BLOCKS / GROUPED_THREADS };
static_assert(GROUPED_ROWS == GROUPED_COLUMNS, "operands are moved alike");

struct stage {
    uint32_t rows[GROUPED_ROWS * LINE];
    uint8_t scales[GROUPED_ROWS * CHUNK_BLOCKS / 2]; /* MXFP4 */
};

/* 16 codes and their scale. */
struct piece {
    uint32_t words[4]; /* e2m1: two of them */
    uint32_t scale;
};

/* ---- numbers ---- */

/* e4m3 as fp16, exact; NaN stays NaN. */
__device__ inline uint32_t scale_pair(uint32_t code)
{
    uint32_t half = (code & 0x80) << 8 | (code & 0x7f) << 7;
    uint32_t pair = half | half << 16;
    return (code & 0x7f) == 0x7f ? 0x7fff7fffu : mul_f16x2(pair, 0x5c005c00u /* 2^8 twice */);
}

/* Codes i and i + 4 of a word of e2m1, times 2^-14. */
__device__ inline uint32_t e2m1_pair(uint32_t word, int i)
{
    uint32_t at_top = word << (12 - 4 * i);
    return (at_top & 0x80008000u) | (at_top >> 3 & 0x0e000e00u);
}

/* Codes i and i + 2 of a word of e4m3, times 2^-8. */
__device__ inline uint32_t e4m3_pair(uint32_t word, int i)
{
    uint32_t at_top = word << (8 - 8 * i);
    uint32_t pair = (at_top & 0x80008000u) | (at_top >> 1 & 0x3f803f80u);
    uint32_t nan = ((pair & 0x3f803f80u) + 0x00800080u) & 0x40004000u;
    return pair | (nan >> 14) * 0x7fffu;
}

template <int FORMAT> __device__ constexpr float sum_scale()
{
    return FORMAT == DTYPE_FP8_E4M3 ? 0x1p16f : FORMAT == DTYPE_MXFP4 ? 1.0f : 0x1p28f;
}

/* ---- operands: from memory to registers to shared memory ---- */

template <int FORMAT>
__device__ inline piece load_piece(const uint8_t *codes, const uint8_t *scales, int layout,
                                   int64_t row, uint32_t rows, uint32_t block, uint32_t k)
{
    piece p = {{0, 0, 0, 0}, 0};
    if (row >= rows || block * BLOCK_16 >= k) return p;
    if (FORMAT == DTYPE_FP8_E4M3) {
        uint4 v = *(const uint4 *)(codes + row * k + block * BLOCK_16);
        p.words[0] = v.x, p.words[1] = v.y, p.words[2] = v.z, p.words[3] = v.w;
        return p;
    }
    uint2 v = *(const uint2 *)(codes + row * (k / 2) + block * (BLOCK_16 / 2));
    p.words[0] = v.x, p.words[1] = v.y;
    const uint32_t shared_by = FORMAT == DTYPE_MXFP4 ? 2 : 1;
    p.scale = scales[scale_index(layout, row, block / shared_by, k / BLOCK_16 / shared_by)];
    return p;
}

/* Of weights in tiles. */
__device__ inline piece load_tiled(const uint8_t *tiles, int64_t row, uint32_t rows, uint32_t block,
                                   uint32_t k)
{
    piece p = {{0, 0, 0, 0}, 0};
    if (row >= rows || block * BLOCK_16 >= k) return p;
    uint2 v = *(const uint2 *)(tiles + weight_code_index(row, block * BLOCK_16, k));
    p.words[0] = v.x, p.words[1] = v.y;
    p.scale = tiles[weight_scale_index(row, block, k)];
    return p;
}

template <int FORMAT>
__device__ inline void put_piece(stage &s, uint32_t row, uint32_t block, const piece &p)
{
    uint32_t words[8];
    const uint32_t scale = FORMAT == DTYPE_NVFP4 ? scale_pair(p.scale) : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (FORMAT == DTYPE_FP8_E4M3) {
            words[i] = e4m3_pair(p.words[i / 2], i % 2);
            continue;
        }
        words[i] = e2m1_pair(p.words[i / 4], i % 4);
        if (FORMAT == DTYPE_NVFP4) words[i] = mul_f16x2(words[i], scale);
    }
    uint4 *to = (uint4 *)&s.rows[row * LINE + block * 8];
    to[0] = {words[0], words[1], words[2], words[3]};
    to[1] = {words[4], words[5], words[6], words[7]};
    if (FORMAT == DTYPE_MXFP4 && block % 2 == 0)
        s.scales[row * (CHUNK_BLOCKS / 2) + block / 2] = (uint8_t)p.scale;
}

/* An operand of a tile, by all threads; IN: enum weight_layout. */
template <int FORMAT, int IN = WEIGHTS_ROWS> struct source {
    const uint8_t *codes, *scales;
    int64_t first_row;
    uint32_t rows, k;
    int layout;

    __device__ void load(piece p[PIECES], uint32_t chunk) const
    {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            uint32_t at = threadIdx.x + i * GROUPED_THREADS;
            int64_t row = first_row + at / CHUNK_BLOCKS;
            uint32_t block = chunk * CHUNK_BLOCKS + at % CHUNK_BLOCKS;
            p[i] = IN == WEIGHTS_TILES
                       ? load_tiled(codes, row, rows, block, k)
                       : load_piece<FORMAT>(codes, scales, layout, row, rows, block, k);
        }
    }

    __device__ void put(stage &s, const piece p[PIECES]) const
    {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            uint32_t at = threadIdx.x + i * GROUPED_THREADS;
            put_piece<FORMAT>(s, at / CHUNK_BLOCKS, at % CHUNK_BLOCKS, p[i]);
        }
    }
};

/* ---- products: a warp has 32 x 32 of a tile, as 2 x 4 pieces of 16 x 8 ---- */

struct sums {
    float at[2][4][4];
};

struct place {
    uint32_t row, column; /* the warp's first of the tile */
    uint32_t g, t;        /* of a fragment */
};

__device__ inline place my_place()
{
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    return {warp / 2 * 32, warp % 2 * 32, lane / 4, lane % 4};
}

__device__ inline void load_left(uint32_t left[4], const stage &a, const place &me, int i,
                                 uint32_t block)
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        left[j] =
            a.rows[(me.row + i * 16 + me.g + j % 2 * 8) * LINE + block * 8 + me.t + j / 2 * 4];
}

__device__ inline void load_right(uint32_t right[2], const stage &b, const place &me, int i,
                                  uint32_t block)
{
#pragma unroll
    for (int j = 0; j < 2; j++)
        right[j] = b.rows[(me.column + i * 8 + me.g) * LINE + block * 8 + me.t + j * 4];
}

__device__ inline void multiply_16(sums &d, const stage &a, const stage &b, const place &me,
                                   uint32_t block)
{
    uint32_t left[2][4], right[4][2];
#pragma unroll
    for (int i = 0; i < 2; i++) load_left(left[i], a, me, i, block);
#pragma unroll
    for (int i = 0; i < 4; i++) load_right(right[i], b, me, i, block);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) mma_f16(d.at[i][j], left[i], right[j]);
}

/* sum times 2^(x-127) times 2^(y-127), in two steps, neither of which leaves float32 before the
 * result does. */
__device__ inline float scaled_sum(float sum, uint32_t x, uint32_t y, float before)
{
    uint32_t both = x + y, half = both / 2;
    if (x == 255 || y == 255) return __int_as_float(0x7fc00000);
    return fmaf(sum * e8m0_to_f32((uint8_t)half), e8m0_to_f32((uint8_t)(both - half)), before);
}

/* A piece of 16 x 8: the sums of a block of 32, times its scales. */
__device__ inline void add_scaled(float d[4], const float part[4], const stage &a, const stage &b,
                                  uint32_t row, uint32_t column, uint32_t block)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t x = a.scales[(row + e / 2 * 8) * (CHUNK_BLOCKS / 2) + block];
        uint32_t y = b.scales[(column + e % 2) * (CHUNK_BLOCKS / 2) + block];
        d[e] = scaled_sum(part[e] * 0x1p28f, x, y, d[e]);
    }
}

__device__ inline void multiply_32(sums &d, const stage &a, const stage &b, const place &me,
                                   uint32_t block)
{
    uint32_t left[2][2][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) load_left(left[i][e], a, me, i, 2 * block + e);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t right[2][2];
        load_right(right[0], b, me, j, 2 * block);
        load_right(right[1], b, me, j, 2 * block + 1);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float part[4] = {};
            mma_f16(part, left[i][0], right[0]);
            mma_f16(part, left[i][1], right[1]);
            add_scaled(d.at[i][j], part, a, b, me.row + i * 16 + me.g, me.column + j * 8 + 2 * me.t,
                       block);
        }
    }
}

template <int FORMAT>
__device__ inline void multiply_chunk(sums &d, const stage &a, const stage &b, const place &me)
{
    if (FORMAT != DTYPE_MXFP4) {
        for (uint32_t block = 0; block < CHUNK_BLOCKS; block++) multiply_16(d, a, b, me, block);
        return;
    }
    for (uint32_t block = 0; block < CHUNK_BLOCKS / 2; block++) multiply_32(d, a, b, me, block);
}

/* ---- results ---- */

template <int FORMAT, bool GATED>
__device__ inline void store_tile(const grouped_tiles_args &a, const group &g, const sums &d,
                                  const sums &up, int64_t first_row, int64_t first_column)
{
    place me = my_place();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t row = first_row + me.row + i * 16 + me.g + e / 2 * 8;
                int64_t column = first_column + me.column + j * 8 + 2 * me.t + e % 2;
                if (row >= g.m || column >= g.n) continue;
                const float scale = sum_scale<FORMAT>();
                float value = finish(d.at[i][j][e] * scale, g.factor, g.bias, column);
                if (GATED)
                    value = swiglu(value,
                                   finish(up.at[i][j][e] * scale, g.up_factor, g.up_bias, column),
                                   a.alpha, a.limit);
                cache_put(a.c_type, g.c, row * g.n + column, value);
            }
}

/* ---- tiles ---- */

/* The next chunk is on its way to registers while this one is multiplied. */
template <int FORMAT, bool GATED, int WEIGHTS>
__device__ inline void multiply_groups(const grouped_tiles_args &a)
{
    __shared__ __align__(16) stage rows, columns, ups;
    const group &g = group_of(a, blockIdx.x);
    uint32_t tile = blockIdx.x - g.first_tile,
             tiles_m = (uint32_t)(g.m + GROUPED_ROWS - 1) / GROUPED_ROWS;
    int64_t first_row = (int64_t)(tile % tiles_m) * GROUPED_ROWS;
    int64_t first_column = (int64_t)(tile / tiles_m) * GROUPED_COLUMNS;
    uint32_t k = (uint32_t)g.k, chunks = (k + GROUPED_CHUNK - 1) / GROUPED_CHUNK;
    const source<FORMAT> left = {g.a, g.a_scales, first_row, (uint32_t)g.m, k, a.scales};
    const source<FORMAT, WEIGHTS> right = {g.b, g.b_scales, first_column, (uint32_t)g.n, k, a.scales};
    const source<FORMAT, WEIGHTS> other = {g.up, g.up_scales, first_column, (uint32_t)g.n,
                                           k,    a.scales};
    piece p[PIECES], q[PIECES], r[PIECES];
    sums d = {}, up = {};
    const place me = my_place();
    left.load(p, 0);
    right.load(q, 0);
    if (GATED) other.load(r, 0);
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        left.put(rows, p);
        right.put(columns, q);
        if (GATED) other.put(ups, r);
        __syncthreads();
        if (chunk + 1 < chunks) {
            left.load(p, chunk + 1);
            right.load(q, chunk + 1);
            if (GATED) other.load(r, chunk + 1);
        }
        multiply_chunk<FORMAT>(d, rows, columns, me);
        if (GATED) multiply_chunk<FORMAT>(up, rows, ups, me);
        __syncthreads();
    }
    store_tile<FORMAT, GATED>(a, g, d, up, first_row, first_column);
}

/* Two blocks on an SM: asked for fewer registers, ptxas of 13.0 spills for sm_120. */
#define GROUPED_KERNEL(name, format, gated, weights)                                               \
    extern "C" __global__ void __launch_bounds__(GROUPED_THREADS, 2)                               \
        name(const __grid_constant__ grouped_tiles_args a)                                         \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        multiply_groups<format, gated, weights>(a);                                                \
    }

GROUPED_KERNEL(grouped_gemm_nvfp4, DTYPE_NVFP4, false, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_mxfp4, DTYPE_MXFP4, false, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_fp8, DTYPE_FP8_E4M3, false, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_nvfp4_gated, DTYPE_NVFP4, true, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_mxfp4_gated, DTYPE_MXFP4, true, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_fp8_gated, DTYPE_FP8_E4M3, true, WEIGHTS_ROWS)
GROUPED_KERNEL(grouped_gemm_nvfp4_tiles, DTYPE_NVFP4, false, WEIGHTS_TILES)
GROUPED_KERNEL(grouped_gemm_nvfp4_tiles_gated, DTYPE_NVFP4, true, WEIGHTS_TILES)
