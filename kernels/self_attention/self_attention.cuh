/* What the two kernels of self_attention on Hopper's tensor cores share. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_CUH
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_CUH

#include "common.cuh"
#include "copy_tiles.cuh"
#include "wgmma_transposed.cuh"

#define LOG2_E 1.44269504f
#define LN_2   0.693147181f

enum { GROUP = 128 }; /* threads of a warpgroup */

/* ---- lanes of a quad, which share rows of sums ---- */

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

/* A number that is the same in all lanes, so that the compiler knows it. */
INLINE int warp_uniform(int x)
{
    return __shfl_sync(FULL_MASK, x, 0);
}

/* ---- results ---- */

/* Columns 0 .. COLUMNS - 1 of a row of sums, times `factor`: half h of d (0: row g of the warp's
 * 16, 1: row g + 8), to `to`, where it begins. */
template <int COLUMNS>
INLINE void write_row(uint16_t *to, bool valid, const float *d, int h, float factor)
{
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = d + 4 * (j + i) + 2 * h;
            w[i] = f32_to_bf16x2(pair[0] * factor, pair[1] * factor);
        }
        quad_transpose(w);
        if (valid) *(uint4 *)(to + (j + threadIdx.x % 4) * 8) = uint4{w[0], w[1], w[2], w[3]};
    }
}

#endif
