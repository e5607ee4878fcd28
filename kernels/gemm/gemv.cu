/* Products with few rows, where reading the weights is all that counts. A block owns 16 features, its
 * warps share them along k; tensor cores multiply, because they cost nothing beside the reading.
 *
 * Weights are the 16x16 operand, straight from memory: k may be taken in any order as long as both
 * operands agree, so 16 bytes in a row are a lane's share of two products. The 8 columns of the other
 * operand hold R rows of activations, each as the sum of P bf16 numbers: with P = 3 all 24 bits of a
 * float32 are there, and the product is exact.
 *
 * MXFP4: two nibbles 16 bits apart become two bf16 by mask and shift, times a power of two that holds
 * the block's scale. */
#include "common.cuh"
#include "gemm/gemm_args.h"
#include "gemm/groups.cuh"
#include "mma.cuh"

enum { FEATURES = 16, WARPS = 8, THREADS = WARPS * WARP, COLUMNS = 8 };

/* What 16 bytes of a row hold, and how many of them are requested before the first is used. */
template <int TYPE> struct format {
    enum { PER_LOAD = 8, DEPTH = 4, SCALED = false };
};
template <> struct format<WEIGHT_MXFP4_SPLIT> {
    enum { PER_LOAD = 32, DEPTH = 2, SCALED = true };
};

/* One lane's weights of two rows, `DEPTH` windows ahead. */
template <int TYPE> struct window {
    uint4 low, high; /* rows g and g + 8 */
    uint8_t low_scale, high_scale;
};

/* Where those rows begin. */
struct row_pair {
    const uint4 *low, *high;
    const uint8_t *low_scales, *high_scales;
    uint32_t loads; /* of a row */
};

template <int TYPE>
__device__ inline row_pair rows_at(const gemm_kernel_args &a, int64_t low, int64_t high)
{
    row_pair rows;
    rows.loads = (uint32_t)a.k / format<TYPE>::PER_LOAD;
    rows.low = (const uint4 *)a.w + low * rows.loads;
    rows.high = (const uint4 *)a.w + high * rows.loads;
    rows.low_scales = (const uint8_t *)a.scales + low * rows.loads;
    rows.high_scales = (const uint8_t *)a.scales + high * rows.loads;
    return rows;
}

template <int TYPE>
__device__ inline void fetch(window<TYPE> &w, const row_pair &rows, uint32_t load)
{
    w.low = w.high = {0, 0, 0, 0};
    w.low_scale = w.high_scale = 0;
    if (load >= rows.loads) return;
    w.low = load_once(rows.low + load);
    w.high = load_once(rows.high + load);
    if (!format<TYPE>::SCALED) return;
    w.low_scale = rows.low_scales[load];
    w.high_scale = rows.high_scales[load];
}

/* ---- activations in shared memory: [column][k / PER_LOAD] groups ---- */

/* Bytes between two groups: 16 more than they take, so that four lanes reach different banks. */
template <int TYPE> __device__ inline int group_bytes()
{
    return format<TYPE>::SCALED ? 80 : 16;
}

/* The 8 values of chunk c of a row, in the order of the products, and where the chunk belongs in a
 * column. Nibbles 4 i + n of a block lie in word i at bit 8 n, nibbles 16 + 4 i + n four above; the two
 * of a pair are 16 bits apart. */
template <int TYPE>
__device__ inline int take_chunk(const float *row, uint32_t c, bool present, float x[8])
{
    uint32_t block = c / 4, i = c % 4;
    uint32_t first = format<TYPE>::SCALED ? 32 * block + 4 * i : 8 * c;
    uint32_t second = first + (format<TYPE>::SCALED ? 16 : 4);
    float4 low = present ? *(const float4 *)(row + first) : float4{0, 0, 0, 0};
    float4 high = present ? *(const float4 *)(row + second) : float4{0, 0, 0, 0};
    const float straight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float paired[8] = {low.x, low.z, high.x, high.z, low.y, low.w, high.y, high.w};
#pragma unroll
    for (int n = 0; n < 8; n++) x[n] = format<TYPE>::SCALED ? paired[n] : straight[n];
    return format<TYPE>::SCALED ? (int)(block * 80 + i * 16) : (int)(c * 16);
}

/* Rows as columns of bf16 parts. All but the last part are cut, not rounded: nothing overflows, and
 * what is left is exact. */
