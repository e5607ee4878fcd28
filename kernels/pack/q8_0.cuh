/* Q8_0 from tiles (q8_0_tiles.h) to the operands of tensor cores. */
#ifndef KERNELS_PACK_Q8_0_CUH
#define KERNELS_PACK_Q8_0_CUH

#include "mma.cuh"
#include "pack/q8_0_tiles.h"

/* Bytes 2 P and 2 P + 1 of a word as two bf16, 2^-133 times the bytes: exact, below 128 subnormal. */
template <int P> __device__ inline uint32_t q8_0_bytes(uint32_t w)
{
    return __byte_perm(w, 0, P ? 0x4342 : 0x4140);
}

/* Pair P of a word as two bf16, 2^-7 times the numbers: exact. */
template <int P> __device__ inline uint32_t q8_0_pair(uint32_t w)
{
    const uint32_t enlarge = 0x7e807e80, zero = 0xbf80bf80; /* 2^126, -128 2^-7 */
    return fma_bf16x2(q8_0_bytes<P>(w), enlarge, zero);
}

#endif
