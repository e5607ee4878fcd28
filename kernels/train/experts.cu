/* What training does with rows of experts beside their products: gathers them, weighs and adds them
 * up by token, and the same backwards. A warp has a row. */
#include "train/experts_args.h"
#include "typed.cuh"

/* The warp's row, or -1. */
INLINE int64_t row_of_warp(int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / WARP;
    return row < rows ? row : -1;
}

template <int N, class T> INLINE void gather(const rows_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t row = row_of_warp(a.m);
    if (row < 0) return;
    const T *from = (const T *)a.x + a.rows[row] * a.n;
    T *to = (T *)a.out + row * a.n;
#pragma unroll 4
    for (int64_t j = threadIdx.x % WARP * N; j < a.n; j += WARP * N) {
        numbers<T, N> x;
        float v[N];
        x.load(from + j);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = x.at(i);
        put<N>(to + j, v);
    }
}

/* Onto each token's row what its experts have for it, by rising slot. */
template <int N, class T> INLINE void add_rows(const rows_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t token = row_of_warp(a.m), slot = token * a.top_k;
    if (token < 0) return;
    T *to = (T *)a.out + token * a.n;
    for (int64_t j = threadIdx.x % WARP * N; j < a.n; j += WARP * N) {
        numbers<T, N> old;
        float v[N];
        old.load(to + j);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = old.at(i);
#pragma unroll 4
        for (int64_t s = slot; s < slot + a.top_k; s++) {
            numbers<T, N> x;
            x.load((const T *)a.x + a.rows[s] * a.n + j);
            const float weight = a.weight ? a.weight[s] : 1;
#pragma unroll
            for (int i = 0; i < N; i++) v[i] += weight * x.at(i);
        }
        put<N>(to + j, v);
    }
}

/* A slot's row of experts gets its token's gradient, weighted; its weight the sum along the row. */
template <int N, class T> INLINE void weigh_rows(const rows_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t slot = row_of_warp(a.m * a.top_k);
    if (slot < 0) return;
    const int64_t at = a.rows[slot] * a.n;
    const T *d = (const T *)a.d + slot / a.top_k * a.n, *x = (const T *)a.x + at;
    T *to = (T *)a.out + at;
    const float weight = a.weight[slot];
    float along = 0;
#pragma unroll 2
    for (int64_t j = threadIdx.x % WARP * N; j < a.n; j += WARP * N) {
        numbers<T, N> dx, y;
        float v[N], part = 0;
        dx.load(d + j);
        y.load(x + j);
#pragma unroll
        for (int i = 0; i < N; i++) {
            part += y.at(i) * dx.at(i);
            v[i] = weight * dx.at(i);
        }
        put<N>(to + j, v);
        along += part;
    }
    along = warp_sum(along);
    if (threadIdx.x % WARP == 0) a.dweight[slot] = along;
}

#define ROWS(name, F)                                                                              \
    KERNEL_OF(ROWS_WARPS *WARP, name##_f32_x1, rows_kernel_args)                                   \
    {                                                                                              \
        F<1, float>(a);                                                                            \
    }                                                                                              \
    KERNEL_OF(ROWS_WARPS *WARP, name##_f32_x8, rows_kernel_args)                                   \
    {                                                                                              \
        F<8, float>(a);                                                                            \
    }                                                                                              \
    KERNEL_OF(ROWS_WARPS *WARP, name##_bf16_x1, rows_kernel_args)                                  \
    {                                                                                              \
        F<1, bf16>(a);                                                                             \
    }                                                                                              \
    KERNEL_OF(ROWS_WARPS *WARP, name##_bf16_x8, rows_kernel_args)                                  \
    {                                                                                              \
        F<8, bf16>(a);                                                                             \
    }
ROWS(gather_rows, gather)
ROWS(add_rows, add_rows)
ROWS(combine_backward, weigh_rows)

INLINE double warp_max_f64(double value)
{
    for (int step = WARP / 2; step; step /= 2)
        value = fmax(value, __shfl_xor_sync(FULL_MASK, value, step));
    return value;
}

/* The loss that spreads tokens over experts: its part of the gradient of each logit, from a row's
 * largest logit, sum of exponentials and mean share. */
struct balance_terms {
    double largest, total, mean, factor, slots;
};

INLINE double share_of(const route_backward_kernel_args &a, const balance_terms &b, int64_t e)
{
    return (double)(a.group_offsets[e + 1] - a.group_offsets[e]) / b.slots;
}

INLINE balance_terms balance_of(const route_backward_kernel_args &a, const float *logits)
{
    balance_terms b = {-INFINITY, 0, 0, (double)a.balance * *a.scale * (double)a.n_experts,
                       (double)(a.m * a.top_k)};
    for (int64_t e = threadIdx.x % WARP; e < a.n_experts; e += WARP)
        b.largest = fmax(b.largest, (double)logits[e]);
    b.largest = warp_max_f64(b.largest);
    for (int64_t e = threadIdx.x % WARP; e < a.n_experts; e += WARP) {
        const double p = exp(logits[e] - b.largest);
        b.total += p;
        b.mean += p * share_of(a, b, e);
    }
    b.total = warp_sum_f64(b.total);
    b.mean = warp_sum_f64(b.mean) / b.total;
    return b;
}

/* Few numbers, whose differences may be small: in double. */
KERNEL_OF(ROWS_WARPS *WARP, route_backward, route_backward_kernel_args)
{
    wait_for_input();
    let_next_start();
    const int64_t token = row_of_warp(a.m), slot = token * a.top_k;
    if (token < 0) return;
    const float *logits = a.logits + token * a.n_experts;
    double mean = 0;
    balance_terms b;
    for (int64_t s = slot; s < slot + a.top_k; s++) mean += (double)a.weight[s] * a.dweight[s];
    if (a.balance != 0) b = balance_of(a, logits);
    for (int64_t e = threadIdx.x % WARP; e < a.n_experts; e += WARP) {
        double d = 0;
        for (int64_t s = slot; s < slot + a.top_k; s++)
            if (a.expert[s] == e) d = a.weight[s] * (a.dweight[s] - mean);
        if (a.balance != 0)
            d += b.factor * exp(logits[e] - b.largest) / b.total * (share_of(a, b, e) - b.mean);
        a.dlogits[token * a.n_experts + e] = (float)d;
    }
}
