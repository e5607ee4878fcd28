/* cross_entropy. A block has a row and keeps it in registers as it lies in memory, so that logits
 * are read once and their gradient is written once.
 *
 * What limits it is arithmetic: two exponentials and a quotient for each logit, twice. tanh(x / cap)
 * = 1 - 2 r with r = 1 / (exp(2 x / cap) + 1), and four of them share one reciprocal. A cap of at
 * most LOSS_CAP_MAX bounds the exponentials, so that no maximum has to be found first. */
#include "train/loss_args.h"
#include "typed.cuh"

#define LOG2_E 1.4426950408889634f

/* r of four logits, whose factor is 2 log2(e) / cap, and e r^2 = r (1 - r) with e = exp(2 x / cap).
 * Products of four stay below float32's largest number; where the exponential is cut off, tanh is 1.
 * A NaN is none of a number, and reaches its neighbours, all of whose row it spoils anyway. */
INLINE void reciprocals(const float x[4], float factor, float r[4], float slope[4])
{
    const float most = 0x1p30f;
    float e[4], u[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e[i] = exp2_unit(x[i] * factor);
        e[i] = e[i] > most ? most : e[i];
        u[i] = e[i] + 1;
    }
    const float first = u[0] * u[1], second = u[2] * u[3];
    const float all = __fdividef(1, first * second);
    const float of_first = all * second, of_second = all * first;
    r[0] = of_first * u[1], r[1] = of_first * u[0];
    r[2] = of_second * u[3], r[3] = of_second * u[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r[i] = e[i] == most ? 0 : r[i];
        slope[i] = e[i] * r[i] * r[i];
    }
}

/* What eight logits make: the power of two that the weight exp(z - top) is, and the slope dz / dx,
 * over 4 where capped. Those behind the vocabulary weigh nothing. */
template <bool CAPPED> struct loss_piece {
    float power[8], slope[8];

    template <class T> INLINE void set(const loss_kernel_args &a, const numbers<T, 8> &held, int left, float top)
    {
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = held.at(i);
        if (left < 8) {
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = i < left ? x[i] : CAPPED ? 0 : -INFINITY;
        }
        if (!CAPPED) {
#pragma unroll
            for (int i = 0; i < 8; i++) power[i] = (x[i] - top) * LOG2_E, slope[i] = 1;
            return;
        }
        float r[8];
        const float factor = 2 * LOG2_E / a.cap, cap = a.cap * LOG2_E;
        reciprocals(x, factor, r, slope);
        reciprocals(x + 4, factor, r + 4, slope + 4);
#pragma unroll
        for (int i = 0; i < 8; i++) power[i] = cap * (1 - 2 * r[i]);
        if (left < 8) {
#pragma unroll
            for (int i = 0; i < 8; i++) power[i] = i < left ? power[i] : -INFINITY;
        }
    }
};

template <class T, int THREADS, bool CAPPED> INLINE void loss_of_row(const loss_kernel_args &a)
{
    __shared__ float scratch[WARP];
    numbers<T, 8> held[LOSS_HELD];
    loss_piece<CAPPED> piece;
    const int64_t row = blockIdx.x;
    T *x = (T *)a.logits + row * a.cols;
    const int32_t target = a.target[row], vocab = (int32_t)a.vocab;
    float top = CAPPED ? 0 : -INFINITY, total = 0;
#pragma unroll
    for (int c = 0; c < LOSS_HELD; c++) {
        const int j = (c * THREADS + threadIdx.x) * 8;
        held[c].clear();
        if (j < a.cols && target >= 0) held[c].load(x + j);
    }
    numbers<T, 1> wanted;
    wanted.load(x + (target < 0 ? 0 : target));
    if (!CAPPED) {
#pragma unroll
        for (int c = 0; c < LOSS_HELD; c++) {
            const int left = vocab - (c * THREADS + threadIdx.x) * 8;
            if (left <= 0) break;
            held[c].hide();
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < left) top = fmaxf(top, held[c].at(i));
        }
        top = block_max(top, scratch);
    }
