/* Tensor cores through mma.sync, which every architecture from sm_80 on has. */
#ifndef KERNELS_MMA_CUH
#define KERNELS_MMA_CUH

#include "types.h"

/* d += a b for a 16x16 tile of bf16 (rows), a 16x8 tile (columns), sums in float32. Fragments as the
 * PTX manual has them; with g = lane / 4 and t = lane % 4:
 *   a: {(g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)}, two neighbours in k each
 *   b: {(2t, g), (2t + 8, g)}      d: {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)} */
__device__ inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same of f16. */
__device__ inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* 16 bytes that are read once: they need not stay in the first cache. Who reads less than a line at a time
 * has neighbours that read the rest, so the second cache takes it whole. */
__device__ inline uint4 load_once(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

__device__ inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

__device__ inline uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("{.reg .b32 z; mov.b32 z, 0x80008000; fma.rn.bf16x2 %0, %1, %2, z;}" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

#endif