template <int TYPE, int R, int P>
__device__ inline void spread_rows(const gemm_kernel_args &a, const row_tile &tile, char *columns)
{
    uint32_t column_bytes = (uint32_t)a.k / format<TYPE>::PER_LOAD * group_bytes<TYPE>();
#pragma unroll
    for (int r = 0; r < R; r++) {
        int64_t row = tile.first + (r < tile.count ? r : 0);
        const float *from = a.a + (a.a_rows ? a.a_rows[row] : row) * a.k;
        for (uint32_t c = threadIdx.x; c < (uint32_t)a.k / 8; c += THREADS) {
            float x[8];
            char *to = columns + take_chunk<TYPE>(from, c, r < tile.count, x);
#pragma unroll
            for (int p = 0; p < P; p++) {
                uint32_t bits[8];
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    bits[n] = p == P - 1 ? f32_to_bf16(x[n]) : __float_as_uint(x[n]) >> 16;
                    x[n] -= __uint_as_float(bits[n] << 16);
                }
                *(uint4 *)(to + (r * P + p) * column_bytes) =
                    uint4{bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                          bits[6] | bits[7] << 16};
            }
        }
    }
}

/* ---- products ---- */

__device__ inline void multiply(float sum[4], const window<WEIGHT_BF16> &w, const char *x)
{
    uint4 b = x ? *(const uint4 *)x : uint4{0, 0, 0, 0};
    const uint32_t a0[4] = {w.low.x, w.high.x, w.low.y, w.high.y}, b0[2] = {b.x, b.y};
    const uint32_t a1[4] = {w.low.z, w.high.z, w.low.w, w.high.w}, b1[2] = {b.z, b.w};
    mma_bf16(sum, a0, b0);
    mma_bf16(sum, a1, b1);
}

/* 2^(e-1), twice: nibbles placed in a bf16 read as their value times 2^-126. Above e = 128 that is no
 * bf16; `rest` is then what is missing. */
__device__ inline uint32_t scale_pair(uint32_t e, uint32_t &rest)
{
    uint32_t bits = e == 255 ? 0x7fc0u : (e > 128 ? 254u : e + 126) << 7;
    rest = (e > 128 && e < 255 ? e - 1 : 127u) << 7;
    rest |= rest << 16;
    return bits | bits << 16;
}

/* Pair s of a word: bits 4 s and 4 s + 16 onwards. */
template <int S> __device__ inline uint32_t nibble_pair(uint32_t word)
{
    uint32_t sign = S < 3 ? word << (12 - 4 * S) : word;
    uint32_t rest = S < 2 ? word << (6 - 4 * S) : word >> (4 * S - 6);
    return (sign & 0x80008000u) | (rest & 0x01c001c0u);
}

template <int HALF>
__device__ inline void multiply_word(float sum[4], uint32_t low, uint32_t high, uint32_t low_scale,
                                     uint32_t high_scale, uint32_t b0, uint32_t b1)
{
    const uint32_t a[4] = {mul_bf16x2(nibble_pair<2 * HALF>(low), low_scale),
                           mul_bf16x2(nibble_pair<2 * HALF>(high), high_scale),
                           mul_bf16x2(nibble_pair<2 * HALF + 1>(low), low_scale),
                           mul_bf16x2(nibble_pair<2 * HALF + 1>(high), high_scale)};
    const uint32_t b[2] = {b0, b1};
    mma_bf16(sum, a, b);
}

__device__ inline void multiply(float sum[4], const window<WEIGHT_MXFP4_SPLIT> &w, const char *x)
{
    uint32_t low_rest, high_rest;
    uint32_t low_scale = scale_pair(w.low_scale, low_rest);
    uint32_t high_scale = scale_pair(w.high_scale, high_rest);
    const uint32_t low[4] = {w.low.x, w.low.y, w.low.z, w.low.w};
    const uint32_t high[4] = {w.high.x, w.high.y, w.high.z, w.high.w};
    /* Scales this large do not occur in trained models; the sum takes what the bf16 could not. */
    bool large = __any_sync(FULL_MASK, (w.low_scale > 128) | (w.high_scale > 128));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 b = x ? *(const uint4 *)(x + 16 * i) : uint4{0, 0, 0, 0};
        if (!large) {
            multiply_word<0>(sum, low[i], high[i], low_scale, high_scale, b.x, b.y);
            multiply_word<1>(sum, low[i], high[i], low_scale, high_scale, b.z, b.w);
            continue;
        }
        const uint32_t bs[4] = {b.x, b.y, b.z, b.w};
        const uint32_t pairs[2][4] = {{nibble_pair<0>(low[i]), nibble_pair<1>(low[i]),
                                       nibble_pair<2>(low[i]), nibble_pair<3>(low[i])},
                                      {nibble_pair<0>(high[i]), nibble_pair<1>(high[i]),
                                       nibble_pair<2>(high[i]), nibble_pair<3>(high[i])}};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t v = mul_bf16x2(pairs[n % 2][2 * half + n / 2], n % 2 ? high_scale : low_scale);
                a[n] = mul_bf16x2(v, n % 2 ? high_rest : low_rest);
            }
            mma_bf16(sum, a, bs + 2 * half);
        }
    }
}

