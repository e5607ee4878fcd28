/* Hopper's products of bytes, with sums of int32. The file compiles everywhere, the instructions for
 * sm_90a alone. */
#ifndef KERNELS_WGMMA_I8_CUH
#define KERNELS_WGMMA_I8_CUH

#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* As of wgmma.cuh. */
template <int N> __device__ inline void wgmma_settle(int32_t (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

/* d (64 x N) += a b^T: a 64x32 from registers in unsigned bytes, b N x 32 from shared memory in
 * signed ones. a[0] and a[2]: row g, columns 4t .. and 16 + 4t ..; a[1] and a[3]: row g + 8; d as of
 * wgmma. b: wgmma_operand for rows of 128 bytes, `k` half of the first column. N: a multiple of 16. */
template <int N> struct wgmma_u8s8;

#undef D4
#define D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define WGMMA(N, o0, o1, o2, o3, o4)                                                               \
    template <> struct wgmma_u8s8<N> {                                                             \
        __device__ static inline void registers(int32_t *d, const uint32_t (&a)[4], uint64_t b)    \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.u8.s8 {" S##o0            \
                         "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", 1;"               \
                         : D##o0(0)                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
WGMMA(16, 8, 9, 10, 11, 12)
WGMMA(32, 16, 17, 18, 19, 20)
WGMMA(48, 24, 25, 26, 27, 28)
WGMMA(64, 32, 33, 34, 35, 36)
WGMMA(80, 40, 41, 42, 43, 44)
WGMMA(96, 48, 49, 50, 51, 52)
WGMMA(112, 56, 57, 58, 59, 60)
WGMMA(128, 64, 65, 66, 67, 68)
WGMMA(144, 72, 73, 74, 75, 76)
WGMMA(160, 80, 81, 82, 83, 84)
WGMMA(176, 88, 89, 90, 91, 92)
WGMMA(192, 96, 97, 98, 99, 100)
WGMMA(208, 104, 105, 106, 107, 108)
WGMMA(224, 112, 113, 114, 115, 116)
WGMMA(240, 120, 121, 122, 123, 124)
WGMMA(256, 128, 129, 130, 131, 132)
#undef WGMMA

#endif
#endif
