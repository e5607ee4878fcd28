/* Q8_0 (q8_0_tiles.h) to the fragments of wgmma: bf16 of number times scale, rounded once. A byte in the
 * mantissa of a float32 is 2^15 plus itself, and one multiply-add takes it to the product, which float32
 * holds exactly: what must be taken off is the scale times 32896, of 20 bits. */
#ifndef KERNELS_GEMM_WGMMA_Q8_0_CUH
#define KERNELS_GEMM_WGMMA_Q8_0_CUH

#include "common.cuh"

/* What a lane has of a unit: 16 bytes of rows g and g + 8, the scales of their blocks {row g, g + 8} x
 * {first 32 columns, second} and -32896 times these. */
struct q8_0_unit {
    uint4 low, high;
    float scale[2][2], zero[2][2];
};

__device__ __forceinline__ void set_scales(q8_0_unit &u, int i, uint32_t both)
{
#pragma unroll
    for (int b = 0; b < 2; b++) {
        u.scale[i][b] = f16_to_f32((uint16_t)(both >> 16 * b));
        u.zero[i][b] = -32896.0f * u.scale[i][b];
    }
}

/* Bytes 2 P and 2 P + 1 of a word. */
template <int P> __device__ __forceinline__ uint32_t q8_0_scaled(uint32_t w, float scale, float zero)
{
    float x = __uint_as_float(__byte_perm(w, 0x47, P ? 0x4525 : 0x4505));
    float y = __uint_as_float(__byte_perm(w, 0x47, P ? 0x4535 : 0x4515));
    return f32_to_bf16x2(fmaf(x, scale, zero), fmaf(y, scale, zero));
}

/* Fragments of step S of a unit. */
template <int S> __device__ __forceinline__ void decode(uint32_t (&f)[4], const q8_0_unit &u)
{
    uint32_t low = S == 0 ? u.low.x : S == 1 ? u.low.y : S == 2 ? u.low.z : u.low.w;
    uint32_t high = S == 0 ? u.high.x : S == 1 ? u.high.y : S == 2 ? u.high.z : u.high.w;
    f[0] = q8_0_scaled<0>(low, u.scale[0][S / 2], u.zero[0][S / 2]);
    f[1] = q8_0_scaled<0>(high, u.scale[1][S / 2], u.zero[1][S / 2]);
    f[2] = q8_0_scaled<1>(low, u.scale[0][S / 2], u.zero[0][S / 2]);
    f[3] = q8_0_scaled<1>(high, u.scale[1][S / 2], u.zero[1][S / 2]);
}

#endif