/* Sums of the warps and of the parts, the small parts first, for one tile of features. */
template <int R, int P>
__device__ inline void finish(const gemm_kernel_args &a, const row_tile &tile, int64_t first,
                              float partial[WARPS][FEATURES][COLUMNS + 1])
{
    int64_t feature = first + threadIdx.x % FEATURES;
    int r = threadIdx.x / FEATURES;
    if (r >= tile.count || feature >= a.n) return;
    float total = 0;
    for (int p = P - 1; p >= 0; p--)
        for (int w = 0; w < WARPS; w++)
            total += partial[w][threadIdx.x % FEATURES][r * P + p];
    if (a.bias) total += a.bias[tile.group * a.n + feature];
    a.c[(tile.first + r) * a.n + feature] = total;
}

/* Rows of W for this lane in the tile that begins at feature `first` of group `group`. */
template <int TYPE>
__device__ inline row_pair tile_rows(const gemm_kernel_args &a, int64_t group, int64_t first)
{
    int g = threadIdx.x % WARP / 4;
    int64_t last = a.n - 1, low = first + g < last ? first + g : last;
    int64_t high = first + g + 8 < last ? first + g + 8 : last;
    return rows_at<TYPE>(a, group * a.n + low, group * a.n + high);
}

/* A block takes every gridDim.x-th tile of features; what the next one needs first is on its way before
 * the last one is summed up. */
template <int TYPE, int R, int P> __device__ inline void gemv(const gemm_kernel_args &a)
{
    enum { DEPTH = format<TYPE>::DEPTH, STEP = WARPS * 4 };
    extern __shared__ __align__(16) char columns[];
    __shared__ float partial[WARPS][FEATURES][COLUMNS + 1];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    int64_t first = (int64_t)blockIdx.x * FEATURES, stride = (int64_t)gridDim.x * FEATURES;
    uint32_t start = warp * 4 + t;
    window<TYPE> next[DEPTH];

    /* Dense weights do not depend on what ran before: they are asked for while that ends. */
    bool early = !a.group_offsets;
    row_pair rows = tile_rows<TYPE>(a, 0, first);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (early) fetch<TYPE>(next[d], rows, start + d * STEP);
    wait_for_input();
    let_next_start();
    row_tile tile = find_tile(a.group_offsets, a.groups, a.m, blockIdx.y, R);
    if (tile.count == 0) return;
    rows = tile_rows<TYPE>(a, tile.group, first);
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (!early) fetch<TYPE>(next[d], rows, start + d * STEP);
    spread_rows<TYPE, R, P>(a, tile, columns);
    __syncthreads();

    for (; first < a.n; first += stride) {
        float sum[4] = {0, 0, 0, 0};
        const char *x = columns + (g * rows.loads + start) * group_bytes<TYPE>();
        uint32_t load = start;
        for (; load - t < rows.loads; load += DEPTH * STEP) {
            window<TYPE> now[DEPTH];
#pragma unroll
            for (int d = 0; d < DEPTH; d++) now[d] = next[d];
#pragma unroll
            for (int d = 0; d < DEPTH; d++) fetch<TYPE>(next[d], rows, load + (DEPTH + d) * STEP);
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                bool mine = g < R * P && load + d * STEP < rows.loads;
                multiply(sum, now[d], mine ? x + d * STEP * group_bytes<TYPE>() : nullptr);
            }
            x += DEPTH * STEP * group_bytes<TYPE>();
        }
        if (first + stride < a.n) {
            rows = tile_rows<TYPE>(a, tile.group, first + stride);
#pragma unroll
            for (int d = 0; d < DEPTH; d++) fetch<TYPE>(next[d], rows, start + d * STEP);
        }
        partial[warp][g][2 * t] = sum[0];
        partial[warp][g][2 * t + 1] = sum[1];
        partial[warp][g + 8][2 * t] = sum[2];
        partial[warp][g + 8][2 * t + 1] = sum[3];
        __syncthreads();
        finish<R, P>(a, tile, first, partial);
        __syncthreads();
    }
}

#define GEMV(name, type, rows, parts)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                        \
        name(const __grid_constant__ gemm_kernel_args a)                                            \
    {                                                                                               \
        gemv<type, rows, parts>(a);                                                                 \
    }

GEMV(gemv_f32_bf16_1, WEIGHT_BF16, 1, 3)
GEMV(gemv_f32_bf16_2, WEIGHT_BF16, 2, 3)
GEMV(gemv_bf16_bf16_8, WEIGHT_BF16, 8, 1)
GEMV(gemv_f32_mxfp4_1, WEIGHT_MXFP4_SPLIT, 1, 3)
GEMV(gemv_f32_mxfp4_2, WEIGHT_MXFP4_SPLIT, 2, 3)
GEMV(gemv_bf16_mxfp4_8, WEIGHT_MXFP4_SPLIT, 8, 1)
