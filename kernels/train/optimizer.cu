/* adamw: numbers one by one. */
#include "train/optimizer_args.h"
#include "typed.cuh"

template <class T, int N> INLINE void adamw_numbers(const adamw_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= a.count) return;
    numbers<T, N> p, g, mean, square;
    p.load((const T *)a.p + at), g.load((const T *)a.g + at);
    mean.load((const T *)a.mean + at), square.load((const T *)a.square + at);
    const adamw_kernel_step s = *a.step;
    const float clip = a.clip ? *a.clip : 1, keep = 1 - s.lr * s.decay, rate = s.lr / s.correction1;
    const float over = 1 / s.correction2, nothing[N] = {0};
    float new_p[N], new_mean[N], new_square[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float grad = g.at(i) * clip;
        new_mean[i] = mean.at(i) + (grad - mean.at(i)) * (1 - s.beta1);
        new_square[i] = square.at(i) + (grad * grad - square.at(i)) * (1 - s.beta2);
        const float root = sqrtf(new_square[i] * over) + s.eps;
        new_p[i] = p.at(i) * keep - rate * (new_mean[i] / root);
    }
    put<N>((T *)a.p + at, new_p);
    put<N>((T *)a.mean + at, new_mean);
    put<N>((T *)a.square + at, new_square);
    put<N>((T *)a.g + at, nothing);
}

#define ADAMW(type, T, N)                                                                          \
    KERNEL_OF(OPTIMIZER_THREADS, adamw_##type##_x##N, adamw_kernel_args)                           \
    {                                                                                              \
        adamw_numbers<T, N>(a);                                                                    \
    }
ADAMW(f32, float, 1)
ADAMW(f32, float, 8)
ADAMW(bf16, bf16, 1)
ADAMW(bf16, bf16, 8)
