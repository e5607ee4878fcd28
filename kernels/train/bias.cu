/* Biases of columns, by the group that a row is of, and their gradients. */
#include "train/experts_args.h"
#include "typed.cuh"

/* A row's group: as many as end before it. */
INLINE int64_t group_of(const bias_kernel_args &a, int64_t row)
{
    int64_t group = 0;
    if (!a.group_offsets) return 0;
    for (int64_t first = 0; first < a.groups; first += WARP) {
        const int64_t g = first + threadIdx.x % WARP;
        group += __popc(__ballot_sync(FULL_MASK, g < a.groups && a.group_offsets[g + 1] <= row));
    }
    return group;
}

/* A warp a row. */
template <int N, class T> INLINE void add_bias(const bias_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t row = (int64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / WARP;
    if (row >= a.m) return;
    const float *bias = a.bias + group_of(a, row) * a.n;
    T *y = (T *)a.y + row * a.n;
#pragma unroll 2
    for (int64_t j = threadIdx.x % WARP * N; j < a.n; j += WARP * N) {
        numbers<T, N> old;
        numbers<float, N> b;
        float v[N];
        old.load(y + j);
        b.load(bias + j);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = old.at(i) + b.at(i);
        put<N>(y + j, v);
    }
}

#define ADD_BIAS(name, N, T)                                                                       \
    KERNEL_OF(ROWS_WARPS *WARP, name, bias_kernel_args)                                            \
    {                                                                                              \
        add_bias<N, T>(a);                                                                         \
    }
ADD_BIAS(add_bias_f32_x1, 1, float)
ADD_BIAS(add_bias_f32_x8, 8, float)
ADD_BIAS(add_bias_bf16_x1, 1, bf16)
ADD_BIAS(add_bias_bf16_x8, 8, bf16)

/* A thread a column, over a stripe of a group's rows; finish_sums (sums.cu) adds the stripes up. */
template <class T> INLINE void bias_backward(const bias_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t j = (int64_t)blockIdx.y * BIAS_THREADS + threadIdx.x;
    const int64_t group = blockIdx.x / a.stripes, stripe = blockIdx.x % a.stripes;
    if (j >= a.n) return;
    const int64_t first = a.group_offsets ? a.group_offsets[group] : 0;
    const int64_t rows = (a.group_offsets ? a.group_offsets[group + 1] : a.m) - first;
    const int64_t from = first + rows * stripe / a.stripes;
    const int64_t to = first + rows * (stripe + 1) / a.stripes;
    float sum = 0;
#pragma unroll 8
    for (int64_t i = from; i < to; i++) {
        numbers<T, 1> d;
        d.load((const T *)a.dy + i * a.n + j);
        sum += d.at(0);
    }
    a.partials[(group * a.n + j) * a.stripes + stripe] = sum;
}

KERNEL_OF(BIAS_THREADS, bias_backward_f32, bias_kernel_args)
{
    bias_backward<float>(a);
}
KERNEL_OF(BIAS_THREADS, bias_backward_bf16, bias_kernel_args)
{
    bias_backward<bf16>(a);
}
