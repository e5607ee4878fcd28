/* What becomes of the sums of a tile (gemm_wgmma.cuh): bias and activation, then float32 rows, sums added
 * to rows, bf16 rows, or heads of q, k and v. */
#ifndef KERNELS_GEMM_WGMMA_RESULTS_CUH
#define KERNELS_GEMM_WGMMA_RESULTS_CUH

#include "cache.cuh"
#include "copy_async.cuh"
#include "copy_box_out.cuh"
#include "gemm/wgmma_kind.cuh"
#include "swiglu/swiglu_near.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Bias of this thread's rows g and g + 8, of the warpgroup's features from `feature` on. */
template <class K> INLINE void load_bias(const gemm_wgmma_args &a, int group, int feature, float (&b)[2])
{
    int warp = threadIdx.x / WARP % 4, g = threadIdx.x % WARP / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if constexpr (K::HEADS) {
            wgmma_head head(a, feature);
            const float *bias = a.bias[head.which];
            b[i] = bias ? bias[head.row + 32 * i + 8 * warp + g] : 0;
        } else {
            const float *bias = a.bias[K::GATED ? i : 0];
            int row = feature + g + (K::GATED ? 8 * warp : 16 * warp + 8 * i);
            b[i] = bias && row < a.n ? bias[(int64_t)group * a.n + row] : 0;
        }
    }
}

/* Adds the bias to the sums of 8 tokens, and joins gate and up: then of its four sums the first two count. */
template <class K> INLINE void finish_block(const gemm_wgmma_args &a, const float (&bias)[2], float *sums)
{
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] += bias[i / 2];
#pragma unroll
    for (int i = 0; K::GATED && i < 2; i++) sums[i] = swiglu_near(sums[i], sums[2 + i], a.alpha, a.limit);
}

template <class K>
INLINE void finish(const gemm_wgmma_args &a, int rows, const float (&bias)[2], float (&sums)[K::TOKENS / 2])
{
    wgmma_settle(sums);
#pragma unroll
    for (int j = 0; j < K::TOKENS / 8; j++) {
        if (j % 2 == 0 && 8 * j >= rows) break;
        finish_block<K>(a, bias, sums + 4 * j);
    }
}

/* Results in shared memory, a token's features together, to rows at c. */
template <class K>
INLINE void leave_f32(const gemm_wgmma_args &a, float *c, int width, int count, uint32_t out)
{
    int stride = a.n;
    enum { STRIDE = WGMMA_OUT_STRIDE(K::WG_FEATURES), ADDS = K::RESULT == WGMMA_ADDED };
    int thread = threadIdx.x % WARPGROUP;
    if (stride % 4 == 0 && ((uint64_t)a.c & 15) == 0) {
        for (int i = thread; i < count; i += WARPGROUP) {
            if (ADDS)
                add_out(c + (int64_t)i * stride, out + i * STRIDE * 4, width * 4);
            else
                copy_out(c + (int64_t)i * stride, out + i * STRIDE * 4, width * 4);
        }
        copy_out_commit();
        return;
    }
    for (int i = thread; i < count * K::WG_FEATURES; i += WARPGROUP) {
        int token = i / K::WG_FEATURES, f = i % K::WG_FEATURES;
        float value = load_shared_f32(out + token * STRIDE * 4 + f * 4);
        float *to = &c[(int64_t)token * stride + f];
        if (f < width) *to = ADDS ? *to + value : value;
    }
}

/* Up to OUT_TOKENS tokens from `first` on of this warpgroup's features: v has their sums. c: this
 * warpgroup's first feature of the tile's first token. */
