/* rotary_norm and its gradient. The rotations of a row are the same for all its heads: a block
 * makes those of a few rows first. Then a thread has ROTARY_PIECE numbers of a head's first half
 * and those that they are paired with, and neighbouring threads have the rest of the head. */
#include "train/norms_args.h"
#include "typed.cuh"

/* In double: where float32 is next to the middle of two numbers of bf16 it does not say which is
 * nearer. `turns` is at most half a turn. */
__device__ __noinline__ float2 rotation_f64(double turns)
{
    double angle = 6.283185307179586 * turns;
    return make_float2((float)cos(angle), (float)sin(angle));
}

/* Whether the bits that bf16 has not are so near to a half that float32 may err. */
INLINE bool near_middle(float x)
{
    return ((__float_as_uint(x) + 0x8000 + 16) & 0xffff) < 32;
}

/* {cosine, sine} */
INLINE float2 rotation_at(double position, float inv_freq, bool rounded)
{
    double turns = position * inv_freq * 0.15915494309189535;
    turns -= rint(turns);
    const float near = (float)turns, rest = 6.2831853f * (float)(turns - near);
    float sine, cosine;
    sincospif(2 * near, &sine, &cosine);
    float2 r = make_float2(cosine - sine * rest, sine + cosine * rest);
    if (!rounded) return r;
    if (near_middle(r.x) || near_middle(r.y)) r = rotation_f64(turns);
    return make_float2(bf16_to_f32(f32_to_bf16(r.x)), bf16_to_f32(f32_to_bf16(r.y)));
}

/* Those of the block's rows: [rows][head_dim / 2]. */
INLINE void make_rotations(const rotary_kernel_args &a, int64_t first, float2 *to)
{
    const int half = (int)a.head_dim / 2, count = (int)min((int64_t)a.rows, a.m - first) * half;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = rotation_at(a.position[first + i / half], a.inv_freq[i % half], a.rounded);
    __syncthreads();
}

/* Where a thread's numbers are. Threads behind the last head go along with zeros, so that whole
 * warps exchange, and write nothing. */
struct rotary_place {
    int64_t at, head; /* of the first half, in numbers; of rstd */
    int rotation;     /* of the block's */
    bool valid;

    INLINE rotary_place(const rotary_kernel_args &a, int64_t first, int item, int lanes)
    {
        const int heads = (int)a.n_heads;
        const int count = (int)min((int64_t)a.rows, a.m - first) * heads;
        int index = item / lanes;
        valid = index < count;
        if (!valid) index = 0;
        const int row = index / heads, d = item % lanes * ROTARY_PIECE;
        head = first * heads + index;
        at = head * a.head_dim + d;
        rotation = row * (int)(a.head_dim / 2) + d;
    }
};

