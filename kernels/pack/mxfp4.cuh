/* MXFP4 from tiles (mxfp4_tiles.h) to the operands of tensor cores. */
#ifndef KERNELS_PACK_MXFP4_CUH
#define KERNELS_PACK_MXFP4_CUH

#include "pack/mxfp4_tiles.h"

/* Pair P of a word as two bf16, their values times 2^-126: exact, the smallest being subnormal. */
template <int P> __device__ inline uint32_t mxfp4_pair(uint32_t w)
{
    const uint32_t sign = 0x80008000, rest = 0x01c001c0;
    if (P == 0) return (w & rest) | (w << 4 & sign);
    if (P < 3) return w << 3 * P & (sign | rest);
    return (w >> 7 & rest) | (w << 5 & sign);
}

#endif
