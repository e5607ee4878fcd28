/* What kernels share: number formats, sums over a warp and a block. Device code only. */
#ifndef KERNELS_COMMON_CUH
#define KERNELS_COMMON_CUH

#include "format_args.h"
#include "ptx.cuh"

#ifndef INFINITY /* NVRTC has no <math.h> */
#define INFINITY __int_as_float(0x7f800000)
#endif

enum { WARP = 32 };
#define FULL_MASK 0xffffffffu

/* A kernel takes one struct, by value and in constant memory. */
#define KERNEL(name, args_type)        extern "C" __global__ void name(const __grid_constant__ args_type a)
#define KERNEL_OF(threads, name, args) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args a)

/* ---- numbers ---- */

__device__ inline float bf16_to_f32(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* 2^(e-127) for every byte: 0 is a denormal, 255 NaN. */
__device__ inline float e8m0_to_f32(uint8_t e)
{
    if (e == 0) return __uint_as_float(0x00400000u);
    return e == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((uint32_t)e << 23);
}

/* Low 4 bits: sign, two of exponent, one of mantissa: 0 .5 1 1.5 2 3 4 6. */
__device__ inline float e2m1_to_f32(uint32_t nibble)
{
    /* As a bf16, shifted into place, this is the value times 2^-126. */
    uint32_t bits = (nibble & 8) << 28 | (nibble & 7) << 22;
    return __uint_as_float(bits) * 0x1p126f;
}

/* OCP "fn": no infinities, 0x7f and 0xff are NaN. */
__device__ inline float fp8_e4m3_to_f32(uint32_t bits)
{
    /* As a float32, shifted into place, the code is the value times 2^-120. */
    uint32_t code = bits & 0x7f, sign = (bits & 0x80) << 24;
    return code == 0x7f ? __uint_as_float(0x7fc00000u) : __uint_as_float(sign | code << 20) * 0x1p120f;
}

/* ---- caches ---- */

/* An element of a cache in F32, F16 or BF16. */
__device__ inline float cache_at(int type, const void *data, int64_t index)
{
    if (type == DTYPE_F32) return ((const float *)data)[index];
    uint16_t bits = ((const uint16_t *)data)[index];
    return type == DTYPE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

__device__ inline void cache_put(int type, void *data, int64_t index, float value)
{
    if (type == DTYPE_F32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] = type == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

/* ---- sums ---- */

__device__ inline float warp_sum(float value)
{
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

__device__ inline float warp_max(float value)
{
    for (int step = WARP / 2; step; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, step));
    return value;
}

/* Of all threads, to all threads; `scratch` has one float a warp. Whole warps only. */
__device__ inline float block_sum(float value, float *scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_sum(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = warp_sum(lane < warps ? scratch[lane] : 0);
    __syncthreads();
    return value;
}

#endif
