// needs: 120a
/* Grouped products of block-scaled matrices in e2m1 on sm_12x, whose tensor cores take codes and
 * scales as they are: NVFP4 where no scale has a sign, and MXFP4; any k that is whole blocks, any
 * rows, every epilogue.
 *
 * A block computes a tile. Codes come by asynchronous copies, four stages ahead; scales, which may
 * begin at any byte, through registers: read when the codes of their chunk are asked for, put into
 * shared memory a chunk later, when they have long been there. In a line of 64 bytes the units of
 * 16 change places by the line's number, so that eight lines of one matrix of ldmatrix are in banks
 * of their own. What lies behind the rows or the end of k reads as zero, codes and scales: the last
 * atoms of scales may have anything there. */
#include "common.cuh"
#include "copy_async.cuh"
#include "copy_small.cuh"
#include "grouped_gemm/grouped_gemm_mxf4_args.h"
#include "grouped_gemm/grouped_tiles.cuh"
#include "mma_block_scaled.cuh"
#include "swiglu/swiglu.cuh"

#ifdef KERNELS_BLOCK_SCALED /* elsewhere the file has no kernels, and the host chooses none */

typedef grouped_tiles_group group;

enum { UNIT = 16, LINE_UNITS = MXF4_LINE / UNIT };
/* A thread brings one unit of every 64th line, and the scales of one line. */
enum { PACE = MXF4_THREADS / LINE_UNITS, UNITS = MXF4_LINES / PACE };
static_assert(MXF4_LINES == MXF4_THREADS, "a thread has the scales of a line");
static_assert(PACE % 8 == 0, "its lines have their units in the same places");

template <int FORMAT> __device__ constexpr uint32_t block_of()
{
    return FORMAT == DTYPE_MXFP4 ? 32 : 16;
}

/* ---- lines: rows of A, then those of B, as they lie in memory ---- */

struct corner {
    int64_t row, column; /* the tile's first of C */
};

struct line {
    const uint8_t *codes, *scales; /* of the matrix */
    int64_t row;
    bool there;
};

/* Where GATED every 32 lines of B are 16 of the gate and the 16 of up for the same columns: a warp
 * has the sums of both. */
template <bool GATED>
__device__ inline line line_of(const group &g, const corner &at, uint32_t number)
{
    if (number < MXF4_ROWS) return {g.a, g.a_scales, at.row + number, at.row + number < g.m};
    const uint32_t n = number - MXF4_ROWS;
    const bool up = GATED && n % 32 >= 16;
    const int64_t column = at.column + (GATED ? n / 32 * 16 + n % 16 : n);
    return {up ? g.up : g.b, up ? g.up_scales : g.b_scales, column, column < g.n};
}

/* Scales `block` to block + 3 of a line, 0 for those that it has not. */
__device__ inline uint32_t scale_word(const line &l, int layout, uint32_t block, uint32_t blocks)
{
    if (!l.there || block >= blocks) return 0;
    const uint32_t left = blocks - block;
    const uint8_t *from = l.scales + scale_index(layout, l.row, block, blocks);
    if (layout == SCALES_ATOMS || blocks % 4 == 0) {
        uint32_t word = *(const uint32_t *)from;
        return left < 4 ? word & ((1u << 8 * left) - 1) : word;
    }
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4 && i < left; i++) word |= (uint32_t)from[i] << 8 * i;
    return word;
}

/* What a thread brings. */
struct carrier {
    const uint8_t *codes[UNITS]; /* its unit of the first chunk */
    bool there[UNITS];
    uint32_t unit, to; /* bytes in a line; in a stage */
    line scales;
    uint32_t words[2]; /* scales that were read and not put yet */
};

template <bool GATED> __device__ inline carrier make_carrier(const group &g, const corner &at)
{
    const uint32_t unit = threadIdx.x % LINE_UNITS, first = threadIdx.x / LINE_UNITS;
    carrier c;
    c.unit = unit * UNIT;
    c.to = first * MXF4_LINE + (unit ^ first / 2 % LINE_UNITS) * UNIT;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const line l = line_of<GATED>(g, at, first + i * PACE);
        c.codes[i] = l.codes + l.row * (g.k / 2) + c.unit;
        c.there[i] = l.there;
    }
    c.scales = line_of<GATED>(g, at, threadIdx.x);
    return c;
}