template <class K>
INLINE void store_block(const gemm_wgmma_args &a, const wgmma_tile &tile, int first, float *c, int width,
                        const float *v, uint32_t out)
{
    enum { STRIDE = WGMMA_OUT_STRIDE(K::WG_FEATURES), WARP_FEATURES = K::GATED ? 8 : 16 };
    int wg = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    int warp = thread / WARP, g = thread % WARP / 4, t = thread % 4;
    copy_out_read(); /* what left before */
    named_sync(wg, WARPGROUP);
    uint32_t to = out + 4 * (2 * t * STRIDE + warp * WARP_FEATURES + g);
    int count = min((int)K::OUT_TOKENS, tile.rows - first);
#pragma unroll
    for (int j = 0; j < K::OUT_TOKENS / 8; j++) { /* {token, token + 1} x {first feature, second} */
        if (first + 8 * j >= K::TOKENS || (j % 2 == 0 && 8 * j >= count)) break;
#pragma unroll
        for (int i = 0; i < (K::GATED ? 2 : 4); i++)
            store_shared_f32(to + 4 * ((8 * j + i % 2) * STRIDE + i / 2 * 8), v[4 * j + i]);
    }
    fence_for_copies();
    named_sync(wg, WARPGROUP);
    leave_f32<K>(a, c + (int64_t)first * a.n, width, count, out);
}

/* As store_block, BLOCK tokens in bf16, by the copy engine while the next tile begins: boxes of 16 tokens, and
 * what is left by stores. In shared memory a token's pieces of 16 bytes are turned about, as the engine's swizzle
 * has it, so that those of 8 tokens lie in different banks. */
template <class K>
INLINE void store_block_bf16(const gemm_wgmma_args &a, const wgmma_tile &tile, int first, int feature,
                             const float *v, uint32_t out)
{
    enum {
        MATRICES = K::GATED ? 1 : 2, /* of 8 features and 8 tokens, a thread's */
        PIECES = K::WG_FEATURES / 8,
        TURN = 8 / PIECES, /* tokens in 128 bytes */
        ROW = PIECES * 16,
    };
    int wg = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    int warp = thread / WARP, lane = thread % WARP;
    int count = min((int)K::BLOCK, tile.rows - first), boxes = count / WGMMA_BOX;
    int token = lane / 8 / MATRICES * 8 + lane % 8, piece = warp * MATRICES + lane / 8 % MATRICES;
    uint32_t to = out + token * ROW + (piece ^ token / TURN % PIECES) * 16;
    copy_out_read();
    named_sync(wg, WARPGROUP); /* what was here has left */
#pragma unroll
    for (int j = 0; j < K::BLOCK / 8; j += 4 / MATRICES) {
        if (first + 8 * j >= K::TOKENS || 8 * j >= count) break;
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *s = v + 4 * (j + i / MATRICES) + 2 * (i % MATRICES);
            m[i] = f32_to_bf16x2(s[0], s[1]);
        }
        store_transposed(to + 8 * j * ROW, m);
    }
    fence_for_copies();
    named_sync(wg, WARPGROUP);
    if (thread < boxes) {
        int at = thread * WGMMA_BOX;
        copy_box_out_2d(a.out, feature, tile.first_row + first + at, out + at * ROW);
        copy_out_commit();
    }
    uint16_t *c = (uint16_t *)a.c + (int64_t)(tile.first_row + first) * a.n + feature;
    for (int i = boxes * WGMMA_BOX * PIECES + thread; i < count * PIECES; i += WARPGROUP)
        store_16(c + (int64_t)(i / PIECES) * a.n + i % PIECES * 8,
                 load_shared_16(out + (i ^ i / PIECES / TURN % PIECES) * 16));
}

/* Up to OUT_TOKENS tokens from `first` on of a head of q: two boxes of 32 dimensions each, which the copy engine
 * takes while the next sums are put down; rows behind the last one it leaves out. A token's pieces of 16 bytes
 * are turned about as for store_block_bf16. */
