/* FP8 by the instructions that cards have for it. Device code only. */
#ifndef KERNELS_QUANTISE_FP8_UNITS_CUH
#define KERNELS_QUANTISE_FP8_UNITS_CUH

#include "inline.cuh"
#include "types.h"

#if __CUDA_ARCH__ >= 890
/* Two at once, to nearest even, clamped to the largest number; NaN is 0x7f in both formats. */
INLINE uint32_t f32_to_e4m3x2(float low, float high)
{
    uint16_t bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
    return bits;
}

INLINE uint32_t f32_to_e5m2x2(float low, float high)
{
    uint16_t bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
    return bits;
}
#endif

#endif
