/* cross_entropy_block and cross_entropy_block_backward: a block of the vocabulary's columns, which
 * a product has just left in the L2 cache. A block of threads has a row.
 *
 * What limits both is arithmetic, two exponentials and a quotient for each logit: tanh(x / cap) is
 * 1 - 2 r with r = 1 / (exp(2 x / cap) + 1). Two logits share a reciprocal. Where logits are capped
 * at no more than LOSS_BLOCK_CAP_MAX the row is read once, since nothing overflows; else its
 * largest number is found first, and what is read again lies in the L1 cache. */
#include "train/loss_block_args.h"
#include "typed.cuh"

#define LOG2_E 1.4426950408889634f

/* z of a logit, and dz / dx. */
template <int N> struct capped_logits {
    float z[N], slope[N];

    INLINE void set(float cap, const float *x)
    {
        const float most = 0x1p30f; /* from where on tanh is 1 */
        const float factor = 2 * LOG2_E / cap;
        float e[N], u[N], r[N];
        if (cap <= 0) {
#pragma unroll
            for (int i = 0; i < N; i++) z[i] = x[i], slope[i] = 1;
            return;
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            e[i] = exp2_unit(x[i] * factor);
            e[i] = e[i] > most ? most : e[i]; /* a NaN stays */
            u[i] = e[i] + 1;
        }
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const float other = N > 1 ? u[(i + 1) % N] : 1;
            const float both = __fdividef(1, u[i] * other);
            r[i] = both * other;
            r[(i + 1) % N] = N > 1 ? both * u[i] : r[i];
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = cap - 2 * cap * r[i];
            slope[i] = e[i] == most ? 0 : 4 * (e[i] * r[i]) * r[i];
        }
    }
};

/* Columns that are of the vocabulary. */
INLINE int64_t loss_columns(const loss_block_kernel_args &a)
{
    const int64_t left = a.vocab - a.first;
    return left < 0 ? 0 : left < a.cols ? left : a.cols;
}

INLINE float loss_capped_one(float cap, float x)
{
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

template <class T, int N> INLINE float largest_of_row(const T *x, int64_t n, float *scratch)
{
    float most = -INFINITY;
    for (int64_t j = (int64_t)threadIdx.x * N; j < n; j += (int64_t)blockDim.x * N) {
        numbers<T, N> held;
        held.load(x + j);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (j + i < n) most = fmaxf(most, held.at(i));
    }
    return block_max(most, scratch);
}

/* The sum of exp(z - base) in the thread's part of a row; the largest x that it met in *most. */
template <class T, int N>
INLINE float terms_of_row(const T *x, int64_t n, float cap, float base, float *most)
{
    float sum = 0;
    for (int64_t j = (int64_t)threadIdx.x * N; j < n; j += (int64_t)blockDim.x * N) {
        numbers<T, N> held;
        capped_logits<N> logits;
        float v[N], part = 0;
        held.load(x + j);
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = held.at(i);
            if (j + i < n) *most = fmaxf(*most, v[i]);
        }
        logits.set(cap, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            part += j + i < n ? exp2_unit((logits.z[i] - base) * LOG2_E) : 0;
        sum += part;
    }
    return sum;
}

template <class T, int N> INLINE void loss_block_of_row(const loss_block_kernel_args &a)
{
    __shared__ float scratch[WARP];
    const int64_t row = blockIdx.x, n = loss_columns(a);
    const T *x = (const T *)a.logits + row * a.cols;
    const int32_t target = a.target[row];
    const bool writes = threadIdx.x == 0, ends = a.first + a.cols >= a.vocab;
    if (target < 0) {
        if (writes) a.top[row] = a.total[row] = a.own[row] = 0;
        if (writes && ends) a.nll[row] = 0;
        return;
    }
    const float top_before = a.first ? a.top[row] : -INFINITY;
    const float total_before = a.first ? a.total[row] : 0;
    const bool bounded = a.cap > 0 && a.cap <= LOSS_BLOCK_CAP_MAX;
    float most = -INFINITY, top = top_before, base = 0;
    if (!bounded && n) {
        most = largest_of_row<T, N>(x, n, scratch);
        top = fmaxf(top, loss_capped_one(a.cap, most));
        base = top == -INFINITY ? 0 : top;
    }
    float sum = terms_of_row<T, N>(x, n, a.cap, base, &most);
    if (bounded && n) {
        most = block_max(most, scratch);
        top = fmaxf(top, loss_capped_one(a.cap, most));
    }
    sum = block_sum(sum, scratch); /* behind it all have read what was there before */
    if (!writes) return;
    float own = a.first ? a.own[row] : 0;
    if (bounded && n) sum *= expf(-top);
    sum += total_before * (top == top_before ? 1 : expf(top_before - top));
    if (target >= a.first && target < a.first + n) {
        numbers<T, 1> wanted;
        wanted.load(x + (target - a.first));
        own = loss_capped_one(a.cap, wanted.at(0));
    }
    if (sum != sum) top = sum;
    a.top[row] = top;
    a.total[row] = sum;
    a.own[row] = own;
    if (ends) a.nll[row] = top - own + logf(sum);
}

template <class T, int N> INLINE void loss_gradient_of_row(const loss_block_kernel_args &a)
{
    const int64_t row = blockIdx.x, n = loss_columns(a);
    T *x = (T *)a.logits + row * a.cols;
    const int32_t target = a.target[row];
    const float top = a.top[row], log_total = target < 0 ? 0 : log2f(a.total[row]);
    const float scale = *a.scale;
    const int64_t own = target < 0 ? -1 : target - a.first;
    for (int64_t j = (int64_t)threadIdx.x * N; j < a.cols; j += (int64_t)blockDim.x * N) {
        float out[N];
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = 0;
        if (target >= 0 && j < n) {
            numbers<T, N> held;
            capped_logits<N> logits;
            held.load(x + j);
#pragma unroll
            for (int i = 0; i < N; i++) out[i] = held.at(i);
            logits.set(a.cap, out);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float share = exp2_unit((logits.z[i] - top) * LOG2_E - log_total);
                out[i] = scale * (share - (j + i == own ? 1 : 0)) * logits.slope[i];
                out[i] = j + i < n ? out[i] : 0;
            }
        }
        put<N>(x + j, out);
    }
}

#define LOSS_BLOCK(name, N, T, of_row)                                                             \
    KERNEL_OF(LOSS_BLOCK_THREADS, name, loss_block_kernel_args)                                    \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        of_row<T, N>(a);                                                                           \
    }
#define LOSS_BLOCKS(name, of_row)                                                                  \
    LOSS_BLOCK(name##_f32_x1, 1, float, of_row)                                                    \
    LOSS_BLOCK(name##_f32_x8, 8, float, of_row)                                                    \
    LOSS_BLOCK(name##_bf16_x1, 1, bf16, of_row)                                                    \
    LOSS_BLOCK(name##_bf16_x8, 8, bf16, of_row)
LOSS_BLOCKS(loss_block, loss_block_of_row)
LOSS_BLOCKS(loss_block_gradient, loss_gradient_of_row)
