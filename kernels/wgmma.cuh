/* Hopper's matrix instructions and what feeds them. The file compiles everywhere, the instructions for sm_90a alone. */
#ifndef KERNELS_WGMMA_CUH
#define KERNELS_WGMMA_CUH

#include "copy_bulk.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- matrices to shared memory ---- */

/* What load_matrices and load_transposed of copy_async.cuh would read. */
__device__ inline void store_matrices(uint32_t to, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

__device__ inline void store_transposed(uint32_t to, const uint32_t (&m)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

/* 8 x 8 numbers of 16 bits, lane i with two neighbours of row i / 4, turned about. */
__device__ inline uint32_t transposed_matrix(uint32_t m)
{
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(m));
    return turned;
}

/* ---- registers between the roles of a block ---- */

template <int N> __device__ inline void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ inline void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- products ---- */

__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most `LEFT` groups run. */
template <int LEFT> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from moving uses of sums across a wait. */
template <int N> __device__ inline void wgmma_settle(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Descriptor of an operand of 64 bf16 of k a row: rows of 128 bytes, 8 rows a swizzled kilobyte,
 * BETWEEN bytes from one kilobyte to the next. `k`: the first column, a multiple of 16. */
template <int BETWEEN = 1024> __device__ inline uint64_t wgmma_operand(uint32_t address, int k)
{
    uint64_t operand; /* in halves: the address changes, the rest does not */
    asm("mov.b64 %0, {%1, %2};" : "=l"(operand) : "r"((address >> 4) + k / 8 + 0x10000), "n"(0x40000000 | BETWEEN / 16));
    return operand;
}

/* d (64 x N, float32) += a b^T: a 64x16 from registers (fragments as mma_bf16 of mma.cuh, 16 rows a
 * warp) or shared memory, b N x 16 from shared memory, both in bf16; wgmma_f16: in halves. d: for
 * column block j of 8: d[4 j ..] = {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)}. */
template <int N> struct wgmma;
template <int N> struct wgmma_f16;

/* The sums from d[i] on, and operands 0 .. N/2 - 1 as text, which they are. */
#define D4(i)   "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i)   D4(i), D4(i + 4)
#define D12(i)  D8(i), D4(i + 8)
#define D16(i)  D8(i), D8(i + 8)
#define D20(i)  D16(i), D4(i + 16)
#define D24(i)  D16(i), D8(i + 16)
#define D28(i)  D24(i), D4(i + 24)
#define D32(i)  D16(i), D16(i + 16)
#define D36(i)  D32(i), D4(i + 32)
#define D40(i)  D32(i), D8(i + 32)
#define D44(i)  D40(i), D4(i + 40)
#define D48(i)  D32(i), D16(i + 32)
#define D52(i)  D48(i), D4(i + 48)
#define D56(i)  D48(i), D8(i + 48)
#define D60(i)  D56(i), D4(i + 56)
#define D64(i)  D32(i), D32(i + 32)
#define D72(i)  D64(i), D8(i + 64)
#define D80(i)  D64(i), D16(i + 64)
#define D88(i)  D80(i), D8(i + 80)
#define D96(i)  D64(i), D32(i + 64)
#define D104(i) D96(i), D8(i + 96)
#define D112(i) D96(i), D16(i + 96)
#define D120(i) D112(i), D8(i + 112)
#define D128(i) D64(i), D64(i + 64)
#define T10(t)  "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define S4      "%0,%1,%2,%3"
#define S8      S4 ",%4,%5,%6,%7"
#define S10     S8 ",%8,%9"
#define S12     S10 ",%10,%11"
#define S16     S10 ",%10,%11,%12,%13,%14,%15"
#define S20     S10 "," T10(1)
#define S24     S20 ",%20,%21,%22,%23"
#define S28     S20 ",%20,%21,%22,%23,%24,%25,%26,%27"
#define S30     S20 "," T10(2)
#define S32     S30 ",%30,%31"
#define S36     S30 ",%30,%31,%32,%33,%34,%35"
#define S40     S30 "," T10(3)
#define S44     S40 ",%40,%41,%42,%43"
#define S48     S40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define S50     S40 "," T10(4)
#define S52     S50 ",%50,%51"
#define S56     S50 ",%50,%51,%52,%53,%54,%55"
#define S60     S50 "," T10(5)
#define S64     S60 ",%60,%61,%62,%63"
#define S70     S60 "," T10(6)
#define S72     S70 ",%70,%71"
#define S80     S70 "," T10(7)
#define S88     S80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define S90     S80 "," T10(8)
#define S96     S90 ",%90,%91,%92,%93,%94,%95"
#define S100    S90 "," T10(9)
#define S104    S100 ",%100,%101,%102,%103"
#define S110    S100 "," T10(10)
#define S112    S110 ",%110,%111"
#define S120    S110 "," T10(11)
#define S128    S120 ",%120,%121,%122,%123,%124,%125,%126,%127"

/* o0: how many sums there are; o0 .. o4: numbers of the operands behind them. */
#define WGMMA_OF(NAME, TYPE, N, o0, o1, o2, o3, o4)                                                \
    template <> struct NAME<N> {                                                                   \
        __device__ static inline void registers(float *d, const uint32_t (&a)[4], uint64_t b)      \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"      \
                         S##o0 "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4                \
                         ", 1, 1, 1, 0;"                                                           \
                         : D##o0(0)                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
        __device__ static inline void shared(float *d, uint64_t a, uint64_t b)                     \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"      \
                         S##o0 "}, %" #o0 ", %" #o1 ", 1, 1, 1, 0, 0;"                             \
                         : D##o0(0)                                                                \
                         : "l"(a), "l"(b));                                                        \
        }                                                                                          \
    };
#define WGMMA(...) WGMMA_OF(wgmma, "bf16", __VA_ARGS__) WGMMA_OF(wgmma_f16, "f16", __VA_ARGS__)
WGMMA(8, 4, 5, 6, 7, 8)
WGMMA(16, 8, 9, 10, 11, 12)
WGMMA(24, 12, 13, 14, 15, 16)
WGMMA(32, 16, 17, 18, 19, 20)
WGMMA(40, 20, 21, 22, 23, 24)
WGMMA(48, 24, 25, 26, 27, 28)
WGMMA(56, 28, 29, 30, 31, 32)
WGMMA(64, 32, 33, 34, 35, 36)
WGMMA(72, 36, 37, 38, 39, 40)
WGMMA(80, 40, 41, 42, 43, 44)
WGMMA(88, 44, 45, 46, 47, 48)
WGMMA(96, 48, 49, 50, 51, 52)
WGMMA(104, 52, 53, 54, 55, 56)
WGMMA(112, 56, 57, 58, 59, 60)
WGMMA(120, 60, 61, 62, 63, 64)
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
#undef WGMMA_OF

#endif
#endif