/* Rows begin at multiples of 8 bytes, where k is a multiple of 32 of 16. */
__device__ inline void bring_codes(const carrier &c, uint32_t stage, uint32_t chunk, uint32_t bytes)
{
    const uint32_t at = chunk * MXF4_LINE, unit = at + c.unit;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const uint32_t to = stage + c.to + i * PACE * MXF4_LINE;
        const uint8_t *from = c.codes[i] + at;
        if (bytes % UNIT == 0) {
            copy_16(to, from, c.there[i] && unit < bytes);
            continue;
        }
        copy_8(to, from, c.there[i] && unit < bytes);
        copy_8(to + 8, from + 8, c.there[i] && unit + 8 < bytes);
    }
    copy_commit();
}

template <int FORMAT>
__device__ inline void read_scales(carrier &c, int layout, uint32_t chunk, uint32_t k)
{
    const uint32_t blocks = k / block_of<FORMAT>(),
                   first = chunk * (MXF4_CHUNK / block_of<FORMAT>());
    c.words[0] = scale_word(c.scales, layout, first, blocks);
    c.words[1] = FORMAT == DTYPE_NVFP4 ? scale_word(c.scales, layout, first + 4, blocks) : 0;
}

template <int FORMAT> __device__ inline void put_scales(const carrier &c, char *stage)
{
    uint32_t *to = (uint32_t *)(stage + MXF4_SCALES_AT) + threadIdx.x;
    to[0] = c.words[0];
    if (FORMAT == DTYPE_NVFP4) to[MXF4_LINES] = c.words[1];
}

/* ---- products: a warp has 64 x 32 of a tile, as up to 4 x 4 pieces of 16 x 8 ---- */

struct tile_sums {
    float at[4][4][4];
};

struct warp_place {
    uint32_t row, line;      /* the warp's first row of the tile, its first line of B */
    uint32_t a, b;           /* where a lane reads codes of the first pieces: line, */
    uint32_t a_unit, b_unit; /* and unit of the first half of a chunk */
    uint32_t turn;           /* of both lines' units */
    uint32_t a_scale, b_scale;
};

__device__ inline warp_place place_of_warp()
{
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, t = lane % 4;
    warp_place me;
    me.row = warp / 4 * 64;
    me.line = MXF4_ROWS + warp % 4 * 32;
    me.a = me.row + lane % 16;
    me.a_unit = lane / 16;
    me.b = me.line + lane / 16 * 8 + lane % 8;
    me.b_unit = lane / 8 % 2;
    me.turn = lane / 2 % LINE_UNITS;
    me.a_scale = me.row + t / 2 * 16 + t % 2 * 8 + lane / 4;
    me.b_scale = me.line + t * 8 + lane / 4;
    return me;
}

template <int FORMAT, int HALF, int A_PAIR, int B_LANE>
__device__ inline void multiply(float d[4], const uint32_t a[4], const uint32_t b[2],
                                uint32_t a_scales, uint32_t b_scales)
{
    if constexpr (FORMAT == DTYPE_MXFP4)
        mma_mxfp4<HALF, A_PAIR, B_LANE>(d, a, b, a_scales, b_scales);
    else
        mma_nvfp4<A_PAIR, B_LANE>(d, a, b, a_scales, b_scales);
}

/* Pieces of rows I to ROWS - 1. */
template <int FORMAT, int HALF, int ROWS, int I = 0>
__device__ inline void multiply_rows(tile_sums &d, const uint32_t a[4][4], const uint32_t b[8],
                                     const uint32_t a_scales[2], uint32_t b_scales)
{
    if constexpr (I < ROWS) {
        const uint32_t scales = a_scales[I / 2];
        multiply<FORMAT, HALF, I % 2, 0>(d.at[I][0], a[I], b, scales, b_scales);
        multiply<FORMAT, HALF, I % 2, 1>(d.at[I][1], a[I], b + 2, scales, b_scales);
        multiply<FORMAT, HALF, I % 2, 2>(d.at[I][2], a[I], b + 4, scales, b_scales);
        multiply<FORMAT, HALF, I % 2, 3>(d.at[I][3], a[I], b + 6, scales, b_scales);
        multiply_rows<FORMAT, HALF, ROWS, I + 1>(d, a, b, a_scales, b_scales);
    }
}

