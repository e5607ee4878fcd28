/* matmul of any sizes and types in float32, on any card: what faster kernels do not serve, and what
 * training that must be exact runs on. A block has a tile of 64 x 64 results, whose operands pass
 * through shared memory 16 columns of k at a time, with the next ones on their way in registers. A
 * result is the sum of such steps, each a sum along k: always in the same order. */
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
    int64_t rows, k, first; /* of op(X): rows, and the tile's first of them */
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

__device__ inline void any_store(const matmul_any_args &a, int64_t first_row, int64_t first_column,
                                 const float (&sums)[MINE][MINE])
{
    int64_t product = (int64_t)blockIdx.y * a.m;
    float alpha = a.alpha;
    if (a.factor_a) alpha *= *a.factor_a;
    if (a.factor_b) alpha *= *a.factor_b;
    first_row += threadIdx.x / (TILE / MINE) * MINE;
    first_column += threadIdx.x % (TILE / MINE) * MINE;
#pragma unroll
    for (int i = 0; i < MINE * MINE; i++) {
        int64_t row = first_row + i / MINE, column = first_column + i % MINE;
        if (row >= a.m || column >= a.n) continue;
        int64_t at = (product + row) * a.n + column;
        float value = alpha * sums[i / MINE][i % MINE];
        if (a.beta != 0) value += a.beta * any_number(a.bf16 & MATMUL_ADD, a.add, at);
        if (a.bf16 & MATMUL_OUT)
            ((uint16_t *)a.out)[at] = f32_to_bf16(value);
        else
            ((float *)a.out)[at] = value;
    }
}

/* The matrix of product number blockIdx.y. */
__device__ inline const void *any_matrix(const void *data, int64_t count, bool bf16)
{
    return (const char *)data + blockIdx.y * count * (bf16 ? 2 : 4);
}

KERNEL_OF(THREADS, matmul_any, matmul_any_args)
{
    __shared__ __align__(16) float left[STEP][PITCH];
    __shared__ __align__(16) float right[STEP][PITCH];
    wait_for_input();
    let_next_start();
    int64_t first_row = (int64_t)(blockIdx.x / a.tiles) * TILE;
    int64_t first_column = (int64_t)(blockIdx.x % a.tiles) * TILE;
    bool a_bf16 = a.bf16 & MATMUL_A, b_bf16 = a.bf16 & MATMUL_B;
    any_side x = {any_matrix(a.a, a.m * a.k, a_bf16), a.m, a.k, first_row, a_bf16, !a.transpose_a};
    any_side y = {any_matrix(a.b, a.n * a.k, b_bf16), a.n, a.k, first_column, b_bf16,
                  a.transpose_b != 0};
    float sums[MINE][MINE] = {}, x_held[EACH], y_held[EACH];
    any_fetch(x, 0, x_held);
    any_fetch(y, 0, y_held);
    for (int64_t k = 0; k < a.k; k += STEP) {
        any_keep(x, x_held, left);
        any_keep(y, y_held, right);
        __syncthreads();
        any_fetch(x, k + STEP, x_held);
        any_fetch(y, k + STEP, y_held);
        any_step(left, right, sums);
        __syncthreads();
    }
    any_store(a, first_row, first_column, sums);
}
