/* Rows of tables that tokens choose: embed and gated_embed. A thread has a piece of a row. */
#include "train/tables_args.h"
#include "typed.cuh"
#include "weights.cuh"

template <class T, int N> INLINE void look_up(const lookup_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x, from = a.token[i] * a.n;
    for (int64_t j = threadIdx.x * N; j < a.n; j += blockDim.x * N) {
        float v[N];
        load_either<N>(a.narrow, a.table, from + j, v);
        put<N>((T *)a.x + i * a.n + j, v);
    }
}

#define LOOK_UP(type, T, N)                                                                        \
    KERNEL_OF(TABLE_THREADS_MAX, look_up_##type##_x##N, lookup_kernel_args)                        \
    {                                                                                              \
        look_up<T, N>(a);                                                                          \
    }
LOOK_UP(f32, float, 1)
LOOK_UP(f32, float, 8)
LOOK_UP(bf16, bf16, 1)
LOOK_UP(bf16, bf16, 8)

/* N numbers of a row of the table: of a format whose pieces are loads, or one number of any. */
template <int N>
INLINE void table_piece(const gated_kernel_args &a, int64_t token, int64_t j, float v[N])
{
    if (N == 8)
        load_either<N>(a.table_type == DTYPE_BF16, a.table, token * a.n + j, v);
    else if (TYPE_TILE_ROWS(a.table_type))
        v[0] = tiled_weight_at(a.table_type,
                               tiled_row_of(a.table_type, a.table, a.table_scales, a.n, token), j);
    else
        v[0] = weight_at(a.table_type,
                         (const char *)a.table + token * weight_row_bytes(a.table_type, a.n), j);
}

/* scale * lambda * sigmoid(gate . x) of a head. */
template <class T> INLINE float gate_of_head(const gated_kernel_args &a, const T *x, int64_t h)
{
    const char *gate = (const char *)a.gate + h * weight_row_bytes(a.gate_type, a.channels);
    double sum = 0;
    if (a.gate_type == DTYPE_F32) {
#pragma unroll 4
        for (int64_t c = 0; c < a.channels; c++) {
            numbers<T, 1> v;
            v.load(x + c);
            sum += (double)((const float *)gate)[c] * v.at(0);
        }
    } else {
#pragma unroll 1
        for (int64_t c = 0; c < a.channels; c++) {
            numbers<T, 1> v;
            v.load(x + c);
            sum += (double)weight_at(a.gate_type, gate, c) * v.at(0);
        }
    }
    return a.scale * (a.lambda ? *a.lambda : 1) * sigmoid(sum);
}

template <class T, int N> INLINE void add_gated(const gated_kernel_args &a)
{
    __shared__ float scratch[WARP], open[GATED_HEADS_MAX];
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x, token = a.token[i];
    const uint32_t width = (uint32_t)a.n / (uint32_t)a.heads;
    if (token < 0) return;
    T *to = (T *)a.y + i * a.n;
    int64_t j = threadIdx.x * N;
    float v[N], norm = 1;
    numbers<T, N> y;
    if (j < a.n) { /* on their way while gates are computed */
        table_piece<N>(a, token, j, v);
        y.load(to + j);
    }
    for (int64_t h = threadIdx.x; h < a.heads; h += blockDim.x)
        open[h] = gate_of_head(a, (const T *)a.x + i * a.x_cols, h);
    if (a.normed) {
        float squares = 0, w[N];
        for (int64_t k = threadIdx.x * N; k < a.n; k += blockDim.x * N) {
            table_piece<N>(a, token, k, w);
#pragma unroll
            for (int e = 0; e < N; e++) squares += w[e] * w[e];
        }
        norm = 1 / sqrtf(block_sum(squares, scratch) / (float)a.n + a.eps);
    }
    __syncthreads();
    while (j < a.n) {
        const float factor = open[(uint32_t)j / width];
#pragma unroll
        for (int e = 0; e < N; e++) v[e] = y.at(e) + factor * (norm * v[e]);
        put<N>(to + j, v);
        j += blockDim.x * N;
        if (j >= a.n) break;
        table_piece<N>(a, token, j, v);
        y.load(to + j);
    }
}

// spills: add_gated_f32_x1 44
// spills: add_gated_f32_x8 96
// spills: add_gated_bf16_x1 44
// spills: add_gated_bf16_x8 96
#define ADD_GATED(type, T, N)                                                                      \
    KERNEL_OF(TABLE_THREADS_MAX, add_gated_##type##_x##N, gated_kernel_args)                       \
    {                                                                                              \
        add_gated<T, N>(a);                                                                        \
    }
ADD_GATED(f32, float, 1)
ADD_GATED(f32, float, 8)
ADD_GATED(bf16, bf16, 1)
ADD_GATED(bf16, bf16, 8)
