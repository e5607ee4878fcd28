/* The output projection into the residual stream, for 2 to 32 rows. */
#include "attn_out/attn_out_rows_args.h"
#include "gemm/stream_rows.cuh"

template <class W, int T, int N, int P, int WD, int XD>
__device__ inline void add_product(const stream_added_args &a)
{
    extern __shared__ __align__(16) char shared[];
    stream_partial<T, N> &partial = *(stream_partial<T, N> *)shared;
    stream_rows<W, T, N, P, WD, XD, false> product;
    uint32_t n = (uint32_t)a.n, m = (uint32_t)a.m, first = blockIdx.x * T * FEATURES;
#pragma unroll
    for (int i = 0; i < T; i++) {
        uint32_t low = first + i * FEATURES + threadIdx.x % WARP / 4;
        product.weights[i].set(a.w, a.scales, a.k, min(low, n - 1), min(low + 8, n - 1));
    }
    product.open_weights((uint32_t)a.k);
    /* What the block's first results begin with: the kernel before does not write it. */
    enum { EACH = T * FEATURES };
    uint32_t feature = first + threadIdx.x % EACH;
    bool inside = feature < n;
    float bias = a.bias && inside ? a.bias[feature] : 0, start = 0;
    if (inside && threadIdx.x / EACH < m)
        start = a.out[(int64_t)(threadIdx.x / EACH) * n + feature];
    wait_for_input();
    let_next_start();
    product.open_rows(a.x, nullptr, m);
    product.run(partial);
    for (uint32_t r = threadIdx.x / EACH; inside && r < m; r += STREAM_THREADS / EACH) {
        float *out = a.out + (int64_t)r * n + feature;
        if (r >= STREAM_THREADS / EACH) start = *out;
        *out = start + (partial.template total<P>(threadIdx.x % EACH, r) + bias);
    }
}

#define KIND(name, type, rows, tiles, groups, parts, weights, activations, blocks)                 \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, blocks)                           \
        name(const __grid_constant__ stream_added_args a)                                          \
    {                                                                                              \
        add_product<type, tiles, groups, parts, weights, activations>(a);                          \
    }

ATTN_OUT_ROWS_BF16(KIND)
ATTN_OUT_ROWS_Q8_0(KIND)
