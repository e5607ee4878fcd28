/* Sums over all numbers of a matrix: a partial sum of each block, and what adds those up, in double
 * and always in the same order. */
#include "train/map_args.h"
#include "typed.cuh"

template <int N, class T> INLINE void squares_of(const sum_kernel_args &a)
{
    __shared__ float scratch[WARP];
    const T *x = (const T *)a.x;
    float sum = 0;
    wait_for_input();
    let_next_start();
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
#pragma unroll 4
    for (int64_t at = first; at < a.count; at += step) {
        numbers<T, N> v;
        float part = 0;
        v.load(x + at);
#pragma unroll
        for (int i = 0; i < N; i++) part += v.at(i) * v.at(i);
        sum += part;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) a.out[blockIdx.x] = sum;
}

#define SQUARES(name, N, T)                                                                        \
    KERNEL_OF(MAP_THREADS, name, sum_kernel_args)                                                  \
    {                                                                                              \
        squares_of<N, T>(a);                                                                       \
    }
SQUARES(sum_squares_f32_x1, 1, float)
SQUARES(sum_squares_f32_x8, 8, float)
SQUARES(sum_squares_bf16_x1, 1, bf16)
SQUARES(sum_squares_bf16_x8, 8, bf16)

/* One block: losses are as many as a micro-batch has tokens, which is little. */
KERNEL_OF(1024, weighted_sum, sum_kernel_args)
{
    __shared__ double scratch[WARP];
    const float *x = (const float *)a.x;
    double sum = 0;
    wait_for_input();
    let_next_start();
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < a.count; i += blockDim.x) sum += x[i];
    sum = block_sum_f64(sum, scratch);
    if (threadIdx.x == 0) *a.out = (float)(*a.out + *a.scale * sum);
}

KERNEL_OF(FINISH_THREADS, finish_sums, finish_kernel_args)
{
    __shared__ double scratch[WARP];
    const bool first = blockIdx.x < a.n_first;
    float *out = first ? a.first : a.second;
    double sum = 0;
    wait_for_input();
    let_next_start();
    if (!out) return;
    out += first ? blockIdx.x : blockIdx.x - a.n_first;
    for (int64_t i = threadIdx.x; i < a.parts; i += blockDim.x)
        sum += a.partials[blockIdx.x * a.parts + i];
    sum = block_sum_f64(sum, scratch);
    if (threadIdx.x == 0) *out = (float)(*out + (first ? a.factor_first : a.factor_second) * sum);
}

/* A thread has 8 numbers. */
KERNEL_OF(MAP_THREADS, add_parts, parts_kernel_args)
{
    wait_for_input();
    let_next_start();
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (at >= a.count) return;
    numbers<float, 8> old;
    float v[8];
    old.clear();
    if (a.beta != 0) old.load(a.add + at);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = a.beta * old.at(i);
#pragma unroll 4
    for (int64_t n = 0; n < a.parts; n++) {
        numbers<float, 8> part;
        part.load(a.partials + n * a.count + at);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += part.at(i);
    }
    put<8>(a.out + at, v);
}

/* A norm that is no number stays none. */
KERNEL_OF(WARP, clip, clip_kernel_args)
{
    wait_for_input();
    let_next_start();
    if (threadIdx.x) return;
    float factor = a.limit / (sqrtf(*a.sum) + 1e-6f);
    *a.factor = a.limit == 0 || factor > 1 ? 1 : factor;
}
