/* What treats each number by itself. A thread has MAP_PIECES pieces that lie a block apart, so that
 * the loads of a warp are one stretch, and all of them are on their way before the first is used.
 */
#include "random.cuh"
#include "relu2.cuh"
#include "swiglu/swiglu.cuh"
#include "train/map_args.h"
#include "typed.cuh"

/* out = f(x, y); y may be NULL, and out may be either. */
template <int N, class X, class Y, class OUT, class F>
INLINE void map_numbers(const map_kernel_args &a, const F &f)
{
    const X *x = (const X *)a.x;
    const Y *y = (const Y *)a.y;
    OUT *out = (OUT *)a.out;
    numbers<X, N> p[MAP_PIECES];
    numbers<Y, N> q[MAP_PIECES];
    int64_t step = (int64_t)blockDim.x * N;
    int64_t first = blockIdx.x * step * MAP_PIECES + threadIdx.x * N;
#pragma unroll
    for (int k = 0; k < MAP_PIECES; k++) {
        q[k].clear();
        if (first + k * step < a.count) {
            p[k].load(x + first + k * step);
            if (y) q[k].load(y + first + k * step);
        }
    }
#pragma unroll
    for (int k = 0; k < MAP_PIECES; k++) {
        float v[N];
        if (first + k * step >= a.count) break;
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = f(p[k].at(i), q[k].at(i));
        put<N>(out + first + k * step, v);
    }
}

#define MAP(name, F, N, X, Y, OUT)                                                                 \
    KERNEL_OF(MAP_THREADS, name, map_kernel_args)                                                  \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        map_numbers<N, X, Y, OUT>(a, F(a));                                                        \
    }
