/* rmsnorm and its gradient. A warp, or a block where rows are longer, keeps a row in registers
 * between its sum and what is written, as it lies in memory; what does not fit is read twice. */
#include "train/norms_args.h"
#include "typed.cuh"

/* 1 / sqrt(mean(x^2) + eps) of the row from the sum of squares. An overflowing square of finite
 * values is taken in double, as the reference has it. */
template <class T, class U = T>
INLINE float norm_scale(float sum, const T *x, int64_t n, float eps, const U *add = NULL)
{
    if (!isinf(sum)) return 1 / sqrtf(sum / (float)n + eps);
    double wide = 0;
    for (int64_t j = 0; j < n; j++) {
        numbers<T, 1> v;
        numbers<U, 1> more;
        v.load(x + j);
        if (add) more.load(add + j);
        const double number = add ? v.at(0) + more.at(0) : v.at(0);
        wide += number * number;
    }
    return (float)(1 / sqrt(wide / (double)n + eps));
}

template <class T, class Y, int GROUP, int HELD> INLINE void norm_held(const norm_kernel_args &a)
{
    __shared__ float scratch[WARP];
    numbers<T, 8> held[HELD];
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % GROUP;
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    if (i >= a.m) return; /* whole warps; a block has a row */
    const T *x = (const T *)a.x + (a.rows ? a.rows[i] : i) * a.n;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        held[c].clear();
        if (j < a.n) held[c].load(x + j);
    }
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        float part = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) part += held[c].at(e) * held[c].at(e);
        sum += part;
    }
    const float scale = norm_scale(group_sum<GROUP>(sum, scratch), x, a.n, a.eps);
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        numbers<float, 8> gain;
        float y[8];
        if (j >= a.n) break;
        if (a.gain) gain.load(a.gain + j);
#pragma unroll
        for (int e = 0; e < 8; e++) y[e] = held[c].at(e) * scale * (a.gain ? gain.at(e) : 1);
        put<8>((Y *)a.y + i * a.n + j, y);
    }
}

template <class T, class Y> INLINE void norm_any(const norm_kernel_args &a)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x;
    const T *x = (const T *)a.x + (a.rows ? a.rows[i] : i) * a.n;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        numbers<T, 1> v;
        v.load(x + j);
        sum += v.at(0) * v.at(0);
    }
    const float scale = norm_scale(block_sum(sum, scratch), x, a.n, a.eps);
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        numbers<T, 1> v;
        v.load(x + j);
        const float y = v.at(0) * scale * (a.gain ? a.gain[j] : 1);
        put<1>((Y *)a.y + i * a.n + j, &y);
    }
}

#define NORMS(type, T, Y)                                                                          \
    KERNEL_OF(NORM_WARPS *WARP, rmsnorm_##type##_warp, norm_kernel_args)                           \
    {                                                                                              \
        norm_held<T, Y, WARP, NORM_WARP_HELD>(a);                                                  \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, rmsnorm_##type##_block, norm_kernel_args)                        \
    {                                                                                              \
        norm_held<T, Y, NORM_BLOCK_THREADS, NORM_BLOCK_HELD>(a);                                   \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, rmsnorm_##type##_any, norm_kernel_args)                          \
    {                                                                                              \
        norm_any<T, Y>(a);                                                                         \
    }
NORMS(f32, float, float)
NORMS(f32_bf16, float, bf16)
NORMS(bf16, bf16, bf16)

/* ---- of a sum: what is written of it is rounded, what is normed is not ---- */

template <class T, class U, int GROUP, int HELD>
INLINE void add_norm_held(const add_norm_kernel_args &a)
{
    __shared__ float scratch[WARP];
    float held[HELD][8];
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % GROUP;
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    if (i >= a.m) return;
    const T *x = (const T *)a.x + i * a.n;
    const U *add = (const U *)a.add + i * a.n;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        numbers<T, 8> v;
        numbers<U, 8> more;
        v.clear(), more.clear();
        if (j < a.n) v.load(x + j), more.load(add + j);
#pragma unroll
        for (int e = 0; e < 8; e++) held[c][e] = v.at(e) + more.at(e);
    }
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        float part = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) part += held[c][e] * held[c][e];
        squares += part;
    }
    const float scale = norm_scale(group_sum<GROUP>(squares, scratch), x, a.n, a.eps, add);
    /* Only now: sum may be x, which norm_scale may have read. */
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int64_t j = (c * GROUP + lane) * 8, at = i * a.n + j;
        numbers<float, 8> gain;
        float y[8];
        if (j >= a.n) break;
        if (a.gain) gain.load(a.gain + j);
        put<8>((T *)a.sum + at, held[c]);
        if (a.copy) put<8>((U *)a.copy + at, held[c]);
#pragma unroll
        for (int e = 0; e < 8; e++) y[e] = held[c][e] * scale * (a.gain ? gain.at(e) : 1);
        put<8>((U *)a.y + at, y);
    }
}

