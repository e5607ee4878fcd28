/* Hopper's matrix instructions and what feeds them: bulk copies through tensor maps, wgmma. The types compile everywhere, the instructions for sm_90a alone. */
#ifndef KERNELS_WGMMA_CUH
#define KERNELS_WGMMA_CUH

#include "barriers.cuh"
#include "tensor_map_args.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- copies ---- */

__device__ inline void prefetch_map(const struct tensor_map &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* A box of a tensor to shared memory; `barrier` gets its bytes, those outside the tensor too (as
 * 0). */
__device__ inline void copy_box_2d(uint32_t to, const struct tensor_map &map, int x, int y,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

__device__ inline void copy_box_3d(uint32_t to, const struct tensor_map &map, int x, int y, int z,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ inline void copy_box_5d(uint32_t to, const struct tensor_map &map, int x, int v,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %4, %4, %5}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(0), "r"(v)
                 : "memory");
}

/* To the same place in every block of the cluster that `blocks` has a bit for, and to their
 * barriers. */
__device__ inline void copy_box_2d_to(uint32_t to, const struct tensor_map &map, int x, int y,
                                      uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
                 : "memory");
}

/* Shared to global memory, multiples of 16 bytes; what threads wrote there before needs
 * fence_for_copies and a sync. */
__device__ inline void copy_out(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/* The same, added to what is there: float32. */
__device__ inline void add_out(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

__device__ inline void copy_out_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until the copies of this thread have read shared memory. */
__device__ inline void copy_out_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ inline void fence_for_copies()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
 * kilobytes one behind the other. `k`: the first column, a multiple of 16. */
__device__ inline uint64_t wgmma_operand(uint32_t address, int k)
{
    uint64_t operand; /* in halves: the address changes, the rest does not */
    asm("mov.b64 %0, {%1, %2};" : "=l"(operand) : "r"((address >> 4) + k / 8 + 0x10000), "n"(0x40000040));
    return operand;
}

/* d (64 x N, float32) = a b^T or += where `add`: a 64x16 from registers (fragments as mma_bf16 of
 * mma.cuh, 16 rows a warp) or shared memory, b N x 16 from shared memory. d: for column block j of
 * 8: d[4 j ..] = {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)}. */
template <int N> struct wgmma;

/* Operand lists; the sums are operands 0 .. N/2 - 1. */
#define D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i)  D4(i), D4(i + 4)
#define D16(i) D8(i), D8(i + 8)
#define D32(i) D16(i), D16(i + 16)
#define D64(i) D32(i), D32(i + 32)
#define D24     D16(0), D8(16)
#define D40     D32(0), D8(32)
#define D48     D32(0), D16(32)
#define D56     D48, D8(48)
#define D72     D64(0), D8(64)
#define D80     D64(0), D16(64)
#define D88     D80, D8(80)
#define D96     D64(0), D32(64)
#define D104    D96, D8(96)
#define D112    D96, D16(96)
#define D120    D112, D8(112)
#define D128    D64(0), D64(64)
#define T10(t)  "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define S4      "%0,%1,%2,%3"
#define S8      S4 ",%4,%5,%6,%7"
#define S10     S8 ",%8,%9"
#define S16     S10 ",%10,%11,%12,%13,%14,%15"
#define S20     S10 "," T10(1)
#define S24     S20 ",%20,%21,%22,%23"
#define S30     S20 "," T10(2)
#define S32     S30 ",%30,%31"
#define S40     S30 "," T10(3)
#define S48     S40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define S50     S40 "," T10(4)
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

/* o0 .. o5: numbers of the operands behind the sums. */
#define WGMMA(N, SUMS, TEXT, o0, o1, o2, o3, o4, o5)                                               \
    template <> struct wgmma<N> {                                                                  \
        __device__ static inline void registers(float *d, const uint32_t (&a)[4], uint64_t b,      \
                                                int add)                                           \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o5 ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" TEXT         \
                         "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", p, 1, 1, 0;}"     \
                         : SUMS                                                                    \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));          \
        }                                                                                          \
        __device__ static inline void shared(float *d, uint64_t a, uint64_t b, int add)            \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o2 ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" TEXT         \
                         "}, %" #o0 ", %" #o1 ", p, 1, 1, 0, 0;}"                                  \
                         : SUMS                                                                    \
                         : "l"(a), "l"(b), "r"(add));                                              \
        }                                                                                          \
    };
WGMMA(16, D8(0), S8, 8, 9, 10, 11, 12, 13)
WGMMA(32, D16(0), S16, 16, 17, 18, 19, 20, 21)
WGMMA(48, D24, S24, 24, 25, 26, 27, 28, 29)
WGMMA(64, D32(0), S32, 32, 33, 34, 35, 36, 37)
WGMMA(80, D40, S40, 40, 41, 42, 43, 44, 45)
WGMMA(96, D48, S48, 48, 49, 50, 51, 52, 53)
WGMMA(112, D56, S56, 56, 57, 58, 59, 60, 61)
WGMMA(128, D64(0), S64, 64, 65, 66, 67, 68, 69)
WGMMA(144, D72, S72, 72, 73, 74, 75, 76, 77)
WGMMA(160, D80, S80, 80, 81, 82, 83, 84, 85)
WGMMA(176, D88, S88, 88, 89, 90, 91, 92, 93)
WGMMA(192, D96, S96, 96, 97, 98, 99, 100, 101)
WGMMA(208, D104, S104, 104, 105, 106, 107, 108, 109)
WGMMA(224, D112, S112, 112, 113, 114, 115, 116, 117)
WGMMA(240, D120, S120, 120, 121, 122, 123, 124, 125)
WGMMA(256, D128, S128, 128, 129, 130, 131, 132, 133)

#endif
#endif
