/* Single instructions on numbers that have no name in CUDA C and that few kernels use; as ptx.cuh, of which
 * tests/emulate has another set. */
#ifndef KERNELS_NUMBERS_CUH
#define KERNELS_NUMBERS_CUH

#include "types.h"

/* The smaller, the larger; NaN if either is, which fminf and fmaxf drop. From sm_80 on. */
__device__ __forceinline__ float min_or_nan(float a, float b)
{
    float c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

__device__ __forceinline__ float max_or_nan(float a, float b)
{
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

/* 1 / x by the special function unit. */
__device__ __forceinline__ float reciprocal_unit(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Both numbers of a, in bf16, times one of b's two. */
template <int HALF> __device__ __forceinline__ uint32_t mul_bf16x2_by(uint32_t a, uint32_t b)
{
    uint32_t c;
    if (HALF == 0)
        asm("{.reg .b16 l, h; .reg .b32 s, z; mov.b32 {l, h}, %2; mov.b32 s, {l, l}; mov.b32 z, 0x80008000;"
            " fma.rn.bf16x2 %0, %1, s, z;}"
            : "=r"(c)
            : "r"(a), "r"(b));
    else
        asm("{.reg .b16 l, h; .reg .b32 s, z; mov.b32 {l, h}, %2; mov.b32 s, {h, h}; mov.b32 z, 0x80008000;"
            " fma.rn.bf16x2 %0, %1, s, z;}"
            : "=r"(c)
            : "r"(a), "r"(b));
    return c;
}

#endif
