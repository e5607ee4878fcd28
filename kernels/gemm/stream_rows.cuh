/* Products of 2 to 32 rows with dense weights, activations rounded to bf16, straight from memory.
 *
 * A warp multiplies T tiles of 16 features with 8 * N rows; warps share the steps along k. An
 * activation is needed once by a block, so nothing is staged: lanes read their share of a row as
 * float32, with weights and activations of the next steps on their way, and round it. A norm costs
 * no pass of its own: the gain joins the activations, squares are summed beside the products, and
 * the scale comes in last. */
#ifndef KERNELS_GEMM_STREAM_ROWS_CUH
#define KERNELS_GEMM_STREAM_ROWS_CUH

#include "gemm/few_rows.cuh"
#include "gemm/stream_rows_args.h"

enum { STREAM_WARPS = STREAM_THREADS / WARP };

/* A lane's share of a row in a step along k, in the order of the words of W::fragment. */
template <class W> struct lane_values {
    float x[W::STEP / 4];
};

/* 8 neighbours a lane. */
__device__ inline void take_values(lane_values<bf16_weights> &to, const float *row, uint32_t k,
                                   uint32_t step)
{
    take_chunk(row, k, 4 * step + threadIdx.x % 4, to.x);
}

/* Four lanes' pairs are 8 neighbours. */
template <class W>
__device__ inline void take_values(lane_values<W> &to, const float *row, uint32_t k, uint32_t step)
{
#pragma unroll
    for (int c = 0; c < 8; c++) {
        uint32_t at = step * W::STEP + 8 * c + threadIdx.x % 4 * 2;
        float2 pair = at < k ? *(const float2 *)(row + at) : float2{0, 0};
        to.x[2 * c] = pair.x, to.x[2 * c + 1] = pair.y;
    }
}

__device__ inline void set_words(bf16_weights::fragment &f, const uint32_t *words)
{
    f.x = {words[0], words[1], words[2], words[3]};
}

template <class F> __device__ inline void set_words(F &f, const uint32_t *words)
{
    f.x = {words[0], words[1], words[2], words[3]};
    f.y = {words[4], words[5], words[6], words[7]};
}

/* What the warps have, in dynamic shared memory: stream_rows_shared(T, N) bytes. */
template <int T, int N> struct stream_partial {
    float at[STREAM_WARPS][T * FEATURES][N * COLUMNS + 1];
    float squares[STREAM_WARPS][N * COLUMNS];

    __device__ float total(uint32_t feature, uint32_t r) const
    {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < STREAM_WARPS; w++) sum += at[w][feature][r];
        return sum;
    }
    __device__ float scale(const float *row, uint32_t r, uint32_t k, float eps) const
    {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < STREAM_WARPS; w++) sum += squares[w][r];
        if (isinf(sum)) return held_row<1, WARP>::wide_scale(row, k, eps);
        return 1 / sqrtf(sum / (float)k + eps);
    }
};

/* WD steps of weights on their way, XD of activations; XD divides WD. */
template <class W, int T, int N, int WD, int XD, bool NORMED> struct stream_rows {
    W weights[T];
    typename W::window held[T][WD];
    lane_values<W> values[N][XD], gains[NORMED ? XD : 1];
    const float *rows[N], *gain;
    uint32_t k, from, end; /* steps of this warp */

    /* Of the block: steps [first, last). Weights may be asked for before the activations are there. */
    __device__ void open_weights(uint32_t columns, uint32_t first, uint32_t last)
    {
        k = columns, from = first + threadIdx.x / WARP, end = last;
#pragma unroll
        for (int d = 0; d < WD; d++) fetch_weights(d, from + d * STREAM_WARPS);
    }
    /* x: m rows. Lanes whose column is beyond them take the last one again: nobody reads their
     * sums. */
    __device__ void open_rows(const float *x, const float *norm, uint32_t m)
    {
        gain = norm;
#pragma unroll
        for (int n = 0; n < N; n++)
            rows[n] = x + (int64_t)min(n * COLUMNS + threadIdx.x % WARP / 4, m - 1) * k;
#pragma unroll
        for (int d = 0; d < XD; d++) fetch_rows(d, from + d * STREAM_WARPS);
    }
    __device__ void fetch_weights(int d, uint32_t step)
    {
#pragma unroll
        for (int i = 0; i < T; i++)
            if (step < end) weights[i].fetch(held[i][d], step);
    }
    __device__ void fetch_rows(int d, uint32_t step)
    {
        if (step >= end) return;
        if (NORMED) take_values(gains[d], gain, k, step);
#pragma unroll
        for (int n = 0; n < N; n++) take_values(values[n][d], rows[n], k, step);
    }
    __device__ typename W::fragment columns_of(int n, int d, float &squares) const
    {
        enum { COUNT = W::STEP / 4 };
        uint32_t words[COUNT / 2];
        float x[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            x[i] = values[n][d].x[i];
            if (NORMED) squares += x[i] * x[i];
            if (NORMED) x[i] *= gains[d].x[i];
        }
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) words[i / 2] = f32_to_bf16x2(x[i], x[i + 1]);
        typename W::fragment f;
        set_words(f, words);
        return f;
    }
    /* All products of the block; then `partial` may be read by all. */
    __device__ void run(stream_partial<T, N> &partial)
    {
        float sum[T][N][4] = {}, squares[N] = {};
        for (uint32_t s = from; s < end; s += WD * STREAM_WARPS)
#pragma unroll
            for (int d = 0; d < WD; d++) {
                uint32_t step = s + d * STREAM_WARPS;
                if (step >= end) break;
                typename W::fragment f[N];
#pragma unroll
                for (int n = 0; n < N; n++) f[n] = columns_of(n, d % XD, squares[n]);
                fetch_rows(d % XD, step + XD * STREAM_WARPS);
#pragma unroll
                for (int i = 0; i < T; i++)
#pragma unroll
                    for (int n = 0; n < N; n++) W::multiply(sum[i][n], held[i][d], f[n]);
                fetch_weights(d, step + WD * STREAM_WARPS);
            }
        uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < T; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    partial.at[warp][i * FEATURES + g + j / 2 * 8][n * COLUMNS + 2 * t + j % 2] =
                        sum[i][n][j] * W::RESTORE;
            squares[n] += __shfl_xor_sync(FULL_MASK, squares[n], 1);
            squares[n] += __shfl_xor_sync(FULL_MASK, squares[n], 2);
            if (NORMED && t == 0) partial.squares[warp][n * COLUMNS + g] = squares[n];
        }
        __syncthreads();
    }
};

#endif
