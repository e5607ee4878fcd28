/* What GPUs of one host send each other: words stored right into the other's memory, and polled by
 * whoever waits for them in its own. A half of a pair comes as a whole, so that a flag in it says
 * that the rest is there, and no fence is needed. Device code only; tests/emulate has another set. */
#ifndef KERNELS_PEERS_CUH
#define KERNELS_PEERS_CUH

#include "inline.cuh"
#include "types.h"

/* 16 bytes at a multiple of 16; each half is there at once, in whichever order. */
INLINE void pair_send(void *to, uint64_t a, uint64_t b)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}

INLINE void pair_take(const void *from, uint64_t *a, uint64_t *b)
{
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(*a), "=l"(*b)
                 : "l"(from)
                 : "memory");
}

/* 16 bytes without a flag, at a multiple of 16: there for who has seen a word that was told behind. */
INLINE void words_send(void *to, uint4 words)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
}

/* Who sees the word sees what this thread has sent before, and what other threads of the block had sent
 * when they met it at a barrier. */
INLINE void word_tell(uint32_t *to, uint32_t word)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

/* What was sent before it was told is there, for the block behind its next barrier too. */
INLINE uint32_t word_seen(const uint32_t *from)
{
    uint32_t now;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(from) : "memory");
    return now;
}

/* In the host's memory, which it may look at meanwhile. */
INLINE uint32_t word_of_host(const uint32_t *word)
{
    uint32_t now;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    return now;
}

INLINE void word_to_host(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

INLINE uint64_t time_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