template <class T, class U> INLINE void add_norm_any(const add_norm_kernel_args &a)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x;
    const T *x = (const T *)a.x + i * a.n;
    const U *add = (const U *)a.add + i * a.n;
    numbers<T, 1> v;
    numbers<U, 1> more;
    float squares = 0;
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        v.load(x + j), more.load(add + j);
        const float sum = v.at(0) + more.at(0);
        squares += sum * sum;
    }
    const float scale = norm_scale(block_sum(squares, scratch), x, a.n, a.eps, add);
    __syncthreads(); /* sum may be x */
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        v.load(x + j), more.load(add + j);
        const float sum = v.at(0) + more.at(0), y = sum * scale * (a.gain ? a.gain[j] : 1);
        put<1>((T *)a.sum + i * a.n + j, &sum);
        if (a.copy) put<1>((U *)a.copy + i * a.n + j, &sum);
        put<1>((U *)a.y + i * a.n + j, &y);
    }
}

#define ADD_NORMS(types, T, U)                                                                     \
    KERNEL_OF(NORM_WARPS *WARP, add_rmsnorm_##types##_warp, add_norm_kernel_args)                  \
    {                                                                                              \
        add_norm_held<T, U, WARP, NORM_WARP_HELD>(a);                                              \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, add_rmsnorm_##types##_block, add_norm_kernel_args)               \
    {                                                                                              \
        add_norm_held<T, U, NORM_BLOCK_THREADS, NORM_BLOCK_HELD>(a);                               \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, add_rmsnorm_##types##_any, add_norm_kernel_args)                 \
    {                                                                                              \
        add_norm_any<T, U>(a);                                                                     \
    }
ADD_NORMS(f32, float, float)
ADD_NORMS(f32_bf16, float, bf16)
ADD_NORMS(bf16, bf16, bf16)

/* ---- gradient: dx += r (g - h mean(g h)), h = x r, g = gain dy ---- */

template <class T, int GROUP, int HELD>
INLINE void norm_backward_held(const norm_backward_kernel_args &a)
{
    __shared__ float scratch[WARP];
    numbers<T, 8> x[HELD], dy[HELD];
    wait_for_input();
    let_next_start();
    const int lane = threadIdx.x % GROUP;
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    if (i >= a.m) return;
    const T *from = (const T *)a.x + i * a.n, *from_dy = (const T *)a.dy + i * a.n;
    T *dx = (T *)a.dx + i * a.n;
    float squares = 0, along = 0;
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        x[c].clear(), dy[c].clear();
        if (j < a.n) x[c].load(from + j), dy[c].load(from_dy + j);
    }
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        numbers<float, 8> gain;
        float part = 0, part_along = 0;
        if (j >= a.n) break;
        if (a.gain) gain.load(a.gain + j);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            part += x[c].at(e) * x[c].at(e);
            part_along += x[c].at(e) * dy[c].at(e) * (a.gain ? gain.at(e) : 1);
        }
        squares += part, along += part_along;
    }
    const float r = norm_scale(group_sum<GROUP>(squares, scratch), from, a.n, a.eps);
    const float mean = group_sum<GROUP>(along, scratch) * r / (float)a.n;
    if (a.rstd && lane == 0) a.rstd[i] = r;
#pragma unroll
    for (int c = 0; c < HELD; c++) {
        const int j = (c * GROUP + lane) * 8;
        numbers<float, 8> gain;
        numbers<T, 8> old;
        float out[8];
        if (j >= a.n) break;
        old.load(dx + j);
        if (a.gain) gain.load(a.gain + j);
#pragma unroll
        for (int e = 0; e < 8; e++)
            out[e] =
                old.at(e) + r * (dy[c].at(e) * (a.gain ? gain.at(e) : 1) - x[c].at(e) * r * mean);
        put<8>(dx + j, out);
    }
}