/* Of `lanes` neighbours, a power of two. */
INLINE float lanes_sum(float value, int lanes)
{
    for (int step = lanes / 2; step; step /= 2) value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

template <class T> INLINE void rotate_held(const rotary_kernel_args &a)
{
    __shared__ float2 rotations[ROTARY_ROWS_MAX * ROTARY_DIM_MAX / 2];
    const int64_t first = (int64_t)blockIdx.x * a.rows;
    const int half = (int)a.head_dim / 2, lanes = half / ROTARY_PIECE;
    const int items = a.rows * (int)a.n_heads * lanes;
    numbers<T, ROTARY_PIECE> low, high;
    wait_for_input();
    let_next_start();
    for (int base = 0; base < items; base += blockDim.x) {
        const rotary_place place(a, first, base + threadIdx.x, lanes);
        T *x = (T *)a.x + place.at;
        float u[ROTARY_PIECE], v[ROTARY_PIECE], squares = 0;
        low.clear(), high.clear();
        if (place.valid) low.load(x), high.load(x + half);
        if (base == 0) make_rotations(a, first, rotations); /* while the loads are on their way */
#pragma unroll
        for (int e = 0; e < ROTARY_PIECE; e++) {
            const float2 r = rotations[place.rotation + e];
            u[e] = low.at(e) * r.x - high.at(e) * r.y;
            v[e] = high.at(e) * r.x + low.at(e) * r.y;
            squares += u[e] * u[e] + v[e] * v[e];
        }
        const float rstd = 1 / sqrtf(lanes_sum(squares, lanes) / (float)a.head_dim + a.eps);
#pragma unroll
        for (int e = 0; e < ROTARY_PIECE; e++) u[e] *= rstd * a.scale, v[e] *= rstd * a.scale;
        if (!place.valid) continue;
        put<ROTARY_PIECE>(x, u);
        put<ROTARY_PIECE>(x + half, v);
        if ((base + threadIdx.x) % lanes == 0) a.rstd[place.head] = rstd;
    }
}

/* With u = y / scale: scale rstd (d - u mean(u d)), rotated back. */
template <class T> INLINE void rotate_back_held(const rotary_kernel_args &a)
{
    __shared__ float2 rotations[ROTARY_ROWS_MAX * ROTARY_DIM_MAX / 2];
    const int64_t first = (int64_t)blockIdx.x * a.rows;
    const int half = (int)a.head_dim / 2, lanes = half / ROTARY_PIECE;
    const int items = a.rows * (int)a.n_heads * lanes;
    wait_for_input();
    let_next_start();
    for (int base = 0; base < items; base += blockDim.x) {
        const rotary_place place(a, first, base + threadIdx.x, lanes);
        const T *y = (const T *)a.x + place.at;
        T *d = (T *)a.d + place.at;
        numbers<T, ROTARY_PIECE> low, high, dlow, dhigh;
        float u[ROTARY_PIECE], v[ROTARY_PIECE], along = 0;
        low.clear(), high.clear(), dlow.clear(), dhigh.clear();
        if (place.valid) low.load(y), high.load(y + half), dlow.load(d), dhigh.load(d + half);
        if (base == 0) make_rotations(a, first, rotations);
#pragma unroll
        for (int e = 0; e < ROTARY_PIECE; e++)
            along += low.at(e) * dlow.at(e) + high.at(e) * dhigh.at(e);
        const float mean = lanes_sum(along, lanes) / (a.scale * a.scale * (float)a.head_dim);
        const float factor = a.scale * a.rstd[place.head];
#pragma unroll
        for (int e = 0; e < ROTARY_PIECE; e++) {
            const float2 r = rotations[place.rotation + e];
            const float p = factor * (dlow.at(e) - low.at(e) * mean);
            const float q = factor * (dhigh.at(e) - high.at(e) * mean);
            u[e] = p * r.x + q * r.y;
            v[e] = q * r.x - p * r.y;
        }
        if (!place.valid) continue;
        put<ROTARY_PIECE>(d, u);
        put<ROTARY_PIECE>(d + half, v);
    }
}

/* ---- heads of any size: a warp has one, and reads it twice ---- */

template <class T> INLINE void rotate_any(const rotary_kernel_args &a, bool back)
{
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % WARP, half = (int)a.head_dim / 2;
    const int64_t head = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (head >= a.m * a.n_heads) return;
    const double position = a.position[head / a.n_heads];
    T *x = (T *)a.x + head * a.head_dim, *d = (T *)a.d + head * a.head_dim;
    numbers<T, 1> low, high, dlow, dhigh;
    float sum = 0;
    for (int j = lane; j < half; j += WARP) {
        float length = 1; /* a rotation whose cosine and sine are rounded stretches */
        low.load(x + j), high.load(x + j + half);
        dlow = low, dhigh = high;
        if (back) dlow.load(d + j), dhigh.load(d + j + half);
        if (a.rounded && !back) {
            const float2 r = rotation_at(position, a.inv_freq[j], true);
            length = r.x * r.x + r.y * r.y;
        }
        sum += length * (low.at(0) * dlow.at(0) + high.at(0) * dhigh.at(0));
    }
    sum = warp_sum(sum);
    const float mean = sum / (a.scale * a.scale * (float)a.head_dim);
    const float rstd = back ? a.rstd[head] : 1 / sqrtf(sum / (float)a.head_dim + a.eps);
    if (!back && lane == 0) a.rstd[head] = rstd;
    for (int j = lane; j < half; j += WARP) {
        const float2 r = rotation_at(position, a.inv_freq[j], a.rounded);
        T *out = back ? d : x;
        low.load(x + j), high.load(x + j + half);
        float p = rstd * a.scale * low.at(0), q = rstd * a.scale * high.at(0), u, v;
        if (back) {
            dlow.load(d + j), dhigh.load(d + j + half);
            p = rstd * a.scale * (dlow.at(0) - low.at(0) * mean);
            q = rstd * a.scale * (dhigh.at(0) - high.at(0) * mean);
        }
        u = back ? p * r.x + q * r.y : p * r.x - q * r.y;
        v = back ? q * r.x - p * r.y : q * r.x + p * r.y;
        put<1>(out + j, &u);
        put<1>(out + j + half, &v);
    }
}

// spills: rotary_norm_f32_held 16
// spills: rotary_norm_backward_f32_held 24
#define ROTARY(type, T)                                                                            \
    KERNEL_OF(ROTARY_THREADS_MAX, rotary_norm_##type##_held, rotary_kernel_args)                   \
    {                                                                                              \
        rotate_held<T>(a);                                                                         \
    }                                                                                              \
    KERNEL_OF(ROTARY_THREADS_MAX, rotary_norm_backward_##type##_held, rotary_kernel_args)          \
    {                                                                                              \
        rotate_back_held<T>(a);                                                                    \
    }                                                                                              \
    KERNEL_OF(ROTARY_ANY_THREADS, rotary_norm_##type##_any, rotary_kernel_args)                    \
    {                                                                                              \
        rotate_any<T>(a, false);                                                                   \
    }                                                                                              \
    KERNEL_OF(ROTARY_ANY_THREADS, rotary_norm_backward_##type##_any, rotary_kernel_args)           \
    {                                                                                              \
        rotate_any<T>(a, true);                                                                    \
    }
ROTARY(f32, float)
ROTARY(bf16, bf16)
