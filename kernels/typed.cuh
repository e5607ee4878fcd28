/* Rows of numbers in float32 or bf16 as kernels of training read them, one or eight at a time, and
 * sums whose order does not depend on when blocks run. Arithmetic is float32; what is written is
 * rounded once. Device code only. */
#ifndef KERNELS_TYPED_CUH
#define KERNELS_TYPED_CUH

#include "common.cuh"
#include "inline.cuh"

struct bf16 {
    uint16_t bits;
};

/* ---- N numbers as they lie in memory; of eight the address is a multiple of 16 bytes ---- */

template <class T, int N> struct numbers;

template <> struct numbers<float, 1> {
    float x;
    INLINE void clear() { x = 0; }
    INLINE void load(const float *p) { x = *p; }
    INLINE float at(int) const { return x; }
};

template <> struct numbers<bf16, 1> {
    uint16_t bits;
    INLINE void clear() { bits = 0; }
    INLINE void load(const bf16 *p) { bits = p->bits; }
    INLINE float at(int) const { return bf16_to_f32(bits); }
};

template <> struct numbers<float, 8> {
    float x[8];
    INLINE void clear()
    {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = 0;
    }
    INLINE void load(const float *p)
    {
        float4 low = ((const float4 *)p)[0], high = ((const float4 *)p)[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    }
    INLINE float at(int i) const { return x[i]; }
    INLINE void hide()
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t bits = __float_as_uint(x[i]);
            asm volatile("" : "+r"(bits));
            x[i] = __uint_as_float(bits);
        }
    }
};

template <> struct numbers<bf16, 8> {
    uint32_t pairs[4];
    INLINE void clear()
    {
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = 0;
    }
    INLINE void load(const bf16 *p)
    {
        uint4 words = *(const uint4 *)p;
        pairs[0] = words.x, pairs[1] = words.y, pairs[2] = words.z, pairs[3] = words.w;
    }
    INLINE float at(int i) const
    {
        return __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
    }
    /* From here on the compiler takes them for others: what was made of them is not kept in their
     * place, which would take more registers. */
    INLINE void hide()
    {
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+r"(pairs[i]));
    }
};

template <int N> INLINE void put(float *p, const float *v)
{
    if (N == 1) {
        *p = v[0];
        return;
    }
    ((float4 *)p)[0] = make_float4(v[0], v[1 % N], v[2 % N], v[3 % N]);
    ((float4 *)p)[1] = make_float4(v[4 % N], v[5 % N], v[6 % N], v[7 % N]);
}

template <int N> INLINE void put(bf16 *p, const float *v)
{
    if (N == 1) {
        p->bits = f32_to_bf16(v[0]);
        return;
    }
    *(uint4 *)p = uint4{f32_to_bf16x2(v[0], v[1 % N]), f32_to_bf16x2(v[2 % N], v[3 % N]),
                        f32_to_bf16x2(v[4 % N], v[5 % N]), f32_to_bf16x2(v[6 % N], v[7 % N])};
}

/* N numbers of a matrix whose type only the call knows. */
template <int N> INLINE void load_either(bool narrow, const void *data, int64_t at, float v[N])
{
    if (narrow) {
        numbers<bf16, N> x;
        x.load((const bf16 *)data + at);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = x.at(i);
    } else {
        numbers<float, N> x;
        x.load((const float *)data + at);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = x.at(i);
    }
}

/* ---- sums ---- */

INLINE double warp_sum_f64(double value)
{
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

/* As block_sum. */
INLINE double block_sum_f64(double value, double *scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_sum_f64(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = warp_sum_f64(lane < warps ? scratch[lane] : 0);
    __syncthreads();
    return value;
}

INLINE float block_max(float value, float *scratch)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_max(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return value;
}

/* Of a group of threads that has a row: a warp or a block. */
template <int THREADS> INLINE float group_sum(float value, float *scratch)
{
    return THREADS == WARP ? warp_sum(value) : block_sum(value, scratch);
}

/* How far a gate is open; the argument in double, since large terms of either sign may cancel. */
INLINE float sigmoid(double x)
{
    return __fdividef(1, 1 + expf(-(float)x));
}

/* s (1 - s), which is as exact where the gate is nearly open. */
INLINE float sigmoid_slope(double x)
{
    const float e = expf(-fabsf((float)x));
    return __fdividef(e, (1 + e) * (1 + e));
}

#endif