template <class T> INLINE void norm_backward_any(const norm_backward_kernel_args &a)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x;
    const T *from = (const T *)a.x + i * a.n, *from_dy = (const T *)a.dy + i * a.n;
    T *dx = (T *)a.dx + i * a.n;
    numbers<T, 1> x, dy, old;
    float squares = 0, along = 0;
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        x.load(from + j), dy.load(from_dy + j);
        squares += x.at(0) * x.at(0);
        along += x.at(0) * dy.at(0) * (a.gain ? a.gain[j] : 1);
    }
    const float r = norm_scale(block_sum(squares, scratch), from, a.n, a.eps);
    const float mean = block_sum(along, scratch) * r / (float)a.n;
    if (a.rstd && threadIdx.x == 0) a.rstd[i] = r;
    for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
        x.load(from + j), dy.load(from_dy + j), old.load(dx + j);
        const float out =
            old.at(0) + r * (dy.at(0) * (a.gain ? a.gain[j] : 1) - x.at(0) * r * mean);
        put<1>(dx + j, &out);
    }
}

/* A thread a column, over a stripe of rows. */
template <class T> INLINE void gain_backward(const norm_backward_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= a.n) return;
    const int64_t from = a.m * blockIdx.y / GAIN_STRIPES,
                  to = a.m * (blockIdx.y + 1) / GAIN_STRIPES;
    float sum = 0;
#pragma unroll 4
    for (int64_t i = from; i < to; i++) {
        numbers<T, 1> x, dy;
        x.load((const T *)a.x + i * a.n + j);
        dy.load((const T *)a.dy + i * a.n + j);
        sum += x.at(0) * a.rstd[i] * dy.at(0);
    }
    a.partials[j * GAIN_STRIPES + blockIdx.y] = sum;
}

#define NORMS_BACKWARD(type, T)                                                                    \
    KERNEL_OF(NORM_WARPS *WARP, rmsnorm_backward_##type##_warp, norm_backward_kernel_args)         \
    {                                                                                              \
        norm_backward_held<T, WARP, NORM_WARP_HELD>(a);                                            \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, rmsnorm_backward_##type##_block, norm_backward_kernel_args)      \
    {                                                                                              \
        norm_backward_held<T, NORM_BLOCK_THREADS, NORM_BLOCK_HELD>(a);                             \
    }                                                                                              \
    KERNEL_OF(NORM_BLOCK_THREADS, rmsnorm_backward_##type##_any, norm_backward_kernel_args)        \
    {                                                                                              \
        norm_backward_any<T>(a);                                                                   \
    }                                                                                              \
    KERNEL_OF(GAIN_THREADS, gain_backward_##type, norm_backward_kernel_args)                       \
    {                                                                                              \
        gain_backward<T>(a);                                                                       \
    }
NORMS_BACKWARD(f32, float)
NORMS_BACKWARD(bf16, bf16)
