/* smear and its gradient: a warp a row. The row before comes out of the cache, since the warp
 * beside has it too. */
#include "train/norms_args.h"
#include "typed.cuh"

/* gate . x to all lanes. */
template <class T> INLINE double smear_gate(const smear_kernel_args &a, const T *x, int lane)
{
    double sum = 0;
    for (int64_t j = lane; j < a.channels; j += WARP) {
        numbers<T, 1> v;
        v.load(x + j);
        sum += (double)a.gate[j] * v.at(0);
    }
    return warp_sum_f64(sum);
}

template <class T, int N> INLINE void smear_rows(const smear_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % WARP;
    const int64_t i = (int64_t)blockIdx.x * SMEAR_WARPS + threadIdx.x / WARP;
    if (i >= a.sequences * a.length) return;
    const bool first = (uint32_t)i % (uint32_t)a.length == 0;
    const T *x = (const T *)a.x + i * a.n;
    const float part = first ? 0 : *a.lambda * sigmoid(smear_gate(a, x, lane));
#pragma unroll 4
    for (int64_t j = lane * N; j < a.n; j += WARP * N) {
        numbers<T, N> now, before;
        float y[N];
        now.load(x + j), before.clear();
        if (!first) before.load(x + j - a.n);
#pragma unroll
        for (int e = 0; e < N; e++) y[e] = now.at(e) + part * before.at(e);
        put<N>((T *)a.out + i * a.n + j, y);
    }
}

/* dy[i] . x[i - 1] to all lanes. */
template <class T, int N> INLINE float smear_along(const smear_kernel_args &a, int64_t i, int lane)
{
    const T *before = (const T *)a.x + (i - 1) * a.n, *dy = (const T *)a.dy + i * a.n;
    float sum = 0;
#pragma unroll 4
    for (int64_t j = lane * N; j < a.n; j += WARP * N) {
        numbers<T, N> p, q;
        float part = 0;
        p.load(before + j), q.load(dy + j);
#pragma unroll
        for (int e = 0; e < N; e++) part += p.at(e) * q.at(e);
        sum += part;
    }
    return warp_sum(sum);
}

/* dx[i] = dy[i] + next dy[i + 1] + slope gate. */
template <class T, int N>
INLINE void smear_dx(const smear_kernel_args &a, int64_t i, int lane, bool has_next, float next,
                     float slope)
{
    const T *dy = (const T *)a.dy + i * a.n;
#pragma unroll 4
    for (int64_t j = lane * N; j < a.n; j += WARP * N) {
        numbers<T, N> d, after;
        float out[N];
        d.load(dy + j), after.clear();
        if (has_next) after.load(dy + j + a.n);
#pragma unroll
        for (int e = 0; e < N; e++) {
            out[e] = d.at(e) + next * after.at(e);
            if (j + e < a.channels) out[e] += slope * a.gate[j + e];
        }
        put<N>((T *)a.out + i * a.n + j, out);
    }
}

/* What a warp has added up, over the block's warps in their order, to the block's place. */
INLINE void smear_store(const smear_kernel_args &a, float *sums, int64_t column, float value)
{
    const int warp = threadIdx.x / WARP;
    sums[threadIdx.x] = value;
    __syncthreads();
    if (warp == 0 && column <= a.channels) {
        float sum = 0;
        for (int w = 0; w < SMEAR_WARPS; w++) sum += sums[w * WARP + threadIdx.x];
        a.partials[column * gridDim.x + blockIdx.x] = sum;
    }
    __syncthreads();
}

template <class T, int N> INLINE void smear_rows_backward(const smear_kernel_args &a)
{
    enum { HELD = SMEAR_CHANNELS_MAX / WARP };
    __shared__ float sums[SMEAR_WARPS * WARP];
    float dlambda = 0, dgate[HELD] = {0};
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % WARP;
    const int64_t rows = a.sequences * a.length, step = (int64_t)gridDim.x * SMEAR_WARPS;
    const float lambda = *a.lambda;
    for (int64_t i = (int64_t)blockIdx.x * SMEAR_WARPS + threadIdx.x / WARP; i < rows; i += step) {
        const T *x = (const T *)a.x + i * a.n;
        const uint32_t place = (uint32_t)i % (uint32_t)a.length;
        const bool first = place == 0, has_next = place + 1 < a.length;
        const float next = has_next ? lambda * sigmoid(smear_gate(a, x + a.n, lane)) : 0;
        float slope = 0;
        if (!first) {
            const double gate = smear_gate(a, x, lane);
            const float along = smear_along<T, N>(a, i, lane);
            slope = lambda * sigmoid_slope(gate) * along;
            dlambda += sigmoid(gate) * along;
#pragma unroll
            for (int c = 0; c < HELD; c++) {
                numbers<T, 1> v;
                v.clear();
                if (c * WARP + lane < a.channels) v.load(x + c * WARP + lane);
                dgate[c] += slope * v.at(0);
            }
        }
        smear_dx<T, N>(a, i, lane, has_next, next, slope);
    }
    smear_store(a, sums, lane ? a.channels + 1 : 0, dlambda);
#pragma unroll
    for (int c = 0; c < HELD; c++) smear_store(a, sums, 1 + c * WARP + lane, dgate[c]);
}

// spills: smear_backward_f32_x8 60
#define SMEAR(type, T, N)                                                                          \
    KERNEL_OF(SMEAR_WARPS *WARP, smear_##type##_x##N, smear_kernel_args)                           \
    {                                                                                              \
        smear_rows<T, N>(a);                                                                       \
    }                                                                                              \
    KERNEL_OF(SMEAR_WARPS *WARP, smear_backward_##type##_x##N, smear_kernel_args)                  \
    {                                                                                              \
        smear_rows_backward<T, N>(a);                                                              \
    }
SMEAR(f32, float, 1)
SMEAR(f32, float, 8)
SMEAR(bf16, bf16, 1)
SMEAR(bf16, bf16, 8)
