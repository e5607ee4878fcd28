/* Lanes of a quad, which share rows of sums of matrix instructions. */
#ifndef KERNELS_SELF_ATTENTION_QUADS_CUH
#define KERNELS_SELF_ATTENTION_QUADS_CUH

#include "common.cuh"
#include "inline.cuh"

INLINE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_MASK, x, 2));
}

INLINE float quad_sum(float x)
{
    x += __shfl_xor_sync(FULL_MASK, x, 1);
    return x + __shfl_xor_sync(FULL_MASK, x, 2);
}

/* Word i of lane t to word t of lane i. */
INLINE void quad_transpose(uint32_t (&w)[4])
{
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        bool high = threadIdx.x & step;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & step) continue;
            uint32_t get = __shfl_xor_sync(FULL_MASK, high ? w[i] : w[i + step], step);
            w[i] = high ? get : w[i];
            w[i + step] = high ? w[i + step] : get;
        }
    }
}

#endif