template <class K>
INLINE void store_block_head(const gemm_wgmma_args &a, const wgmma_tile &tile, int first, int feature,
                             const float *v, uint32_t out)
{
    enum { ROW = 128, HALF = K::OUT_TOKENS * ROW };
    static_assert(K::TOKENS % K::OUT_TOKENS == 0 && K::OUT_TOKENS % 8 == 0, "a box is of this tile alone, and aligned");
    int wg = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    int d = thread / WARP * 8 + thread % WARP / 4, token = thread % 4 * 2;
    copy_out_read();
    named_sync(wg, WARPGROUP); /* what was here has left */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t to = out + (token + i) * ROW + (d / 4 ^ token + i) * 16 + d % 4 * 4;
#pragma unroll
        for (int j = 0; j < K::OUT_TOKENS / 8; j++) {
            store_shared_f32(to + 8 * j * ROW, v[4 * j + i]);
            store_shared_f32(to + 8 * j * ROW + HALF, v[4 * j + 2 + i]);
        }
    }
    fence_for_copies();
    named_sync(wg, WARPGROUP);
    if (thread < 2) {
        copy_box_out_2d(a.out, feature + thread * 32, tile.first_row + first, out + thread * HALF);
        copy_out_commit();
    }
}

/* Rotations of dimensions d and d + 32 of the tile's tokens; none where K has no heads. Nobody takes what is behind
 * the last token; there they are the last one's, so that nothing is asked. Where registers hold them beside the sums
 * they are loaded before the products: behind these, stages of the next tile are on their way. */
template <class K> struct head_turns {
    enum { COUNT = K::HEADS ? K::TOKENS / 4 : 0, EARLY = K::HEADS && !K::PACKED && K::TOKENS <= 160 };
    float2 by[COUNT + !COUNT];

    INLINE void load(const gemm_wgmma_args &a, const wgmma_tile &tile)
    {
        int d = threadIdx.x / WARP % 4 * 8 + threadIdx.x % WARP / 4, token = threadIdx.x % 4 * 2;
        const float2 *turns = (const float2 *)a.turns + (int64_t)tile.first_row * 32 + d;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            by[i] = __ldg(turns + min(i / 2 * 8 + token + i % 2, tile.rows - 1) * 32);
    }
    INLINE void apply(float (&sums)[K::TOKENS / 2]) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float &x = sums[i / 2 * 4 + i % 2], &y = sums[i / 2 * 4 + i % 2 + 2], old = x;
            x = x * by[i].x - y * by[i].y;
            y = y * by[i].x + old * by[i].y;
        }
    }
};

/* Of 8 tokens, a thread's two of dimension d: into a cache of 16-bit numbers, transposed within its blocks.
 * Neighbours in the cache go there together. */
INLINE void store_keys(uint16_t *k, int d, const int64_t (&row)[2], int count, uint32_t two)
{
    int64_t at[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        at[i] = row[i] / CACHE_BLOCK * CACHE_BLOCK * WGMMA_ROWS + d * CACHE_BLOCK + row[i] % CACHE_BLOCK;
    if (count > 1 && row[0] % 2 == 0 && row[1] == row[0] + 1) {
        *(uint32_t *)(k + at[0]) = two;
        return;
    }
    if (count > 0) k[at[0]] = (uint16_t)two;
    if (count > 1) k[at[1]] = (uint16_t)(two >> 16);
}

template <int TYPE> INLINE uint32_t cache_pair(float low, float high)
{
    return TYPE == DTYPE_F16 ? f32_to_f16x2(low, high) : f32_to_bf16x2(low, high);
}

/* A head of k or of v to a cache of 16-bit numbers. */
template <class K, int TYPE>
INLINE void store_cache_16(const gemm_wgmma_args &a, const wgmma_tile &tile, int64_t first, bool is_k,
                           const float (&sums)[K::TOKENS / 2])
{
    int warp = threadIdx.x / WARP % 4, lane = threadIdx.x % WARP, pair = lane % 4 * 2;
    const int32_t *rows = a.cache_rows + tile.first_row;
#pragma unroll
    for (int j = 0; j < K::TOKENS / 8; j++) {
        if (8 * j >= tile.rows) break;
        uint32_t two[2];
#pragma unroll
        for (int i = 0; i < 2; i++) two[i] = cache_pair<TYPE>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
        if (is_k) {
            int token = 8 * j + pair, last = tile.rows - 1;
            int64_t row[2] = {first + __ldg(rows + min(token, last)), first + __ldg(rows + min(token + 1, last))};
#pragma unroll
            for (int i = 0; i < 2; i++)
                store_keys((uint16_t *)a.cache.k, 32 * i + 8 * warp + lane / 4, row, tile.rows - token, two[i]);
        } else {
            int token = 8 * j + lane / 4;
            int64_t row = first + __ldg(rows + min(token, tile.rows - 1));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t neighbours = transposed_matrix(two[i]); /* of a token, two dimensions */
                uint32_t *to = (uint32_t *)((uint16_t *)a.cache.v + row * WGMMA_ROWS + 32 * i + 8 * warp + pair);
                if (token < tile.rows) *to = neighbours;
            }
        }
    }
}

