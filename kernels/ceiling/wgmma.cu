/* The limits of arithmetic on Hopper: its warpgroup products reach about 1.6 times what mma.sync does. The rows
 * stay in registers, the columns in a few kilobytes of shared memory; see math.cu for the numbers. The
 * host launches these only on sm_90, where the image has them. */
#include "ceiling/ceiling_args.h"
#include "common.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { N = 128, K_BYTES = 32 }; /* of one product: 64 rows, 128 columns, 32 bytes of each */

__device__ static uint32_t operand(uint32_t seed, uint32_t keep, uint32_t base)
{
    uint32_t x = (seed + threadIdx.x * 0x9e3779b9u + 1) * 0x85ebca6bu;
    x ^= x >> 15;
    return (x & keep) | base;
}

/* Rows of eight by 16 bytes, 128 bytes each, no swizzle: those along k are neighbours. */
__device__ static uint64_t describe(const void *shared)
{
    uint64_t address = (uint64_t)__cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}

#define SUMS_4(C, i)  C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define SUMS_16(C, i) SUMS_4(C, i), SUMS_4(C, i + 4), SUMS_4(C, i + 8), SUMS_4(C, i + 12)
#define SUMS_64(C)    SUMS_16(C, 0), SUMS_16(C, 16), SUMS_16(C, 32), SUMS_16(C, 48)
#define FLOAT(x)      "+f"(x)
#define INTEGER(x)    "+r"(x)
#define SUM_NAMES                                                                                 \
    "{"                                                                                           \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                            \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                            \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"                             \
    "}"

/* d += x y; SHAPE names shape and types, TAIL what follows the predicate that says d is kept. */
#define WGMMA(C, SHAPE, TAIL)                                                                     \
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned." SHAPE " "    \
                 SUM_NAMES ", {%64,%65,%66,%67}, %68, p" TAIL ";}"                                \
                 : SUMS_64(C)                                                                     \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y))

#define WGMMA_LOOP(TYPE, KEEP, BASE, C, SHAPE, TAIL)                                              \
    __shared__ __align__(128) uint32_t columns[N * K_BYTES / 4];                                  \
    for (uint32_t i = threadIdx.x; i < N * K_BYTES / 4; i += blockDim.x)                          \
        columns[i] = operand(a.seed + i * 31, KEEP, BASE);                                        \
    __syncthreads();                                                                              \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                  \
    uint64_t y = describe(columns);                                                               \
    uint32_t x[4];                                                                                \
    for (uint32_t i = 0; i < 4; i++) x[i] = operand(a.seed + i, KEEP, BASE);                      \
    TYPE d[64] = {};                                                                              \
    for (int64_t n = 0; n < a.iterations; n++) {                                                  \
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                   \
        _Pragma("unroll") for (int i = 0; i < CEILING_WGMMA_STEPS; i++) WGMMA(C, SHAPE, TAIL);    \
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                            \
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                            \
    }                                                                                             \
    TYPE sum = 0;                                                                                 \
    for (int i = 0; i < 64; i++) sum += d[i];                                                     \
    if (sum == (TYPE)1234567) *(TYPE *)a.sink = sum

#else
#define WGMMA_LOOP(TYPE, KEEP, BASE, C, SHAPE, TAIL) (void)a
#endif

KERNEL_OF(CEILING_THREADS, ceiling_wgmma_bf16, ceiling_math_args)
{
    WGMMA_LOOP(float, 0x807f807fu, 0x3f003f00u, FLOAT, "m64n128k16.f32.bf16.bf16", ", 1, 1, 0");
}

KERNEL_OF(CEILING_THREADS, ceiling_wgmma_e4m3, ceiling_math_args)
{
    WGMMA_LOOP(float, 0x87878787u, 0x30303030u, FLOAT, "m64n128k32.f32.e4m3.e4m3", ", 1, 1");
}

KERNEL_OF(CEILING_THREADS, ceiling_wgmma_s8, ceiling_math_args)
{
    WGMMA_LOOP(int32_t, 0xffffffffu, 0, INTEGER, "m64n128k32.s32.s8.s8", "");
}
