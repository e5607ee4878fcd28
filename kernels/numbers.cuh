/* Single instructions on float32 that have no name in CUDA C and that few kernels use; as ptx.cuh, of which
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

#endif