/* 64 of k: half a chunk. */
template <int FORMAT, int HALF, int ROWS>
__device__ inline void multiply_half(tile_sums &d, uint32_t stage, const warp_place &me)
{
    uint32_t a[4][4], b[8], a_scales[2];
    const uint32_t from_a = stage + me.a * MXF4_LINE + ((me.a_unit + 2 * HALF) ^ me.turn) * UNIT;
    const uint32_t from_b = stage + me.b * MXF4_LINE + ((me.b_unit + 2 * HALF) ^ me.turn) * UNIT;
    const uint32_t scales =
        stage + MXF4_SCALES_AT + (FORMAT == DTYPE_NVFP4 ? HALF * 4 * MXF4_LINES : 0);
#pragma unroll
    for (int i = 0; i < 2; i++) load_matrices(b + 4 * i, from_b + i * 16 * MXF4_LINE);
#pragma unroll
    for (int i = 0; i < ROWS; i++) load_matrices(a[i], from_a + i * 16 * MXF4_LINE);
#pragma unroll
    for (int i = 0; i < (ROWS + 1) / 2; i++)
        a_scales[i] = load_shared_4(scales + 4 * (me.a_scale + 32 * i));
    multiply_rows<FORMAT, HALF, ROWS>(d, a, b, a_scales, load_shared_4(scales + 4 * me.b_scale));
}

template <int FORMAT, int ROWS>
__device__ inline void multiply_stage(tile_sums &d, uint32_t stage, const warp_place &me)
{
    multiply_half<FORMAT, 0, ROWS>(d, stage, me);
    multiply_half<FORMAT, 1, ROWS>(d, stage, me);
}

/* The warp's pieces of rows that the group has: the two warps above each other in a tile share a
 * tensor core, which so does no more than it must for groups of few rows. */
template <int FORMAT>
__device__ inline void multiply_there(tile_sums &d, uint32_t stage, const warp_place &me,
                                      int pieces)
{
    switch (pieces) {
    case 4:
        return multiply_stage<FORMAT, 4>(d, stage, me);
    case 3:
        return multiply_stage<FORMAT, 3>(d, stage, me);
    case 2:
        return multiply_stage<FORMAT, 2>(d, stage, me);
    case 1:
        return multiply_stage<FORMAT, 1>(d, stage, me);
    }
}

/* ---- results ---- */

/* A sum of products, or where GATED that of the gate's and that of up's, as a number of C. */
template <bool GATED>
__device__ inline float result_of(const grouped_tiles_args &a, const group &g, float sum, float up,
                                  int64_t column)
{
    float value = finish(sum, g.factor, g.bias, column);
    if (GATED) value = swiglu(value, finish(up, g.up_factor, g.up_bias, column), a.alpha, a.limit);
    return value;
}

/* Two neighbours: together where rows begin at even numbers. */
__device__ inline void put_pair(const grouped_tiles_args &a, const group &g, int64_t row,
                                int64_t column, float x, float y)
{
    const int64_t at = row * g.n + column;
    if (g.n % 2) {
        cache_put(a.c_type, g.c, at, x);
        if (column + 1 < g.n) cache_put(a.c_type, g.c, at + 1, y);
    } else if (a.c_type == DTYPE_F32) {
        *(float2 *)((float *)g.c + at) = make_float2(x, y);
    } else {
        *(uint32_t *)((uint16_t *)g.c + at) =
            a.c_type == DTYPE_F16 ? f32_to_f16x2(x, y) : f32_to_bf16x2(x, y);
    }
}

