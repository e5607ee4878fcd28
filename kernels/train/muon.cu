/* What muon does before and behind its products. Norms need all of a matrix: a first kernel leaves
 * the sums of squares of its rows (or columns), a block a matrix makes factors of them, and a last
 * kernel computes again what the first one did and writes. Blocks have a row each. */
#include "train/optimizer_args.h"
#include "typed.cuh"

/* ---- muon_prepare ---- */

template <int N> INLINE void muon_momentum(const muon_prepare_kernel_args &a)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    const float clip = a.clip ? *a.clip : 1, mu = a.step->momentum;
    const int64_t row = blockIdx.x * a.cols;
    float squares = 0;
    for (int64_t j = threadIdx.x * N; j < a.cols; j += blockDim.x * N) {
        numbers<float, N> g, m;
        float now[N], part = 0;
        g.load(a.g + row + j), m.load(a.momentum + row + j);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float grad = g.at(e) * clip;
            now[e] = m.at(e) + (grad - m.at(e)) * (1 - mu);
            const float x = grad + (now[e] - grad) * mu;
            part += x * x;
        }
        put<N>(a.momentum + row + j, now);
        squares += part;
    }
    squares = block_sum(squares, scratch);
    if (threadIdx.x == 0) a.factors[blockIdx.x] = squares;
}

/* A row's factor: to the mean norm where asked, then over the norm that all rows have with it. */
KERNEL_OF(MUON_LINES_THREADS, muon_row_factors, muon_prepare_kernel_args)
{
    __shared__ double scratch[WARP];
    wait_for_input();
    let_next_start();
    float *rows = a.factors + blockIdx.x * a.rows;
    double total = 0, scaled = 0;
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) total += rows[i];
    total = block_sum_f64(total, scratch);
    const double target = sqrt(total) / sqrt((double)a.rows);
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) {
        const double squares = rows[i], norm = sqrt(squares);
        const float factor = a.equilibrate ? (float)(target / (norm < 1e-6 ? 1e-6 : norm)) : 1;
        scaled += squares * factor * factor;
        rows[i] = factor;
    }
    scaled = sqrt(block_sum_f64(scaled, scratch)) * a.margin + a.tiny;
    for (int64_t i = threadIdx.x; i < a.rows; i += blockDim.x) rows[i] = (float)(rows[i] / scaled);
}

template <class T, int N> INLINE void muon_direction(const muon_prepare_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const float clip = a.clip ? *a.clip : 1, mu = a.step->momentum, factor = a.factors[blockIdx.x];
    const float nothing[N] = {0};
    const int64_t row = blockIdx.x * a.cols;
    for (int64_t j = threadIdx.x * N; j < a.cols; j += blockDim.x * N) {
        numbers<float, N> g, m;
        float x[N];
        g.load(a.g + row + j), m.load(a.momentum + row + j);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float grad = g.at(e) * clip;
            x[e] = (grad + (m.at(e) - grad) * mu) * factor;
        }
        put<N>((T *)a.x + row + j, x);
        put<N>(a.g + row + j, nothing);
    }
}

/* ---- muon_apply ---- */

template <class T, int N> INLINE void muon_row_squares(const muon_apply_kernel_args &a)
{
    __shared__ float scratch[WARP];
    wait_for_input();
    let_next_start();
    const T *x = (const T *)a.x + blockIdx.x * a.cols;
    float squares = 0;
    for (int64_t j = threadIdx.x * N; j < a.cols; j += blockDim.x * N) {
        numbers<T, N> v;
        float part = 0;
        v.load(x + j);
#pragma unroll
        for (int e = 0; e < N; e++) part += v.at(e) * v.at(e);
        squares += part;
    }
    squares = block_sum(squares, scratch);
    if (threadIdx.x == 0) a.factors[blockIdx.x] = squares;
}

/* N columns a thread, over a stripe of a matrix's rows. */
template <class T, int N> INLINE void muon_column_squares(const muon_apply_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (j >= a.cols) return;
    const int64_t stripe = blockIdx.y % MUON_STRIPES, matrix = blockIdx.y / MUON_STRIPES;
    const int64_t from = a.rows * stripe / MUON_STRIPES, to = a.rows * (stripe + 1) / MUON_STRIPES;
    const T *x = (const T *)a.x + matrix * a.rows * a.cols + j;
    float squares[N] = {0};
#pragma unroll 4
    for (int64_t i = from; i < to; i++) {
        numbers<T, N> v;
        v.load(x + i * a.cols);
#pragma unroll
        for (int e = 0; e < N; e++) squares[e] += v.at(e) * v.at(e);
    }
    put<N>(a.partials + blockIdx.y * a.cols + j, squares);
}

