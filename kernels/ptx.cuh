/* Single instructions that have no name in CUDA C and that kernels of every architecture use: numbers,
 * fetching ahead, overlap with other kernels. Those of matrices are in mma.cuh, those of copies in
 * copy_async.cuh, those of barriers in barriers.cuh; tests/emulate has another set of all four, with
 * which a processor computes what the kernels compute. */
#ifndef KERNELS_PTX_CUH
#define KERNELS_PTX_CUH

#include "types.h"

/* ---- numbers ---- */

/* Round to nearest even; NaN stays NaN. */
__device__ inline uint16_t f32_to_bf16(float value)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* Two at once; `low` goes to the lower half. */
__device__ inline uint32_t f32_to_bf16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ inline uint32_t f32_to_f16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

__device__ inline float f16_to_f32(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline uint16_t f32_to_f16(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* 2^x by the special function unit. */
__device__ inline float exp2_unit(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- memory ---- */

/* Has a line of memory near before it is read: in the first cache, in the second. */
__device__ inline void ask_l1(const void *at)
{
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

__device__ inline void ask_l2(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* ---- overlap with the kernel before ---- */

/* Everything after it may read what the kernel before has written. Needed by every kernel that is
 * launched with overlap (struct gpu_launch), and harmless in the others. */
__device__ inline void wait_for_input()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may begin to start. Behind wait_for_input: then all kernels but the one right before
 * it have ended when a kernel starts, and what they wrote may be read before wait_for_input. Some kernels do not
 * wait for that: attention (attention_decode.cu), the sums of few rows' experts (moe_down_rows.cu), the norm of
 * attn_in_many.cu, the router of attn_out_many.cu, the sort by counting (route.cu). Behind one of them the kernel
 * before it may still run, too, and behind several in a row what is before them. So who follows them reads weights
 * alone before it waits, or what is older than that. */
__device__ inline void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
