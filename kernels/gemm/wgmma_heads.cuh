/* What becomes of the sums of a tile of heads (WGMMA_HEADS): q's, rotated, are float32 rows; k's, rotated too, and
 * v's go to the cache. */
#ifndef KERNELS_GEMM_WGMMA_HEADS_CUH
#define KERNELS_GEMM_WGMMA_HEADS_CUH

#include "cache.cuh"
#include "copy_async.cuh"
#include "copy_box_out.cuh"
#include "gemm/wgmma_kind.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Up to OUT_TOKENS tokens from `first` on of a head of q: two boxes of 32 dimensions each, which the copy engine
 * takes while the next sums are put down; rows behind the last one it leaves out. A token's pieces of 16 bytes
 * are turned about, as the engine's swizzle has it. */
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

/* All of a warpgroup's. */
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
        store_block_head<K>(a, tile, first, head.row, v + first / 2, out);
    }
}

#endif
#endif
