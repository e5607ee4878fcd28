/* Single instructions on words that have no name in CUDA C and that few kernels use: bits and
 * numbers in them, out of shared memory at a constant distance, and in global memory between blocks
 * that run at the same time. As ptx.cuh, but for some architectures only; tests/emulate has another
 * set. */
#ifndef KERNELS_WORDS_CUH
#define KERNELS_WORDS_CUH

#include "types.h"

/* Two numbers of e4m3 as halves; from sm_89 on. */
__device__ __forceinline__ uint32_t e4m3x2_to_f16x2(uint16_t bytes)
{
    uint32_t both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(bytes));
    return both;
}

/* Bits of a where the mask has them, else of b. */
template <uint32_t MASK> __device__ __forceinline__ uint32_t choose_bits(uint32_t a, uint32_t b)
{
    uint32_t c;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(c) : "r"(a), "r"(b), "n"(MASK));
    return c;
}

/* The compiler has it in registers from here on, and does not find it again where it is used. */
template <class T> __device__ __forceinline__ void keep(T *&pointer)
{
    asm volatile("" : "+l"(pointer));
}

/* ---- shared memory ---- */

template <int OFFSET> __device__ __forceinline__ uint2 load_shared_8_at(uint32_t address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2+%3];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address), "n"(OFFSET));
    return v;
}

__device__ __forceinline__ uint16_t load_shared_2(uint32_t address)
{
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
    return v;
}

__device__ __forceinline__ float load_shared_f32(uint32_t address)
{
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
    return value;
}

__device__ __forceinline__ void store_shared_f32(uint32_t to, float value)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

/* ---- global memory ---- */

/* One instruction. Of what came out of shared memory the compiler makes four of 4 bytes. */
__device__ __forceinline__ void store_16(void *to, uint4 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- between blocks, from sm_70 on ---- */

/* Who takes the word sees what this thread wrote or saw before. */
__device__ __forceinline__ void word_add(uint32_t *word, uint32_t add)
{
    asm volatile("red.add.release.gpu.u32 [%0], %1;" ::"l"(word), "r"(add) : "memory");
}

__device__ __forceinline__ void word_set_1(uint32_t *word)
{
    asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(word) : "memory");
}

__device__ __forceinline__ uint32_t word_take(const uint32_t *word)
{
    uint32_t now;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    return now;
}

#endif
