/* MXFP4 to bf16, as the operand of wgmma in registers. */
#ifndef KERNELS_GEMM_WGMMA_MXFP4_CUH
#define KERNELS_GEMM_WGMMA_MXFP4_CUH

#include "inline.cuh"
#include "numbers.cuh"
#include "pack/mxfp4_tiles.h"

/* What a lane has of a unit: words of its two rows (x, y: row g's; z, w: row g + 8's), the scales of
 * their blocks as bf16: row g's and row g + 8's, of the first 32 columns in the low half. */
struct unit_words {
    uint4 w;
    uint32_t scales[2];
};

/* Row g's two bytes, then row g + 8's. What mxfp4_pair lacks is 2^(e-1), for which a bf16 is too small when e
 * is above 128: who has a byte of 128 or more, a scale of 2 and more, computes plainly. Weights of which some are
 * beyond 8 have such scales. */
INLINE void set_scales(unit_words &u, uint32_t bytes)
{
    u.scales[0] = __byte_perm(bytes, 0, 0x4140) * 128 + 0x3f003f00u;
    u.scales[1] = __byte_perm(bytes, 0, 0x4342) * 128 + 0x3f003f00u;
}

/* Fragments of step S of a unit. */
template <int S> INLINE void decode(uint32_t (&f)[4], const unit_words &u)
{
    uint32_t low = S < 2 ? u.w.x : u.w.y, high = S < 2 ? u.w.z : u.w.w;
    f[0] = mul_bf16x2_by<S / 2>(mxfp4_pair(low, S % 2 * 2), u.scales[0]);
    f[1] = mul_bf16x2_by<S / 2>(mxfp4_pair(high, S % 2 * 2), u.scales[1]);
    f[2] = mul_bf16x2_by<S / 2>(mxfp4_pair(low, S % 2 * 2 + 1), u.scales[0]);
    f[3] = mul_bf16x2_by<S / 2>(mxfp4_pair(high, S % 2 * 2 + 1), u.scales[1]);
}

#endif
