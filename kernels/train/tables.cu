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
    KERNEL_OF(TABLE_THREADS_MAX, look_up_##type##_x##N, lookup_kernel_args) { look_up<T, N>(a); }
LOOK_UP(f32, float, 1)
LOOK_UP(f32, float, 8)
LOOK_UP(bf16, bf16, 1)
LOOK_UP(bf16, bf16, 8)

/* N numbers of a row of the table: of a format whose pieces are loads, or one number of any. */
template <int N> INLINE void table_piece(const gated_kernel_args &a, int64_t token, int64_t j, float v[N])
{
    if (N == 8)
        load_either<N>(a.table_type == DTYPE_BF16, a.table, token * a.n + j, v);
    else if (TYPE_TILE_ROWS(a.table_type))
        v[0] = tiled_weight_at(a.table_type, tiled_row_of(a.table_type, a.table, a.table_scales, a.n, token), j);
    else
        v[0] = weight_at(a.table_type, (const char *)a.table + token * weight_row_bytes(a.table_type, a.n), j);
}

template <class T, int N> INLINE void add_gated(const gated_kernel_args &a)
{
    __shared__ float scratch[WARP], open[GATED_HEADS_MAX];
    wait_for_input();
    let_next_start();
    const int64_t i = blockIdx.x, token = a.token[i], width = a.n / a.heads;
    if (token < 0) return;
    float norm = 1;
    for (int64_t h = threadIdx.x; h < a.heads; h += blockDim.x) {
        const char *gate = (const char *)a.gate + h * weight_row_bytes(a.gate_type, a.channels);
        double sum = 0;
        for (int64_t c = 0; c < a.channels; c++) {
            numbers<T, 1> x;
            x.load((const T *)a.x + i * a.x_cols + c);
            sum += (double)weight_at(a.gate_type, gate, c) * x.at(0);
        }
        open[h] = a.scale * (a.lambda ? *a.lambda : 1) * sigmoid(sum);
    }
    if (a.normed) {
        float squares = 0, v[N];
        for (int64_t j = threadIdx.x * N; j < a.n; j += blockDim.x * N) {
            table_piece<N>(a, token, j, v);
#pragma unroll
            for (int e = 0; e < N; e++) squares += v[e] * v[e];
        }
        norm = 1 / sqrtf(block_sum(squares, scratch) / (float)a.n + a.eps);
    }
    __syncthreads();
    for (int64_t j = threadIdx.x * N; j < a.n; j += blockDim.x * N) {
        numbers<T, N> y;
        float v[N];
        T *to = (T *)a.y + i * a.n + j;
        const float factor = open[(uint32_t)j / (uint32_t)width];
        table_piece<N>(a, token, j, v);
        y.load(to);
#pragma unroll
        for (int e = 0; e < N; e++) v[e] = y.at(e) + factor * (norm * v[e]);
        put<N>(to, v);
    }
}

// spills: add_gated_bf16_x8 8
#define ADD_GATED(type, T, N)                                                                      \
    KERNEL_OF(TABLE_THREADS_MAX, add_gated_##type##_x##N, gated_kernel_args) { add_gated<T, N>(a); }
ADD_GATED(f32, float, 1)
ADD_GATED(f32, float, 8)
ADD_GATED(bf16, bf16, 1)
ADD_GATED(bf16, bf16, 8)