/* The same to one of float32. */
template <class K>
INLINE void store_cache_32(const gemm_wgmma_args &a, const wgmma_tile &tile, int64_t first, bool is_k,
                           const float (&sums)[K::TOKENS / 2])
{
    int d = threadIdx.x / WARP % 4 * 8 + threadIdx.x % WARP / 4, token = threadIdx.x % 4 * 2;
    float *to = (float *)(is_k ? a.cache.k : a.cache.v);
#pragma unroll
    for (int j = 0; j < K::TOKENS / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (8 * j + token + i >= tile.rows) continue;
            int64_t row = first + __ldg(a.cache_rows + tile.first_row + 8 * j + token + i);
            int64_t at = is_k ? row / CACHE_BLOCK * CACHE_BLOCK * WGMMA_ROWS + d * CACHE_BLOCK + row % CACHE_BLOCK
                              : row * WGMMA_ROWS + d;
            to[at] = sums[4 * j + i];
            to[at + 32 * (is_k ? CACHE_BLOCK : 1)] = sums[4 * j + 2 + i];
        }
}

/* A head of k, transposed within the cache's blocks, or of v. */
template <class K>
INLINE void store_cache(const gemm_wgmma_args &a, const wgmma_tile &tile, const wgmma_head &head,
                        const float (&sums)[K::TOKENS / 2])
{
    int64_t first = head.row / WGMMA_ROWS * (a.cache.pages ? (int64_t)CACHE_PAGE : a.cache.capacity);
    bool is_k = head.which == 1;
    if (a.cache.type == DTYPE_F16)
        store_cache_16<K, DTYPE_F16>(a, tile, first, is_k, sums);
    else if (a.cache.type == DTYPE_BF16)
        store_cache_16<K, DTYPE_BF16>(a, tile, first, is_k, sums);
    else
        store_cache_32<K>(a, tile, first, is_k, sums);
}

template <class K>
INLINE void store_head(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, float (&v)[K::TOKENS / 2],
                       uint32_t out, head_turns<K> &turns)
{
    wgmma_head head(a, feature);
    if (!turns.EARLY && head.which < 2) turns.load(a, tile);
    if (head.which < 2) turns.apply(v);
    if (head.which) {
        store_cache<K>(a, tile, head, v);
        return;
    }
#pragma unroll
    for (int first = 0; first < K::TOKENS; first += K::BLOCK) {
        if (first >= tile.rows) break;
        store_block_head<K>(a, tile, first, feature, v + first / 2, out);
    }
}

template <class K>
INLINE void store(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, float (&v)[K::TOKENS / 2],
                  uint32_t out)
{
    int width = min((int)K::WG_FEATURES, a.n - feature);
    float *c = (float *)a.c + (int64_t)tile.first_row * a.n + feature;
#pragma unroll
    for (int first = 0; first < K::TOKENS; first += K::BLOCK) {
        if (first >= tile.rows) break;
        if constexpr (K::RESULT == WGMMA_BF16)
            store_block_bf16<K>(a, tile, first, feature, v + first / 2, out);
        else
            store_block<K>(a, tile, first, c, width, v + first / 2, out);
    }
}

#endif
#endif