#define MAPS(name, F)                                                                              \
    MAP(name##_f32_x1, F, 1, float, float, float)                                                  \
    MAP(name##_f32_x8, F, 8, float, float, float)                                                  \
    MAP(name##_bf16_x1, F, 1, bf16, bf16, bf16)                                                    \
    MAP(name##_bf16_x8, F, 8, bf16, bf16, bf16)

struct adding {
    INLINE adding(const map_kernel_args &) {}
    INLINE float operator()(float x, float y) const { return x + y; }
};
MAPS(add, adding)

struct squaring {
    INLINE squaring(const map_kernel_args &) {}
    INLINE float operator()(float x, float) const { return relu_squared(x); }
};
MAPS(relu2, squaring)

struct slope_of_square {
    INLINE slope_of_square(const map_kernel_args &) {}
    INLINE float operator()(float y, float d) const { return relu_squared_slope(y, d); }
};
MAPS(relu2_backward, slope_of_square)

struct scaled_sum {
    float a, b;
    INLINE scaled_sum(const map_kernel_args &k)
        : a(k.a ? *k.a : 1), b(k.y ? k.factor * (k.b ? *k.b : 1) : 0)
    {
    }
    INLINE float operator()(float x, float y) const { return a * x + b * y; }
};
MAPS(axpby, scaled_sum)

struct bounding {
    float cap;
    INLINE bounding(const map_kernel_args &k) : cap(k.factor) {}
    INLINE float operator()(float x, float) const { return cap * tanhf(x / cap); }
};
MAPS(softcap, bounding)

struct gated {
    float alpha, limit;
    INLINE gated(const map_kernel_args &k) : alpha(k.factor), limit(k.limit) {}
    INLINE float operator()(float gate, float up) const { return swiglu(gate, up, alpha, limit); }
};
MAPS(swiglu, gated)

struct copying {
    INLINE copying(const map_kernel_args &) {}
    INLINE float operator()(float x, float) const { return x; }
};
MAPS(convert, copying)
MAP(convert_f32_bf16_x1, copying, 1, float, float, bf16)
MAP(convert_f32_bf16_x8, copying, 8, float, float, bf16)
MAP(convert_bf16_f32_x1, copying, 1, bf16, bf16, float)
MAP(convert_bf16_f32_x8, copying, 8, bf16, bf16, float)

template <int N, class T> INLINE void fill_numbers(const map_kernel_args &a)
{
    float v[N];
    int64_t step = (int64_t)blockDim.x * N;
    int64_t first = blockIdx.x * step * MAP_PIECES + threadIdx.x * N;
    wait_for_input();
    let_next_start();
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = a.factor;
#pragma unroll
    for (int k = 0; k < MAP_PIECES; k++)
        if (first + k * step < a.count) put<N>((T *)a.out + first + k * step, v);
}

#define FILL(name, N, T)                                                                           \
    KERNEL_OF(MAP_THREADS, name, map_kernel_args)                                                  \
    {                                                                                              \
        fill_numbers<N, T>(a);                                                                     \
    }
FILL(fill_f32_x1, 1, float)
FILL(fill_f32_x8, 8, float)
FILL(fill_bf16_x1, 1, bf16)
FILL(fill_bf16_x8, 8, bf16)

/* ---- a sum, and what is made of it ---- */

template <int N, class T> INLINE void add_mix_numbers(const add_axpby_kernel_args &k)
{
    wait_for_input();
    let_next_start();
    const float a = k.a ? *k.a : 1, b = k.factor * (k.b ? *k.b : 1);
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= k.count) return;
    numbers<T, N> x, first, second, y;
    float sum[N], out[N];
    x.load((const T *)k.x + at), first.load((const T *)k.first + at);
    second.load((const T *)k.second + at);
    if (k.y) y.load((const T *)k.y + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum[i] = x.at(i) + first.at(i) + second.at(i);
        out[i] = a * sum[i] + b * (k.y ? y.at(i) : sum[i]);
    }
    put<N>((T *)k.sum + at, sum);
    put<N>((T *)k.out + at, out);
}

#define ADD_MIX(name, N, T)                                                                        \
    KERNEL_OF(MAP_THREADS, name, add_axpby_kernel_args)                                            \
    {                                                                                              \
        add_mix_numbers<N, T>(a);                                                                  \
    }
ADD_MIX(add_axpby_f32_x1, 1, float)
ADD_MIX(add_axpby_f32_x8, 8, float)
ADD_MIX(add_axpby_bf16_x1, 1, bf16)
ADD_MIX(add_axpby_bf16_x8, 8, bf16)

/* ---- dropout ---- */

/* A piece of eight numbers has random bits of its own; where numbers come one by one, each thread
 * makes those of its eight for the one. */
template <int N, class T> INLINE void drop_numbers(const dropout_kernel_args &a)
{
    const T *x = (const T *)a.x, *add = (const T *)a.add;
    int64_t step = (int64_t)blockDim.x * N;
    int64_t first = blockIdx.x * step * MAP_PIECES + threadIdx.x * N;
    wait_for_input();
    let_next_start();
    const random_key key = *a.key;
#pragma unroll
    for (int k = 0; k < MAP_PIECES; k++) {
        int64_t at = first + k * step;
        if (at >= a.count) break;
        numbers<T, N> p, q;
        float v[N];
        p.load(x + at);
        q.clear();
        if (add) q.load(add + at);
        random_words words = philox(key, (uint32_t)(at / 8), a.stream);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int half = N == 1 ? (int)(at % 8) : i;
            uint32_t word = words.of[0];
#pragma unroll
            for (int j = 1; j < 4; j++)
                if (half / 2 == j) word = words.of[j];
            bool kept = (word >> half % 2 * 16 & 0xffff) >= a.limit;
            v[i] = kept ? a.factor * p.at(i) + q.at(i) : q.at(i);
        }
        put<N>((T *)a.out + at, v);
    }
}

#define DROPOUT(name, N, T)                                                                        \
    KERNEL_OF(MAP_THREADS, name, dropout_kernel_args)                                              \
    {                                                                                              \
        drop_numbers<N, T>(a);                                                                     \
    }
DROPOUT(dropout_f32_x1, 1, float)
DROPOUT(dropout_f32_x8, 8, float)
DROPOUT(dropout_bf16_x1, 1, bf16)
DROPOUT(dropout_bf16_x8, 8, bf16)

/* ---- with two results ---- */

/* Comparisons written so that a NaN passes through; 1 - s of its own, since s may be nearly 1. */
INLINE void swiglu_slopes(float gate, float up, float alpha, float limit, float &d, float &dup)
{
    const float g = gate > limit ? limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    const float s = 1 / (1 + expf(-alpha * g)), rest = 1 / (1 + expf(alpha * g));
    const float slope = s * (u + 1) * (1 + alpha * g * rest), dout = d;
    d = dout * (gate > limit ? 0 : slope);
    dup = dout * (fabsf(up) > limit ? 0 : g * s);
}

template <int N, class T> INLINE void swiglu_backward(const swiglu_backward_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= a.count) return;
    numbers<T, N> gate, up, old;
    float d[N], dup[N];
    gate.load((const T *)a.gate + at);
    up.load((const T *)a.up + at);
    old.load((const T *)a.d + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        d[i] = old.at(i);
        swiglu_slopes(gate.at(i), up.at(i), a.alpha, a.limit, d[i], dup[i]);
    }
    put<N>((T *)a.d + at, d);
    put<N>((T *)a.dup + at, dup);
}

#define SWIGLU_BACKWARD(name, N, T)                                                                \
    KERNEL_OF(MAP_THREADS, name, swiglu_backward_kernel_args)                                      \
    {                                                                                              \
        swiglu_backward<N, T>(a);                                                                  \
    }
SWIGLU_BACKWARD(swiglu_backward_f32_x1, 1, float)
SWIGLU_BACKWARD(swiglu_backward_f32_x8, 8, float)
SWIGLU_BACKWARD(swiglu_backward_bf16_x1, 1, bf16)
SWIGLU_BACKWARD(swiglu_backward_bf16_x8, 8, bf16)

/* ---- with sums over all numbers ---- */

template <int N, class T> INLINE void mix_backward(const axpby_backward_kernel_args &a)
{
    __shared__ float scratch[WARP];
    const T *x = (const T *)a.x, *y = (const T *)a.y;
    T *d = (T *)a.d, *dy = (T *)a.dy;
    float da = 0, db = 0;
    wait_for_input();
    let_next_start();
    const float fa = a.a ? *a.a : 1, fb = a.factor * (a.b ? *a.b : 1);
    const int64_t step = (int64_t)gridDim.x * blockDim.x * N;
    for (int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; at < a.count;
         at += step) {
        numbers<T, N> vx, vy, vd, vdy;
        float sx = 0, sy = 0, out[N], out_y[N];
        vx.clear(), vy.clear(), vdy.clear();
        vd.load(d + at);
        if (x) vx.load(x + at);
        if (y) vy.load(y + at);
        if (!a.first) vdy.load(dy + at);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sx += vd.at(i) * vx.at(i);
            sy += vd.at(i) * vy.at(i);
            out_y[i] = vdy.at(i) + fb * vd.at(i);
            out[i] = fa * vd.at(i);
        }
        put<N>(dy + at, out_y);
        put<N>(d + at, out);
        da += sx, db += sy;
    }
    da = block_sum(da, scratch);
    db = block_sum(db, scratch);
    if (threadIdx.x) return;
    a.partials[blockIdx.x] = da;
    a.partials[gridDim.x + blockIdx.x] = db;
}

#define MIX_BACKWARD(name, N, T)                                                                   \
    KERNEL_OF(MAP_THREADS, name, axpby_backward_kernel_args)                                       \
    {                                                                                              \
        mix_backward<N, T>(a);                                                                     \
    }
MIX_BACKWARD(axpby_backward_f32_x1, 1, float)
MIX_BACKWARD(axpby_backward_f32_x8, 8, float)
MIX_BACKWARD(axpby_backward_bf16_x1, 1, bf16)
MIX_BACKWARD(axpby_backward_bf16_x8, 8, bf16)
