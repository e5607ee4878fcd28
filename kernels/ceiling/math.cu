/* The limits of arithmetic on any architecture: loops that stay in registers. Operands are neither zero nor
 * growing, since a GPU at its power limit is slower with numbers that toggle more bits. */
#include "ceiling/ceiling_args.h"
#include "common.cuh"
#include "mma.cuh"

KERNEL_OF(CEILING_THREADS, ceiling_fma_f32, ceiling_math_args)
{
    float x[CEILING_FMA_UNITS];
    for (int i = 0; i < CEILING_FMA_UNITS; i++) x[i] = 1 + 0.01f * (float)(i + threadIdx.x);
    for (int64_t n = 0; n < a.iterations; n++)
#pragma unroll
        for (int i = 0; i < CEILING_FMA_UNITS; i++) x[i] = fmaf(x[i], a.factor, 0.001f);
    float sum = 0;
    for (int i = 0; i < CEILING_FMA_UNITS; i++) sum += x[i];
    if (sum == 12345.678f) *(float *)a.sink = sum;
}

/* Bits of pairs of bf16, or four of fp8, near 1 and of either sign; and any int8. */
__device__ static uint32_t operand(uint32_t seed, uint32_t keep, uint32_t base)
{
    uint32_t x = (seed + threadIdx.x * 0x9e3779b9u + 1) * 0x85ebca6bu;
    x ^= x >> 15;
    return (x & keep) | base;
}

/* OP(d, operands a, operands b) on tiles whose sums are of TYPE. */
#define MMA_LOOP(TYPE, KEEP, BASE, OP)                                                            \
    uint32_t x[4], y[2];                                                                          \
    for (uint32_t i = 0; i < 4; i++) x[i] = operand(a.seed + i, KEEP, BASE);                      \
    for (uint32_t i = 0; i < 2; i++) y[i] = operand(a.seed + 7 + i, KEEP, BASE);                  \
    TYPE d[CEILING_MMA_TILES][4] = {};                                                            \
    for (int64_t n = 0; n < a.iterations; n++)                                                    \
        _Pragma("unroll") for (int i = 0; i < CEILING_MMA_TILES; i++) OP(d[i], x, y);             \
    TYPE sum = 0;                                                                                 \
    for (int i = 0; i < CEILING_MMA_TILES; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];     \
    if (sum == (TYPE)1234567) *(TYPE *)a.sink = sum

KERNEL_OF(CEILING_THREADS, ceiling_mma_bf16, ceiling_math_args)
{
    MMA_LOOP(float, 0x807f807fu, 0x3f003f00u, mma_bf16);
}

__device__ static void mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KERNEL_OF(CEILING_THREADS, ceiling_mma_s8, ceiling_math_args)
{
    MMA_LOOP(int32_t, 0xffffffffu, 0, mma_s8);
}

__device__ static void mma_e4m3(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 890
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Of use from sm_89 on; the host asks only there. */
KERNEL_OF(CEILING_THREADS, ceiling_mma_e4m3, ceiling_math_args)
{
    MMA_LOOP(float, 0x87878787u, 0x30303030u, mma_e4m3);
}
