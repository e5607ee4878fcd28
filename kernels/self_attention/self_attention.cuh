/* What the two kernels of self_attention on Hopper's tensor cores share. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_CUH
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_CUH

#include "common.cuh"
#include "copy_tiles.cuh"
#include "self_attention/quads.cuh"
#include "wgmma_transposed.cuh"

#define LOG2_E 1.44269504f
#define LN_2   0.693147181f

enum { GROUP = 128 }; /* threads of a warpgroup */

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