/* What the lines of a matrix are times; their second moments learn. */
KERNEL_OF(MUON_LINES_THREADS, muon_line_factors, muon_apply_kernel_args)
{
    __shared__ double scratch[WARP];
    wait_for_input();
    let_next_start();
    const bool tall = a.rows >= a.cols;
    const int64_t lines = tall ? a.rows : a.cols, width = tall ? a.cols : a.rows;
    float *line = a.factors + blockIdx.x * lines;
    const float *parts = a.partials + (int64_t)blockIdx.x * MUON_STRIPES * a.cols;
    double total = 0, before = 0, after = 0, scale = 1, keep = 1;
    for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
        float sum = tall ? line[i] : 0;
        for (int s = 0; !tall && s < MUON_STRIPES; s++) sum += parts[s * a.cols + i];
        line[i] = sum;
        total += sum;
    }
    total = sqrt(block_sum_f64(total, scratch));
    if (a.snap) scale = sqrt((double)width) / (total < 1e-6 ? 1e-6 : total);
    if (a.second) {
        float *second = a.second + blockIdx.x * lines;
        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
            const double squares = line[i] * scale * scale;
            const float moment =
                second[i] + ((float)(squares / (double)width) - second[i]) * (1 - a.step->beta2);
            const double least = 1e-10, factor = 1 / sqrt(moment < least ? least : (double)moment);
            second[i] = moment;
            before += squares;
            after += squares * factor * factor;
            line[i] = (float)factor;
        }
        before = sqrt(block_sum_f64(before, scratch));
        after = sqrt(block_sum_f64(after, scratch));
        keep = before / (after < 1e-10 ? 1e-10 : after);
    }
    for (int64_t i = threadIdx.x; i < lines; i += blockDim.x)
        line[i] = (float)(scale * keep * (a.second ? line[i] : 1));
}

template <class T, int N> INLINE void muon_step_row(const muon_apply_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const bool tall = a.rows >= a.cols;
    const float lr = a.step->lr, decay = lr * a.step->decay;
    const int64_t row = blockIdx.x * a.cols;
    const float of_row = a.factors && tall ? a.factors[blockIdx.x] : 1;
    const float *of_column = a.factors && !tall ? a.factors + blockIdx.x / a.rows * a.cols : NULL;
    for (int64_t j = threadIdx.x * N; j < a.cols; j += blockDim.x * N) {
        numbers<T, N> x;
        numbers<float, N> p, factor;
        float now[N];
        x.load((const T *)a.x + row + j), p.load(a.p + row + j);
        if (of_column) factor.load(of_column + j);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const float u = x.at(e) * (of_column ? factor.at(e) : of_row);
            now[e] = p.at(e) - (lr * u + (u * p.at(e) >= 0 ? decay * p.at(e) : 0));
        }
        put<N>(a.p + row + j, now);
    }
}

#define MUON_OF(name, args, fn, type, T, N)                                                        \
    KERNEL_OF(OPTIMIZER_THREADS, name##_##type##_x##N, args)                                       \
    {                                                                                              \
        fn<T, N>(a);                                                                               \
    }
#define MUON(type, T, N)                                                                           \
    MUON_OF(muon_direction, muon_prepare_kernel_args, muon_direction, type, T, N)                  \
    MUON_OF(muon_row_squares, muon_apply_kernel_args, muon_row_squares, type, T, N)                \
    MUON_OF(muon_column_squares, muon_apply_kernel_args, muon_column_squares, type, T, N)          \
    MUON_OF(muon_step_row, muon_apply_kernel_args, muon_step_row, type, T, N)
MUON(f32, float, 1)
MUON(f32, float, 8)
MUON(bf16, bf16, 1)
MUON(bf16, bf16, 8)
KERNEL_OF(OPTIMIZER_THREADS, muon_momentum_x1, muon_prepare_kernel_args)
{
    muon_momentum<1>(a);
}
KERNEL_OF(OPTIMIZER_THREADS, muon_momentum_x8, muon_prepare_kernel_args)
{
    muon_momentum<8>(a);
}
