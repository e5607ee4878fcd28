/* Products with few rows (few_rows.cuh). A block owns 16 features at a time, its warps share them along
 * k. */
#include "gemm/few_rows.cuh"
#include "gemm/gemm_args.h"
#include "gemm/groups.cuh"

enum { THREADS = FEW_ROWS_THREADS, WARPS = THREADS / WARP, NORMED_CHUNKS = FEW_ROWS_HELD_MAX / 8 / THREADS };

/* What becomes of the row before the product. */
enum form { PLAIN, NORMED };

__device__ inline void point(bf16_weights &w, const gemm_kernel_args &a, int64_t group, int64_t first)
{
    int g = threadIdx.x % WARP / 4;
    int64_t last = a.n - 1, low = first + g < last ? first + g : last;
    int64_t high = first + g + 8 < last ? first + g + 8 : last;
    w.set(a.w, nullptr, a.k, group * a.n + low, group * a.n + high);
}

/* Rows that fill the last tile are there; a tile that is not there is taken from the one before. */
__device__ inline void point(q8_0_weights &w, const gemm_kernel_args &a, int64_t group, int64_t first)
{
    int64_t rows = (int64_t)tile_count(TILES_Q8_0, a.n) * TILE_ROWS_Q8_0, low = first + threadIdx.x % WARP / 4;
    w.set(a.w, a.scales, a.k, group * rows + low, group * rows + (low + 8 < rows ? low + 8 : low));
}

__device__ inline void point(mxfp4_weights &w, const gemm_kernel_args &a, int64_t group, int64_t first)
{
    w.set(a.w, a.scales, a.k, group * tile_count(TILES_MXFP4, a.n) + first / FEATURES);
}

template <class W, int R, int P>
__device__ inline void spread_rows(const gemm_kernel_args &a, const row_tile &tile, char *columns)
{
    uint32_t bytes = column_bytes<W>(a.k);
#pragma unroll
    for (int r = 0; r < R; r++) {
        int64_t row = tile.first + r;
        if (a.a_rows && r < tile.count) row = a.a_rows[row];
        spread_row<W, P, 2>(r < tile.count ? a.a + row * a.k : nullptr, a.k, columns + r * P * bytes,
                         threadIdx.x, THREADS);
    }
}

/* A block takes every gridDim.x-th tile of features; what the next one needs first is on its way before
 * the last one is summed up. */
template <class W, int DEPTH, int R, int P, form FORM>
__device__ inline void gemv(const gemm_kernel_args &a)
{
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[WARPS];
    __shared__ float scratch[WARP];
    held_row<NORMED_CHUNKS, THREADS> row;
    dot<W, 1, WARPS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, steps = step_count<W>(a.k);
    int64_t first = (int64_t)blockIdx.x * FEATURES, stride = (int64_t)gridDim.x * FEATURES;

    /* Dense weights do not depend on what ran before: they are asked for while that ends. */
    bool early = !a.group_offsets;
    if (early) {
        point(product.weights[0], a, 0, first);
        product.open(warp, steps);
    }
    if (FORM == NORMED) ask_near(a.gain, a.k);
    wait_for_input();
    let_next_start();
    row_tile tile = find_tile(a.group_offsets, a.groups, a.m, blockIdx.y, R);
    if (tile.count == 0) return;
    if (!early) {
        point(product.weights[0], a, tile.group, first);
        product.open(warp, steps);
    }
    if (FORM == NORMED) {
        const float *from = a.a + (a.a_rows ? a.a_rows[0] : 0) * a.k;
        row.take(from, a.k);
        row.norm(from, a.gain, a.k, a.eps, scratch);
        row.template spread<W, P>(a.k, columns);
    } else {
        spread_rows<W, R, P>(a, tile, columns);
    }
    __syncthreads();

    const char *x = lane_column<W>(columns, a.k, R * P);
    for (; first < a.n; first += stride) {
        float sum[1][4] = {{0, 0, 0, 0}};
        int64_t feature = first + threadIdx.x % FEATURES;
        int r = threadIdx.x / FEATURES;
        bool finishes = r < tile.count && feature < a.n;
        float *c = a.c + (tile.first + r) * a.n + feature;
        float start = finishes && a.bias ? a.bias[tile.group * a.n + feature] : 0;
        product.run(sum, x, warp, steps);
        if (first + stride < a.n) {
            point(product.weights[0], a, tile.group, first + stride);
            product.open(warp, steps);
        }
        partial[warp].template put<W>(sum[0]);
        __syncthreads();
        if (finishes) *c = total_of<P, WARPS>(partial, threadIdx.x % FEATURES, r) + start;
        __syncthreads();
    }
}

#define GEMV(name, weights, depth, rows, parts, form)                                               \
    extern "C" __global__ void __launch_bounds__(THREADS, FEW_ROWS_BLOCKS)                          \
        name(const __grid_constant__ gemm_kernel_args a)                                            \
    {                                                                                               \
        gemv<weights, depth, rows, parts, form>(a);                                                 \
    }

GEMV(gemv_f32_bf16_1, bf16_weights, 4, 1, 3, PLAIN)
GEMV(gemv_f32_bf16_2, bf16_weights, 4, 2, 3, PLAIN)
GEMV(gemv_bf16_bf16_8, bf16_weights, 4, 8, 1, PLAIN)
GEMV(gemv_f32_mxfp4_1, mxfp4_weights, 6, 1, 3, PLAIN)
GEMV(gemv_f32_mxfp4_2, mxfp4_weights, 6, 2, 3, PLAIN)
GEMV(gemv_bf16_mxfp4_8, mxfp4_weights, 6, 8, 1, PLAIN)
GEMV(gemv_f32_q8_0_1, q8_0_weights, 3, 1, 3, PLAIN)
GEMV(gemv_f32_q8_0_2, q8_0_weights, 3, 2, 3, PLAIN)
GEMV(gemv_bf16_q8_0_8, q8_0_weights, 3, 8, 1, PLAIN)
GEMV(gemv_f32_q8_0_normed, q8_0_weights, 3, 1, 3, NORMED)
