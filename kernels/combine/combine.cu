/* A block a row: the weighted sum of its experts' rows joins the residual. OWN: some experts are other
 * ranks', and their slots have no row. */
#include "combine/combine_args.h"
#include "common.cuh"
#include "inline.cuh"

template <bool OWN> INLINE void combine(const combine_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    int64_t i = blockIdx.x;
    for (int64_t d = threadIdx.x; d < a.n; d += blockDim.x) {
        float sum = a.x[i * a.n + d];
        for (int64_t j = i * a.top_k; j < (i + 1) * a.top_k; j++)
            if (!OWN || a.row_of_slot[j] >= 0)
                sum += a.weight[j] * ((const float *)a.y)[a.row_of_slot[j] * a.n + d];
        a.x[i * a.n + d] = sum;
    }
}

/* The same for results in bf16, 8 a thread at a time: n is a multiple of 8. */
template <bool OWN> INLINE void combine_rounded(const combine_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    int64_t i = blockIdx.x;
    const uint16_t *y = (const uint16_t *)a.y;
    for (int64_t d = 8 * (int64_t)threadIdx.x; d < a.n; d += 8 * blockDim.x) {
        float4 *x = (float4 *)(a.x + i * a.n + d), low = x[0], high = x[1];
#pragma unroll 4
        for (int64_t j = i * a.top_k; j < (i + 1) * a.top_k; j++) {
            if (OWN && a.row_of_slot[j] < 0) continue;
            uint4 v = *(const uint4 *)(y + a.row_of_slot[j] * a.n + d);
            float w = a.weight[j];
            low.x += w * __uint_as_float(v.x << 16), low.y += w * __uint_as_float(v.x & 0xffff0000u);
            low.z += w * __uint_as_float(v.y << 16), low.w += w * __uint_as_float(v.y & 0xffff0000u);
            high.x += w * __uint_as_float(v.z << 16), high.y += w * __uint_as_float(v.z & 0xffff0000u);
            high.z += w * __uint_as_float(v.w << 16), high.w += w * __uint_as_float(v.w & 0xffff0000u);
        }
        x[0] = low;
        x[1] = high;
    }
}

#define COMBINE(name, threads, call)                                                               \
    KERNEL_OF(threads, name, combine_kernel_args) { call<false>(a); }                              \
    KERNEL_OF(threads, name##_own, combine_kernel_args) { call<true>(a); }
COMBINE(combine_f32, COMBINE_THREADS, combine)
COMBINE(combine_bf16, COMBINE_BF16_THREADS, combine_rounded)
