/* MXFP4 from tiles (mxfp4_tiles.h) to the operands of tensor cores. */
#ifndef KERNELS_PACK_MXFP4_CUH
#define KERNELS_PACK_MXFP4_CUH

#include "pack/mxfp4_tiles.h"

/* Pair P of a word as two bf16, their values times 2^-126: exact, the smallest being subnormal. */
template <int P> __device__ inline uint32_t mxfp4_pair(uint32_t w)
{
    const uint32_t all = 0x81c081c0, top = 0x01000100;
    if (P == 0) return w & all;
    if (P < 3) return __funnelshift_r(w, w, 6 * P) & all;
    return (__funnelshift_r(w, w, 2) & top) | (__funnelshift_r(w, w, 10) & (all ^ top));
}

#endif
