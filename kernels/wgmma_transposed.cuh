/* Products of wgmma.cuh whose second operand lies with the other dimension together, and those that
 * begin sums. The file compiles everywhere, the instructions for sm_90a alone. */
#ifndef KERNELS_WGMMA_TRANSPOSED_CUH
#define KERNELS_WGMMA_TRANSPOSED_CUH

#include "inline.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Descriptor of an operand of 16 rows of k, of 64 bf16 each that run along the other dimension:
 * rows of 128 bytes, 8 rows a swizzled kilobyte; LEAD bytes from 64 of that dimension to the next.
 */
template <int LEAD> INLINE uint64_t wgmma_operand_transposed(uint32_t address)
{
    uint64_t operand;
    asm("mov.b64 %0, {%1, %2};"
        : "=l"(operand)
        : "r"((address >> 4) + (LEAD / 16 << 16)), "n"(0x40000000 | 1024 / 16));
    return operand;
}

/* As wgmma, but b may be transposed (an operand of wgmma_operand_transposed), and what d was counts
 * only if ADD. */
template <int N, bool ADD> struct wgmma_product;

/* o0: how many sums there are; o0 .. o5: numbers of the operands behind them. */
#define WGMMA_BEGIN(N, ADD, o0, o1, o2, o3, o4, o5)                                                \
    template <> struct wgmma_product<N, ADD> {                                                     \
        INLINE static void shared(float *d, uint64_t a, uint64_t b)                                \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o2 ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" S##o0        \
                         "}, %" #o0 ", %" #o1 ", p, 1, 1, 0, 0;}"                                  \
                         : D##o0(0)                                                                \
                         : "l"(a), "l"(b), "n"((int)ADD));                                         \
        }                                                                                          \
        INLINE static void shared_transposed(float *d, uint64_t a, uint64_t b)                     \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o2 ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" S##o0        \
                         "}, %" #o0 ", %" #o1 ", p, 1, 1, 0, 1;}"                                  \
                         : D##o0(0)                                                                \
                         : "l"(a), "l"(b), "n"((int)ADD));                                         \
        }                                                                                          \
        INLINE static void registers_transposed(float *d, const uint32_t (&a)[4], uint64_t b)      \
        {                                                                                          \
            asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o5 ", 0;\n"                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" S##o0        \
                         "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", p, 1, 1, 1;}"     \
                         : D##o0(0)                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)ADD));     \
        }                                                                                          \
    };
#define WGMMA_BOTH(N, ...) WGMMA_BEGIN(N, false, __VA_ARGS__) WGMMA_BEGIN(N, true, __VA_ARGS__)
WGMMA_BOTH(64, 32, 33, 34, 35, 36, 37)
WGMMA_BOTH(128, 64, 65, 66, 67, 68, 69)

/* As wgmma, both from shared memory, and either may be transposed: a is one of 64 rows then. */
template <int N, bool TRANSPOSED_A, bool TRANSPOSED_B> struct wgmma_either;

#define WGMMA_EITHER(N, o0, o1, o2, o3)                                                            \
    template <bool TRANSPOSED_A, bool TRANSPOSED_B>                                                \
    struct wgmma_either<N, TRANSPOSED_A, TRANSPOSED_B> {                                           \
        INLINE static void shared(float *d, uint64_t a, uint64_t b)                                \
        {                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" S##o0        \
                         "}, %" #o0 ", %" #o1 ", 1, 1, 1, %" #o2 ", %" #o3 ";"                     \
                         : D##o0(0)                                                                \
                         : "l"(a), "l"(b), "n"((int)TRANSPOSED_A), "n"((int)TRANSPOSED_B));        \
        }                                                                                          \
    };
WGMMA_EITHER(128, 64, 65, 66, 67)
WGMMA_EITHER(256, 128, 129, 130, 131)
#undef WGMMA_EITHER
#undef WGMMA_BOTH
#undef WGMMA_BEGIN

#endif
#endif