#pragma unroll
    for (int c = 0; c < LOSS_HELD; c++) {
        const int j = (c * THREADS + threadIdx.x) * 8;
        float sum = 0;
        if (j >= vocab) break;
        held[c].hide();
        piece.set(a, held[c], vocab - j, top);
#pragma unroll
        for (int i = 0; i < 8; i++) sum += exp2_unit(piece.power[i]);
        total += sum;
    }
    total = block_sum(total, scratch); /* behind it all have read the target's logit */
    if (threadIdx.x == 0) {
        const float z = CAPPED ? a.cap * tanhf(wanted.at(0) / a.cap) : wanted.at(0);
        a.nll[row] = target < 0 ? 0 : top - z + logf(total);
    }
    if (!a.gradient) return;
    const float log_total = log2f(total), scale = (CAPPED ? 4 : 1) * *a.scale;
#pragma unroll
    for (int c = 0; c < LOSS_HELD; c++) {
        const int j = (c * THREADS + threadIdx.x) * 8;
        float out[8] = {0};
        if (j >= a.cols) break;
        if (j < vocab && target >= 0) {
            held[c].hide();
            piece.set(a, held[c], vocab - j, top);
#pragma unroll
            for (int i = 0; i < 8; i++) out[i] = exp2_unit(piece.power[i] - log_total);
            if (target >= j && target < j + 8) {
#pragma unroll
                for (int i = 0; i < 8; i++) out[i] -= j + i == target ? 1 : 0;
            }
#pragma unroll
            for (int i = 0; i < 8; i++) out[i] *= scale * piece.slope[i];
            if (j + 8 > vocab) {
#pragma unroll
                for (int i = 0; i < 8; i++) out[i] = j + i < vocab ? out[i] : 0;
            }
        }
        put<8>(x + j, out);
    }
}

// spills: loss_bf16_free 340
// spills: loss_bf16_free_long 340
#define LOSS(name, threads, blocks, T, CAPPED)                                                     \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ loss_kernel_args a)                                           \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        loss_of_row<T, threads, CAPPED>(a);                                                        \
    }
LOSS(loss_f32_capped, LOSS_THREADS, 1, float, true)
LOSS(loss_f32_free, LOSS_THREADS, 1, float, false)
LOSS(loss_bf16_capped, LOSS_THREADS, 2, bf16, true)
LOSS(loss_bf16_free, LOSS_THREADS, 2, bf16, false)
LOSS(loss_bf16_capped_long, LOSS_THREADS_LONG, 1, bf16, true)
LOSS(loss_bf16_free_long, LOSS_THREADS_LONG, 1, bf16, false)

/* ---- rows of any length: read three times ---- */

INLINE float loss_capped(const loss_kernel_args &a, float x)
{
    return a.cap > 0 ? a.cap * tanhf(x / a.cap) : x;
}

template <class T> INLINE void loss_any(const loss_kernel_args &a)
{
    __shared__ float scratch[WARP];
    numbers<T, 1> v;
    const int64_t row = blockIdx.x;
    T *x = (T *)a.logits + row * a.cols;
    const int32_t target = a.target[row];
    float top = -INFINITY, total = 0;
    for (int64_t j = threadIdx.x; j < a.vocab; j += blockDim.x) {
        v.load(x + j);
        top = fmaxf(top, loss_capped(a, v.at(0)));
    }
    top = block_max(top, scratch);
    for (int64_t j = threadIdx.x; j < a.vocab; j += blockDim.x) {
        v.load(x + j);
        total += expf(loss_capped(a, v.at(0)) - top);
    }
    v.load(x + (target < 0 ? 0 : target));
    const float wanted = loss_capped(a, v.at(0));
    total = block_sum(total, scratch); /* behind it all have read the target's logit */
    if (threadIdx.x == 0) a.nll[row] = target < 0 ? 0 : top - wanted + logf(total);
    if (!a.gradient) return;
    for (int64_t j = threadIdx.x; j < a.cols; j += blockDim.x) {
        float out = 0;
        if (target >= 0 && j < a.vocab) {
            v.load(x + j);
            const float z = loss_capped(a, v.at(0)), bent = a.cap > 0 ? z / a.cap : 0;
            out = *a.scale * (expf(z - top) / total - (j == target ? 1 : 0)) * (1 - bent * bent);
        }
        put<1>(x + j, &out);
    }
}

#define LOSS_ANY(name, T)                                                                          \
    KERNEL_OF(LOSS_THREADS, name, loss_kernel_args)                                                \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        loss_any<T>(a);                                                                            \
    }
LOSS_ANY(loss_f32_any, float)
LOSS_ANY(loss_bf16_any, bf16)
