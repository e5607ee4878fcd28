/* Numbers as MXFP4 has them (format/dtype.c: mxfp4_encode_row and back). A warp has a block of 32,
 * a lane one number of it. */
#include "train/experts_args.h"
#include "typed.cuh"

/* e2m1's nearest magnitude, between two of them the even code; 6 where it is larger. */
INLINE float nearest_e2m1(float magnitude)
{
    const float step = magnitude < 2 ? 0.5f : magnitude < 4 ? 1.0f : 2.0f;
    return fminf(rintf(magnitude / step) * step, 6);
}

INLINE float as_mxfp4(float x)
{
    const uint32_t largest = __reduce_max_sync(FULL_MASK, __float_as_uint(x) & 0x7fffffffu);
    if (largest >= 0x7f800000u) return __uint_as_float(0x7fc00000u);
    if (largest == 0) return 0;
    const int exponent = (int)(largest >> 23) - 2; /* the largest has e2m1's largest one */
    const int scale = exponent < 0 ? 0 : exponent;
    const float magnitude = nearest_e2m1(fabsf(x) * e8m0_to_f32((uint8_t)(254 - scale)));
    return copysignf(magnitude * e8m0_to_f32((uint8_t)scale), x);
}

template <class T> INLINE void quantise_mxfp4(const round_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t block = (int64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / WARP;
    if (block >= a.blocks) return;
    const int64_t at = block * WARP + threadIdx.x % WARP;
    float v[1] = {a.from[at]};
    if (!a.on || *a.on != 0) v[0] = as_mxfp4(v[0]);
    put<1>((T *)a.to + at, v);
}

KERNEL_OF(ROWS_WARPS *WARP, quantise_mxfp4_f32, round_kernel_args)
{
    quantise_mxfp4<float>(a);
}
KERNEL_OF(ROWS_WARPS *WARP, quantise_mxfp4_bf16, round_kernel_args)
{
    quantise_mxfp4<bf16>(a);
}
