// spills: attn_in_two 56
/* Everything before attention, for one row or two, exact: norm, projections, rotation, the cache's new
 * entries. A block owns 8 pairs of features that rotate together (d and d + head_dim / 2 of one head): the product has
 * the first of each as its rows g, the second as rows g + 8. */
#include "attn_in/attn_in_args.h"
#include "cache.cuh"
#include "gemm/few_rows.cuh"
#include "rope/rope.cuh"

enum {
    THREADS = FEW_ROWS_THREADS,
    WARPS = THREADS / WARP,
    CHUNKS = FEW_ROWS_HELD_MAX / 8 / THREADS,
    PARTS = FEW_ROWS_PARTS,
    PAIRS = FEATURES / 2,
};

/* Which features the block owns: `row` is the first of the low ones in its matrix. */
struct owned {
    enum { Q, K, V } kind;
    const void *w, *scales;
    const float *bias;
    uint32_t head, d, row;
};

__device__ inline owned find_owned(const attn_in_kernel_args &a)
{
    uint32_t half = (uint32_t)a.cache.head_dim / 2, each = half / PAIRS;
    uint32_t head = blockIdx.x / each, d = blockIdx.x % each * PAIRS;
    uint32_t heads = (uint32_t)a.n_heads, kv_heads = (uint32_t)a.cache.n_kv_heads;
    owned o = {owned::Q, a.wq, a.scales[0], a.bq, head, d, 0};
    if (head >= heads + kv_heads)
        o = {owned::V, a.wv, a.scales[2], a.bv, head - heads - kv_heads, d, 0};
    else if (head >= heads)
        o = {owned::K, a.wk, a.scales[1], a.bk, head - heads, d, 0};
    o.row = o.head * 2 * half + d;
    return o;
}

__device__ inline void keep(const attn_in_kernel_args &a, const owned &o, uint32_t r, uint32_t d, float value,
                            int32_t page, int32_t position)
{
    const cache_args &c = a.cache;
    if (o.kind == owned::Q)
        a.q[(r * a.n_heads + o.head) * c.head_dim + d] = value;
    else if (o.kind == owned::K)
        cache_put(c.type, c.k, cache_k_at(c, page, o.head, position) + d * CACHE_BLOCK, value);
    else
        cache_put(c.type, c.v, cache_v_at(c, page, o.head, position) + d, value);
}

/* A warp finishes the block: a lane a pair of a row. */
template <class W, int ROWS, int DEPTH> __device__ inline void attn_in(const attn_in_kernel_args &a)
{
    extern __shared__ __align__(16) char columns[];
    __shared__ partial_tile partial[WARPS];
    __shared__ float scratch[ROWS][WARP];
    held_row<CHUNKS, THREADS> x[ROWS];
    dot<W, 1, WARPS, DEPTH> product;
    uint32_t warp = threadIdx.x / WARP, steps = step_count<W>(a.hidden);
    uint32_t half = (uint32_t)a.cache.head_dim / 2, g = threadIdx.x % WARP / 4;
    owned o = find_owned(a);

    product.weights[0].set(o.w, o.scales, a.hidden, o.row + g, o.row + half + g);
    product.open(warp, steps);
    /* What is needed to finish is fetched now. Positions and sequences are those of the whole step: no
     * kernel writes them. */
    uint32_t at = threadIdx.x % PAIRS, r = threadIdx.x / PAIRS, d = o.d + at, row = o.row + at;
    bool finishes = r < ROWS;
    float inv_freq = a.inv_freq[d], low = 0, high = 0;
    if (o.bias) low = o.bias[row], high = o.bias[row + half];
    int32_t position = finishes ? a.position[r] : 0, page = 0;
    if (finishes && o.kind != owned::Q) page = cache_page(a.cache, a.sequence[r], position);
    rotation turned = {0, 1};
    if (finishes && o.kind != owned::V) turned.set(position, inv_freq, a.rope_scale);
    ask_near(a.norm, a.hidden);
    wait_for_input();
    let_next_start();
#pragma unroll
    for (int i = 0; i < ROWS; i++) x[i].take(a.x + i * a.hidden, a.hidden);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        x[i].put_squares(scratch[i]);
        x[i].apply(a.norm, a.hidden);
        x[i].template spread<W, PARTS>(a.hidden, columns + i * PARTS * column_bytes<W>(a.hidden));
    }
    __syncthreads();

    float sum[1][4] = {{0, 0, 0, 0}};
    product.run(sum, lane_column<W>(columns, a.hidden, ROWS * PARTS), warp, steps);
    partial[warp].template put<W>(sum[0]);
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    float scale = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float of_row = x[i].scale_of(a.x + i * a.hidden, a.hidden, a.eps, scratch[i]);
        if (r == i) scale = of_row;
    }
    if (!finishes) return;
    low += total_of<PARTS, WARPS>(partial, at, r) * scale;
    high += total_of<PARTS, WARPS>(partial, at + PAIRS, r) * scale;
    turned.turn(low, high);
    keep(a, o, r, d, low, page, position);
    keep(a, o, r, d + half, high, page, position);
}

#define ATTN_IN(name, weights, rows, depth)                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 3)                                        \
        name(const __grid_constant__ attn_in_kernel_args a)                                         \
    {                                                                                               \
        attn_in<weights, rows, depth>(a);                                                           \
    }

ATTN_IN(attn_in_row, bf16_weights, 1, 3)
ATTN_IN(attn_in_row_q8_0, q8_0_weights, 1, 2)
ATTN_IN(attn_in_two, bf16_weights, 2, 3)
ATTN_IN(attn_in_two_q8_0, q8_0_weights, 2, 2)
