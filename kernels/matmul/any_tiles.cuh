/* What products of any sizes and types in float32 are made of. A block has a tile of 64 x 64
 * results, whose operands pass through shared memory 16 columns of k at a time, with the next ones
 * on their way in registers. A result is the sum of such steps, each a sum along k: always in the
 * same order.
 */
#ifndef KERNELS_MATMUL_ANY_TILES_CUH
#define KERNELS_MATMUL_ANY_TILES_CUH

#include "common.cuh"
#include "matmul/matmul_args.h"

enum {
    TILE = MATMUL_ANY_TILE,
    STEP = MATMUL_ANY_STEP,
    THREADS = MATMUL_ANY_THREADS,
    EACH = TILE * STEP / THREADS, /* numbers of an operand's step that a thread brings */
    MINE = 4,                     /* rows and columns of results of a thread */
    PITCH = TILE + 4,             /* a whole number of float4 */
};

struct any_side {
    const void *data;
    int64_t rows, k, first; /* of the operand: rows, and the tile's first of them */
    bool bf16, along;       /* along: numbers that differ in k are neighbours */
};

__device__ inline float any_number(bool bf16, const void *data, int64_t at)
{
    return bf16 ? bf16_to_f32(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

/* Where a thread's number i of a step is: neighbours in memory for neighbouring threads. */
__device__ inline int any_row(const any_side &s, int i)
{
    int at = i * THREADS + threadIdx.x;
    return s.along ? at / STEP : at % TILE;
}

__device__ inline int any_column(const any_side &s, int i)
{
    int at = i * THREADS + threadIdx.x;
    return s.along ? at % STEP : at / TILE;
}

/* Zeros where the matrix ends. */
__device__ inline void any_fetch(const any_side &s, int64_t k, float (&held)[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int64_t row = s.first + any_row(s, i), column = k + any_column(s, i);
        bool inside = row < s.rows && column < s.k;
        int64_t at = s.along ? row * s.k + column : column * s.rows + row;
        held[i] = inside ? any_number(s.bf16, s.data, at) : 0;
    }
}

__device__ inline void any_keep(const any_side &s, const float (&held)[EACH], float (*to)[PITCH])
{
#pragma unroll
    for (int i = 0; i < EACH; i++) to[any_column(s, i)][any_row(s, i)] = held[i];
}

__device__ inline void any_step(const float (*a)[PITCH], const float (*b)[PITCH],
                                float (&sums)[MINE][MINE])
{
    int row = threadIdx.x / (TILE / MINE) * MINE, column = threadIdx.x % (TILE / MINE) * MINE;
    float part[MINE][MINE] = {};
#pragma unroll
    for (int k = 0; k < STEP; k++) {
        float4 x = *(const float4 *)&a[k][row], y = *(const float4 *)&b[k][column];
        float left[MINE] = {x.x, x.y, x.z, x.w}, right[MINE] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < MINE * MINE; i++)
            part[i / MINE][i % MINE] =
                fmaf(left[i / MINE], right[i % MINE], part[i / MINE][i % MINE]);
    }
#pragma unroll
    for (int i = 0; i < MINE * MINE; i++) sums[i / MINE][i % MINE] += part[i / MINE][i % MINE];
}

/* sums = the tile's products: x y^T, along x.k. */
__device__ inline void any_multiply(const any_side &x, const any_side &y, float (&sums)[MINE][MINE])
{
    __shared__ __align__(16) float left[STEP][PITCH];
    __shared__ __align__(16) float right[STEP][PITCH];
    float x_held[EACH], y_held[EACH];
#pragma unroll
    for (int i = 0; i < MINE * MINE; i++) sums[i / MINE][i % MINE] = 0;
    any_fetch(x, 0, x_held);
    any_fetch(y, 0, y_held);
    for (int64_t k = 0; k < x.k; k += STEP) {
        any_keep(x, x_held, left);
        any_keep(y, y_held, right);
        __syncthreads();
        any_fetch(x, k + STEP, x_held);
        any_fetch(y, k + STEP, y_held);
        any_step(left, right, sums);
        __syncthreads();
    }
}

/* out = alpha * sums + beta * add */
struct any_result {
    int64_t rows, columns, first_row, first_column; /* of the matrix; of the tile */
    const void *add;                                /* read where beta is not 0 */
    void *out;
    float alpha, beta;
    bool add_bf16, out_bf16;
};

__device__ inline void any_store(const any_result &r, const float (&sums)[MINE][MINE])
{
    int64_t first_row = r.first_row + threadIdx.x / (TILE / MINE) * MINE;
    int64_t first_column = r.first_column + threadIdx.x % (TILE / MINE) * MINE;
#pragma unroll
    for (int i = 0; i < MINE * MINE; i++) {
        int64_t row = first_row + i / MINE, column = first_column + i % MINE;
        if (row >= r.rows || column >= r.columns) continue;
        int64_t at = row * r.columns + column;
        float value = r.alpha * sums[i / MINE][i % MINE];
        if (r.beta != 0) value += r.beta * any_number(r.add_bf16, r.add, at);
        if (r.out_bf16)
            ((uint16_t *)r.out)[at] = f32_to_bf16(value);
        else
            ((float *)r.out)[at] = value;
    }
}

/* From number `at` on. */
__device__ inline const void *any_from(const void *data, int64_t at, bool bf16)
{
    return (const char *)data + at * (bf16 ? 2 : 4);
}

__device__ inline void *any_from(void *data, int64_t at, bool bf16)
{
    return (char *)data + at * (bf16 ? 2 : 4);
}

#endif