template <bool GATED>
__device__ inline void store_pairs(const grouped_tiles_args &a, const group &g, const tile_sums &d,
                                   const corner &at, const warp_place &me)
{
    const uint32_t lane = threadIdx.x % WARP;
    const int64_t first = at.column + (me.line - MXF4_ROWS) / (GATED ? 2 : 1) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < (GATED ? 2 : 4); j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int64_t row = at.row + me.row + i * 16 + e * 8 + lane / 4;
                const int64_t column = first + j * 8, next = column + 1 < g.n ? column + 1 : column;
                if (row >= g.m || column >= g.n) continue;
                const float *sum = &d.at[i][j][2 * e], *up = &d.at[i][GATED ? j + 2 : j][2 * e];
                put_pair(a, g, row, column, result_of<GATED>(a, g, sum[0], up[0], column),
                         result_of<GATED>(a, g, sum[1], up[1], next));
            }
}

/* ---- tiles ---- */

/* Chunks are in the stages by turns. At the top of the loop a chunk's codes are there, and nobody
 * reads the stage of the chunk before it any more: the codes that come next go there. The scales
 * that were read last go to the stage before that one, for a chunk that is used in two turns or
 * more. */
template <int FORMAT, bool GATED>
__device__ inline void multiply_scaled(const grouped_tiles_args &a)
{
    extern __shared__ __align__(128) char memory[];
    const group &g = group_of(a, blockIdx.x);
    const uint32_t tile = blockIdx.x - g.first_tile, tiles_m = (g.m + MXF4_ROWS - 1) / MXF4_ROWS;
    const corner at = {(int64_t)(tile % tiles_m) * MXF4_ROWS,
                       (int64_t)(tile / tiles_m) * (GATED ? MXF4_COLUMNS_GATED : MXF4_COLUMNS)};
    const uint32_t k = (uint32_t)g.k, chunks = (k + MXF4_CHUNK - 1) / MXF4_CHUNK;
    const uint32_t start = shared_at(memory);
    const warp_place me = place_of_warp();
    const int64_t rows = g.m - at.row - me.row;
    const int pieces = rows <= 0 ? 0 : rows >= 64 ? 4 : (int)(rows + 15) / 16;
    carrier mine = make_carrier<GATED>(g, at);
    tile_sums d = {};
    for (uint32_t i = 0; i + 1 < MXF4_STAGES; i++) {
        bring_codes(mine, start + i * MXF4_STAGE, i, k / 2);
        read_scales<FORMAT>(mine, a.scales, i, k);
        if (i + 2 < MXF4_STAGES) put_scales<FORMAT>(mine, memory + i * MXF4_STAGE);
    }
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        const uint32_t now = chunk % MXF4_STAGES, next = chunk + MXF4_STAGES - 1;
        copy_wait<MXF4_STAGES - 2>();
        __syncthreads();
        bring_codes(mine, start + next % MXF4_STAGES * MXF4_STAGE, next, k / 2);
        put_scales<FORMAT>(mine, memory + (next - 1) % MXF4_STAGES * MXF4_STAGE);
        read_scales<FORMAT>(mine, a.scales, next, k);
        multiply_there<FORMAT>(d, start + now * MXF4_STAGE, me, pieces);
    }
    copy_wait<0>();
    store_pairs<GATED>(a, g, d, at, me);
}

/* One block on an SM, for its shared memory. */
#define GROUPED_KERNEL(name, format, gated)                                                        \
    extern "C" __global__ void __launch_bounds__(MXF4_THREADS, 1)                                  \
        name(const __grid_constant__ grouped_tiles_args a)                                         \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        multiply_scaled<format, gated>(a);                                                         \
    }

GROUPED_KERNEL(grouped_mxf4_nvfp4, DTYPE_NVFP4, false)
GROUPED_KERNEL(grouped_mxf4_mxfp4, DTYPE_MXFP4, false)
GROUPED_KERNEL(grouped_mxf4_nvfp4_gated, DTYPE_NVFP4, true)
GROUPED_KERNEL(grouped_mxf4_mxfp4_gated, DTYPE_MXFP4, true)

#endif
