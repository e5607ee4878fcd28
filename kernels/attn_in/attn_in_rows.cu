/* Everything before attention, for 2 to 32 rows: norm, projections, rotation, the cache's new
 * entries. A block owns tiles of 8 pairs of features that rotate together, as in attn_in.cu. */
#include "attn_in/attn_in_rows_args.h"
#include "cache.cuh"
#include "gemm/stream_rows.cuh"
#include "rope/rope.cuh"

enum { PAIRS = FEATURES / 2 };
enum matrix { Q, K, V }; /* as in attn_in_kernel_args.scales */

/* A tile's matrix, head in it, and first pair in the head. */
struct owned {
    matrix kind;
    uint32_t head, d;

    __device__ owned(const attn_in_kernel_args &a, uint32_t tile)
    {
        uint32_t each = (uint32_t)a.cache.head_dim / FEATURES, heads = (uint32_t)a.n_heads;
        uint32_t kv_heads = (uint32_t)a.cache.n_kv_heads;
        head = tile / each, d = tile % each * PAIRS;
        kind = head < heads ? Q : head < heads + kv_heads ? K : V;
        head -= kind == Q ? 0 : kind == K ? heads : heads + kv_heads;
    }
    template <class T> __device__ T of(T q, T k, T v) const
    {
        return kind == Q ? q : kind == K ? k : v;
    }
    __device__ uint32_t row(const attn_in_kernel_args &a) const
    {
        return head * (uint32_t)a.cache.head_dim + d;
    }
};

/* One pair of one row, from the sums to where it belongs. */
struct finished_pair {
    owned o;
    uint32_t at, r;
    int32_t position, page;
    float low, high; /* biases */
    rotation turned;

    __device__ finished_pair(const attn_in_kernel_args &a, uint32_t tile, uint32_t pair,
                             uint32_t row)
        : o(a, tile), at(pair), r(row)
    {
        uint32_t first = o.row(a) + at, half = (uint32_t)a.cache.head_dim / 2;
        const float *bias = o.of(a.bq, a.bk, a.bv);
        position = a.position[r];
        page = o.kind == Q ? 0 : cache_page(a.cache, a.sequence[r], position);
        low = bias ? bias[first] : 0, high = bias ? bias[first + half] : 0;
        turned = {0, 1};
        if (o.kind != V) turned.set(position, a.inv_freq[o.d + at], a.rope_scale);
    }
    __device__ void put(const attn_in_kernel_args &a, uint32_t d, float value) const
    {
        const cache_args &c = a.cache;
        if (o.kind == Q)
            a.q[((int64_t)r * a.n_heads + o.head) * c.head_dim + d] = value;
        else if (o.kind == K)
            cache_put(c.type, c.k, cache_k_at(c, page, o.head, position) + d * CACHE_BLOCK, value);
        else
            cache_put(c.type, c.v, cache_v_at(c, page, o.head, position) + d, value);
    }
    __device__ void finish(const attn_in_kernel_args &a, float low_sum, float high_sum)
    {
        low += low_sum, high += high_sum;
        turned.turn(low, high);
        put(a, o.d + at, low);
        put(a, o.d + at + (uint32_t)a.cache.head_dim / 2, high);
    }
};

template <class W, int T, int N, int WD, int XD>
__device__ inline void attn_in_rows(const attn_in_rows_args &args)
{
    extern __shared__ __align__(16) char shared[];
    stream_partial<T, N> &partial = *(stream_partial<T, N> *)shared;
    const attn_in_kernel_args &a = args.all;
    stream_rows<W, T, N, WD, XD, true> product;
    uint32_t half = (uint32_t)a.cache.head_dim / 2, g = threadIdx.x % WARP / 4,
             m = (uint32_t)args.m;
    uint32_t tiles = ((uint32_t)a.n_heads + 2 * (uint32_t)a.cache.n_kv_heads) * (half / PAIRS);
    uint32_t first = blockIdx.x * T;
#pragma unroll
    for (int i = 0; i < T; i++) {
        owned o(a, min(first + i, tiles - 1));
        product.weights[i].set(o.of(a.wq, a.wk, a.wv), a.scales[o.kind], a.hidden, o.row(a) + g,
                               o.row(a) + half + g);
    }
    product.open_weights((uint32_t)a.hidden, 0, step_count<W>(a.hidden));
    /* Whose pair a thread finishes first, and what it needs then: no kernel of the step writes it. */
    uint32_t pair = threadIdx.x % (T * PAIRS), tile = pair / PAIRS, at = pair % PAIRS,
             r = threadIdx.x / (T * PAIRS);
    bool inside = first + tile < tiles;
    finished_pair p(a, min(first + tile, tiles - 1), at, min(r, m - 1));
    wait_for_input();
    let_next_start();
    product.open_rows(a.x, a.norm, m);
    product.run(partial);
    for (; inside && r < m; r += STREAM_THREADS / (T * PAIRS)) {
        if (r != p.r) p = finished_pair(a, first + tile, at, r);
        float scale = partial.scale(a.x + (int64_t)r * a.hidden, r, (uint32_t)a.hidden, a.eps);
        uint32_t feature = tile * FEATURES + at;
        p.finish(a, scale * partial.total(feature, r), scale * partial.total(feature + PAIRS, r));
    }
}

#define KIND(name, type, rows, tiles, groups, weights, activations, blocks)                        \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, blocks)                           \
        name(const __grid_constant__ attn_in_rows_args a)                                          \
    {                                                                                              \
        static_assert(sizeof(stream_partial<tiles, groups>) == STREAM_SHARED(tiles, groups),       \
                      "host");                                                                     \
        attn_in_rows<type, tiles, groups, weights, activations>(a);                                \
    }

ATTN_IN_ROWS_BF16(KIND)
ATTN_IN_ROWS_Q8_0(KIND)
