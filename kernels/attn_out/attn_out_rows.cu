/* The output projection into the residual stream, for 2 to 32 rows. A pair of blocks owns T tiles of
 * features, each block half of the columns; the second block's sums go to the first. */
#include "attn_out/attn_out_rows_args.h"
#include "gemm/pair_sum.cuh"
#include "gemm/stream_rows.cuh"

#if __CUDA_ARCH__ >= 900
#define FROM_SM_90(...) __VA_ARGS__

template <class W, int T, int N, int WD, int XD>
__device__ inline void add_product(const stream_added_args &a)
{
    enum { EACH = T * FEATURES, ROWS_AT_ONCE = STREAM_THREADS / EACH };
    extern __shared__ __align__(16) char shared[];
    stream_partial<T, N> &partial = *(stream_partial<T, N> *)shared;
    stream_rows<W, T, N, WD, XD, false> product;
    pair_sum<true, N * COLUMNS * EACH> pair;
    uint32_t n = (uint32_t)a.n, m = (uint32_t)a.m, steps = step_count<W>(a.k), half = (steps + 1) / 2;
    uint32_t first = blockIdx.x / FEW_ROWS_PAIR * EACH, rank = pair.rank();
    pair.begin();
#pragma unroll
    for (int i = 0; i < T; i++) {
        uint32_t low = first + i * FEATURES + threadIdx.x % WARP / 4;
        product.weights[i].set(a.w, a.scales, a.k, min(low, n - 1), min(low + 8, n - 1));
    }
    product.open_weights((uint32_t)a.k, rank * half, rank ? steps : half);
    /* What the block's first results begin with: neither attention writes it nor the kernel before that. */
    uint32_t at = threadIdx.x % EACH, feature = first + at, r = threadIdx.x / EACH;
    bool inside = feature < n;
    float bias = a.bias && inside ? a.bias[feature] : 0, start = 0;
    if (inside && r < m) start = a.out[(int64_t)r * n + feature];
    pair.ready(m * EACH);
    wait_for_input();
    let_next_start();
    product.open_rows(a.x, nullptr, m);
    product.run(partial);
    for (; r < m; r += ROWS_AT_ONCE) {
        float sum = partial.total(at, r), *out = a.out + (int64_t)r * n + feature;
        if (!pair.join(r * EACH + at, sum) || !inside) continue;
        if (r >= ROWS_AT_ONCE) start = *out;
        *out = start + (sum + bias);
    }
}

#else
#define FROM_SM_90(...) /* it needs clusters */
#endif

#define KIND(name, type, rows, tiles, groups, weights, activations, blocks)                        \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, blocks)                           \
        name(const __grid_constant__ stream_added_args a)                                          \
    {                                                                                              \
        FROM_SM_90(add_product<type, tiles, groups, weights, activations>(a));                     \
    }

ATTN_OUT_ROWS_BF16(KIND)
ATTN_OUT_ROWS_Q8_0(KIND)
