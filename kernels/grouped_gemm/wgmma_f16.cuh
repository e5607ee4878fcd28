/* Products of halves on Hopper's tensor cores: as struct wgmma of wgmma.cuh with its first operand
 * in registers, for multiples of 8 up to 128 and of 16 up to 192. */
#ifndef KERNELS_GROUPED_GEMM_WGMMA_F16_CUH
#define KERNELS_GROUPED_GEMM_WGMMA_F16_CUH

#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* d (64 x N, float32) += a b^T: a 64x16 from registers, b N x 16 from shared memory. */
template <int N> struct wgmma_f16;

/* Operand lists between those of wgmma.cuh. */
#define D12 D8(0), D4(8)
#define D20 D16(0), D4(16)
#define D28 D24, D4(24)
#define D36 D32(0), D4(32)
#define D44 D40, D4(40)
#define D52 D48, D4(48)
#define D60 D56, D4(56)
#define S12 S10 ",%10,%11"
#define S28 S20 ",%20,%21,%22,%23,%24,%25,%26,%27"
#define S36 S30 ",%30,%31,%32,%33,%34,%35"
#define S44 S40 ",%40,%41,%42,%43"
#define S52 S50 ",%50,%51"

/* o0 .. o4: numbers of the operands behind the sums. */
#define WGMMA_F16(N, SUMS, TEXT, o0, o1, o2, o3, o4)                                               \
    template <> struct wgmma_f16<N> {                                                              \
        __device__ static __forceinline__ void add(float *d, const uint32_t (&a)[4], uint64_t b)   \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" TEXT           \
                         "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", 1, 1, 1, 0;"      \
                         : SUMS                                                                    \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
WGMMA_F16(8, D4(0), S4, 4, 5, 6, 7, 8)
WGMMA_F16(16, D8(0), S8, 8, 9, 10, 11, 12)
WGMMA_F16(24, D12, S12, 12, 13, 14, 15, 16)
WGMMA_F16(32, D16(0), S16, 16, 17, 18, 19, 20)
WGMMA_F16(40, D20, S20, 20, 21, 22, 23, 24)
WGMMA_F16(48, D24, S24, 24, 25, 26, 27, 28)
WGMMA_F16(56, D28, S28, 28, 29, 30, 31, 32)
WGMMA_F16(64, D32(0), S32, 32, 33, 34, 35, 36)
WGMMA_F16(72, D36, S36, 36, 37, 38, 39, 40)
WGMMA_F16(80, D40, S40, 40, 41, 42, 43, 44)
WGMMA_F16(88, D44, S44, 44, 45, 46, 47, 48)
WGMMA_F16(96, D48, S48, 48, 49, 50, 51, 52)
WGMMA_F16(104, D52, S52, 52, 53, 54, 55, 56)
WGMMA_F16(112, D56, S56, 56, 57, 58, 59, 60)
WGMMA_F16(120, D60, S60, 60, 61, 62, 63, 64)
WGMMA_F16(128, D64(0), S64, 64, 65, 66, 67, 68)
WGMMA_F16(144, D72, S72, 72, 73, 74, 75, 76)
WGMMA_F16(160, D80, S80, 80, 81, 82, 83, 84)
WGMMA_F16(176, D88, S88, 88, 89, 90, 91, 92)
WGMMA_F16(192, D96, S96, 96, 97, 98, 99, 100)
#undef WGMMA_F16

#endif
#endif
