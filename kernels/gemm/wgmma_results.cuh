/* What becomes of the sums of a tile (gemm_wgmma.cuh): bias and activation, then float32 rows, sums added
 * to rows, bf16 rows; heads of q, k and v: wgmma_heads.cuh. */
#ifndef KERNELS_GEMM_WGMMA_RESULTS_CUH
#define KERNELS_GEMM_WGMMA_RESULTS_CUH

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
