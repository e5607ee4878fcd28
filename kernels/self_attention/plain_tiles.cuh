/* What attention in float32 is made of: products of 64 rows by 64 rows along all dimensions, and sums
 * of 64 rows with weights. A thread has rows 4 y .. 4 y + 3 of a tile, of products columns x, x + 16,
 * x + 32 and x + 48, of sums dimensions 4 x .. 4 x + 3 and 64 behind them, where x is its number
 * modulo 16 and y the rest. Sums are always made in the same order. */
#ifndef KERNELS_SELF_ATTENTION_PLAIN_TILES_CUH
#define KERNELS_SELF_ATTENTION_PLAIN_TILES_CUH

#include "common.cuh"
#include "self_attention/self_attention_any_args.h"

enum {
    PLAIN_TILE = SELF_ANY_TILE,
    PLAIN_DIMS = SELF_ANY_DIMS,
    PLAIN_THREADS = SELF_ANY_THREADS,
    PLAIN_STEP = 32,  /* dimensions of a product at a time */
    PLAIN_PIECE = 16, /* rows of a sum at a time */
    PLAIN_MINE = 4,
    PLAIN_LANES = PLAIN_TILE / PLAIN_MINE, /* threads that have a row together */
    PLAIN_PITCH = PLAIN_TILE + 4,          /* whole float4 */
};
static_assert(PLAIN_PIECE * PLAIN_DIMS <= PLAIN_STEP * PLAIN_PITCH, "pieces share its memory");

struct plain_shared {
    float left[PLAIN_STEP][PLAIN_PITCH], right[PLAIN_STEP][PLAIN_PITCH];
    float weights[PLAIN_TILE][PLAIN_PITCH]; /* [what is summed][row of the sum] */
};

/* Rows of one head: number `row` of them, those from `count` on zeros. */
struct plain_rows {
    const void *data;
    int64_t first, stride; /* in numbers */
    int count, dim;
    bool bf16;

    __device__ inline float at(int row, int d) const
    {
        int64_t index = first + row * stride + d;
        if (row >= count || d >= dim) return 0;
        return bf16 ? bf16_to_f32(((const uint16_t *)data)[index]) : ((const float *)data)[index];
    }
};

__device__ inline int plain_row(int i)
{
    return threadIdx.x / PLAIN_LANES * PLAIN_MINE + i;
}

__device__ inline int plain_column(int j)
{
    return threadIdx.x % PLAIN_LANES + j * PLAIN_LANES;
}

/* Dimension number i of the eight of a thread, within a chunk. */
__device__ inline int plain_dimension(int i)
{
    return threadIdx.x % PLAIN_LANES * 4 + i % 4 + i / 4 * 64;
}

__device__ inline void plain_bring(const plain_rows &x, int from, float (*to)[PLAIN_PITCH])
{
#pragma unroll
    for (int i = threadIdx.x; i < PLAIN_TILE * PLAIN_STEP; i += PLAIN_THREADS)
        to[i % PLAIN_STEP][i / PLAIN_STEP] = x.at(i / PLAIN_STEP, from + i % PLAIN_STEP);
}

/* The products of rows of x and rows of y. All threads have left shared memory when it begins. */
__device__ inline void plain_product(plain_shared &s, const plain_rows &x, const plain_rows &y,
                                     float (&sums)[PLAIN_MINE][PLAIN_MINE])
{
#pragma unroll
    for (int i = 0; i < PLAIN_MINE * PLAIN_MINE; i++) sums[i / PLAIN_MINE][i % PLAIN_MINE] = 0;
    for (int from = 0; from < x.dim; from += PLAIN_STEP) {
        plain_bring(x, from, s.left);
        plain_bring(y, from, s.right);
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < PLAIN_STEP; d++) {
            float4 rows = *(const float4 *)&s.left[d][plain_row(0)];
            float left[PLAIN_MINE] = {rows.x, rows.y, rows.z, rows.w};
#pragma unroll
            for (int j = 0; j < PLAIN_MINE; j++) {
                float right = s.right[d][plain_column(j)];
#pragma unroll
                for (int i = 0; i < PLAIN_MINE; i++) sums[i][j] = fmaf(left[i], right, sums[i][j]);
            }
        }
        __syncthreads();
    }
}

/* Weights of a thread's rows and columns, where plain_sum finds them after a sync. */
__device__ inline void plain_keep(plain_shared &s, const float (&w)[PLAIN_MINE][PLAIN_MINE])
{
#pragma unroll
    for (int j = 0; j < PLAIN_MINE; j++)
        *(float4 *)&s.weights[plain_column(j)][plain_row(0)] =
            make_float4(w[0][j], w[1][j], w[2][j], w[3][j]);
}

/* Adds to each row the rows of y with their weights, dimensions from `from` on. Begins with a sync
 * and ends with one. */
__device__ inline void plain_sum(plain_shared &s, const plain_rows &y, int from,
                                 float (&sums)[PLAIN_MINE][8])
{
    float(*piece)[PLAIN_DIMS] = (float(*)[PLAIN_DIMS])s.left;
    for (int first = 0; first < PLAIN_TILE; first += PLAIN_PIECE) {
        for (int i = threadIdx.x; i < PLAIN_PIECE * PLAIN_DIMS; i += PLAIN_THREADS)
            piece[i / PLAIN_DIMS][i % PLAIN_DIMS] =
                y.at(first + i / PLAIN_DIMS, from + i % PLAIN_DIMS);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < PLAIN_PIECE; k++) {
            float4 rows = *(const float4 *)&s.weights[first + k][plain_row(0)];
            float w[PLAIN_MINE] = {rows.x, rows.y, rows.z, rows.w};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float4 v = *(const float4 *)&piece[k][plain_dimension(4 * half)];
#pragma unroll
                for (int i = 0; i < PLAIN_MINE; i++) {
                    float *to = &sums[i][4 * half];
                    to[0] = fmaf(w[i], v.x, to[0]), to[1] = fmaf(w[i], v.y, to[1]);
                    to[2] = fmaf(w[i], v.z, to[2]), to[3] = fmaf(w[i], v.w, to[3]);
                }
            }
        }
        __syncthreads();
    }
}

/* Rows of sums, times `factor` each, dimensions from `from` on. */
__device__ inline void plain_store(void *data, const plain_rows &like, bool bf16, int from,
                                   const float (&sums)[PLAIN_MINE][8],
                                   const float (&factor)[PLAIN_MINE])
{
#pragma unroll
    for (int i = 0; i < PLAIN_MINE * 8; i++) {
        int row = plain_row(i / 8), d = from + plain_dimension(i % 8);
        if (row >= like.count || d >= like.dim) continue;
        int64_t at = like.first + row * like.stride + d;
        float value = sums[i / 8][i % 8] * factor[i / 8];
        if (bf16)
            ((uint16_t *)data)[at] = f32_to_bf16(value);
        else
            ((float *)data)[at] = value;
    }
}

/* Over the threads that have a row together. */
__device__ inline float plain_row_sum(float x)
{
    for (int step = PLAIN_LANES / 2; step; step /= 2) x += __shfl_xor_sync(FULL_MASK, x, step);
    return x;
}

__device__ inline float plain_row_max(float x)
{
    for (int step = PLAIN_LANES / 2; step; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, step));
    return x;
}

#endif
