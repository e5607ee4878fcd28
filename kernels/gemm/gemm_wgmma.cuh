/* Products of many rows on Hopper's tensor cores, dense or grouped by expert, one family for all weight
 * formats. Weights are the operand with 64 rows (features), activations the other one (N tokens, any
 * multiple of 8): a group of experts with few tokens is hardly padded, and a weight that must be decoded
 * is decoded once for all tokens of a tile.
 *
 * A block has one warpgroup that fetches and two (of few tokens: three, four or six) that multiply, 64 rows of
 * weights each. It takes tiles of (group, features, tokens) in turn, tokens fastest, so that tiles that share
 * weights run at the same time; or, where tiles are fewer than SMs, has a share of one tile's columns, and asks
 * for weights before the tokens' rows are there (wgmma_shares.cuh). A stage is 64 columns of the weights and of
 * the tokens' rows, of few tokens in MXFP4 and in int8 128.
 *
 * Gate and up (GATED) are multiplied together: of the 16 rows of a warp the first 8 are gate's, the others
 * up's of the same features, so that a thread has both and swiglu needs nobody else.
 *
 * Weights in bf16 go from shared memory to the tensor cores; tiles of MXFP4 and Q8_0 through registers,
 * where the products of one step of 16 columns (of few tokens two steps) run while the next is decoded: of
 * MXFP4 124 instructions a warp for 64 columns, of few tokens 107. Results leave through shared memory by the
 * copy engine while the next tile begins. */
#ifndef KERNELS_GEMM_WGMMA_CUH
#define KERNELS_GEMM_WGMMA_CUH

#include "copy_async.cuh"
#include "gemm/i8_weights.cuh"
#include "gemm/wgmma_heads.cuh"
#include "gemm/wgmma_kind.cuh"
#include "gemm/wgmma_mxfp4.cuh"
#include "gemm/wgmma_q8_0.cuh"
#include "gemm/wgmma_results.cuh"
#include "gemm/wgmma_shares.cuh"
#include "mma.cuh"
#include "numbers.cuh"
#include "pack/mxfp4_tiles.h"
#include "wgmma_ring.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The tiles of a block, or of a cluster, in order. It keeps little, since registers are scarce. */
template <class K> struct wgmma_tiles {
    int index, group, begin; /* begin: number of the group's first tile */

    INLINE wgmma_tiles() : index(blockIdx.x / (K::CLUSTER * K::SHARES)), group(0), begin(0) {}

    /* `offsets` in shared memory, where there are groups. */
    INLINE bool next(const gemm_wgmma_args &a, const int32_t *offsets, wgmma_tile &tile)
    {
        enum { FEATURES = K::FEATURES * K::CLUSTER };
        /* A width of products, in tokens. */
        int unit = K::VARIES ? (int)WGMMA_BOX : (int)K::TOKENS;
        int feature_tiles = (a.n + FEATURES - 1) / FEATURES, first = 0, rows, parts;
        for (;; group++) {
            if (group >= a.groups) return false;
            first = a.group_offsets ? offsets[group] : 0;
            rows = a.group_offsets ? offsets[group + 1] - first : a.m;
            parts = (rows + K::TOKENS - 1) / K::TOKENS;
            if (index - begin < parts * feature_tiles) break;
            begin += parts * feature_tiles;
        }
        int at = index - begin, part = at % parts;
        /* Parts of equal widths, as nearly as they go. */
        int widths = (rows + unit - 1) / unit, each = widths / parts, more = widths % parts;
        int behind = (part * each + min(part, more)) * unit;
        tile.group = group;
        tile.first_feature = at / parts * FEATURES;
        tile.first_row = first + behind;
        tile.width = (each + (part < more)) * unit;
        tile.rows = min(tile.width, rows - behind);
        index += gridDim.x / (K::CLUSTER * K::SHARES);
        return true;
    }
};

/* ---- the thread that fetches ---- */

/* Rows of x for a tile: dense, one box, or a share of it for all blocks of the cluster; else as few boxes
 * as make up the width. */
template <class K>
INLINE void fetch_x(const gemm_wgmma_args &a, const wgmma_tile &tile, int x, uint32_t to, uint32_t barrier)
{
    enum { SHARE = K::TOKENS / K::CLUSTER, ROW = WGMMA_ROW_BYTES };
    if constexpr (!K::VARIES && K::CLUSTER == 1) {
        copy_box_2d(to, a.x[0], x, tile.first_row, barrier);
    } else if constexpr (!K::VARIES) {
        int rank = cluster_rank();
        copy_box_2d_to(to + rank * SHARE * ROW, a.x[0], x, tile.first_row + rank * SHARE, barrier,
                       (1 << K::CLUSTER) - 1);
    } else {
        int row = 0;
#pragma unroll
        for (int b = WGMMA_BOXES; b >= 0; b--) { /* 128 rows may come twice */
            int i = b == WGMMA_BOXES ? WGMMA_BOXES - 1 : b, size = WGMMA_BOX << i;
            if (size > K::TOKENS || tile.width - row < size) continue;
            copy_box_2d(to + row * ROW, a.x[i], x, tile.first_row + row, barrier);
            row += size;
        }
    }
}

/* A head for each warpgroup: bf16, its rows in the order 0-7, 32-39, 8-15, 40-47, ...; Q8_0, its tiles. */
template <class K>
INLINE void fetch_heads(const gemm_wgmma_args &a, int feature, int unit, uint32_t to, uint32_t barrier)
{
#pragma unroll
    for (int i = 0; i < K::WARPGROUPS; i++) {
        wgmma_head head(a, feature + i * WGMMA_ROWS);
        uint32_t w = to + K::W_AT + i * K::W_BYTES;
        if constexpr (!K::PACKED) {
            copy_box_5d(w, a.w[head.which], unit * WGMMA_K, head.row / WGMMA_ROWS, barrier);
        } else {
            int first = head.row / K::W_TILE_ROWS;
            copy_box_3d(w, a.w[head.which], 0, unit, first, barrier);
            copy_box_3d(to + K::SCALES_AT + i * K::S_BYTES, a.scales[head.which], 0, unit, first, barrier);
        }
    }
}

/* The weights of a stage, whose first unit is number `unit`; its barrier is to get the rows of x too. */
template <class K>
INLINE void fetch_weights(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, int unit,
                          const wgmma_ring<K> &ring)
{
    uint32_t to = ring.at(), barrier = ring.full(ring.stage);
    barrier_expect(barrier, tile.width * (int)K::X_BOXES * WGMMA_ROW_BYTES +
                                K::WARPGROUPS * (K::W_BYTES + K::S_BYTES));
    int first = tile.group * a.group_rows + (K::PACKED ? feature / K::W_TILE_ROWS : feature);
    if constexpr (K::HEADS) fetch_heads<K>(a, feature, unit, to, barrier);
#pragma unroll
    for (int i = 0; i < (K::HEADS ? 0 : (int)K::MATRICES); i++) {
        uint32_t w = to + K::W_AT + i * K::W_EACH;
        if (K::PACKED)
            copy_box_3d(w, a.w[i], 0, unit, first, barrier);
        else
            copy_box_2d(w, a.w[i], unit * WGMMA_K, first, barrier);
        if (K::PACKED)
            copy_box_3d(to + K::SCALES_AT + i * K::S_EACH, a.scales[i], 0, unit, first, barrier);
    }
}

template <class K>
INLINE void fetch_rows(const gemm_wgmma_args &a, const wgmma_tile &tile, int unit, const wgmma_ring<K> &ring)
{
#pragma unroll
    for (int i = 0; i < K::X_BOXES; i++)
        fetch_x<K>(a, tile, (unit + i) * K::X_UNIT, ring.at() + i * K::X_BYTES, ring.full(ring.stage));
}

/* Where a block has one tile: weights of as many stages as there are, before the rows of x are there. */
template <class K> INLINE void fetch_ahead(const gemm_wgmma_args &a, wgmma_ring<K> ring)
{
    wgmma_tiles<K> tiles;
    wgmma_tile tile;
    const wgmma_share<K> share(a);
    tiles.next(a, nullptr, tile);
    for (int u = share.first_unit; u < min(share.last_unit, share.first_unit + K::STAGES); u++) {
        fetch_weights<K>(a, tile, tile.first_feature, u, ring);
        ring.step();
    }
}

template <class K>
INLINE void fetch_all(const gemm_wgmma_args &a, const int32_t *offsets, wgmma_ring<K> ring)
{
    wgmma_tiles<K> tiles;
    wgmma_tile tile;
    int shift = K::CLUSTER > 1 ? cluster_rank() * K::FEATURES : 0;
    const wgmma_share<K> share(a);
    while (tiles.next(a, offsets, tile)) {
        share.expect(a, tile, ring.base);
        for (int u = share.first_unit; u < share.last_unit; u += K::UNITS) {
            if (K::SHARES == 1 || u >= share.first_unit + K::STAGES) {
                barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
                fetch_weights<K>(a, tile, tile.first_feature + shift, u, ring);
            }
            fetch_rows<K>(a, tile, u, ring);
            ring.step();
        }
    }
    /* Until nobody reads any more: with shared x, another block may still be behind. */
    for (int s = 0; K::CLUSTER > 1 && s < K::STAGES; s++) {
        barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
        ring.step();
    }
}

/* ---- a unit of a warp out of the stage ---- */

/* Of unit number U of the stage. Rows g and g + 8 of a warp are those of a tile; or (GATED) rows of gate and
 * of up, of the first half of a tile or of the second. */
template <class K, int U> INLINE void load_words(unit_words &u, const wgmma_ring<K> &ring)
{
    enum { TILE = K::UNITS * UNIT_BYTES };
    int warp = threadIdx.x / WARP - WARPGROUP / WARP, lane = threadIdx.x % WARP;
    uint32_t at = ring.at() + K::W_AT + U * UNIT_BYTES + lane * 16;
    if (!K::GATED) {
        u.w = load_shared_16(at + warp * TILE);
        return;
    }
    at += warp / 2 * TILE + warp % 2 * 8;
    uint2 gate = load_shared_8_at<0>(at), up = load_shared_8_at<0>(at + K::W_EACH);
    u.w = uint4{gate.x, gate.y, up.x, up.y};
}

/* Row g's two, then row g + 8's. */
template <class K, int U> INLINE uint32_t load_scales(const wgmma_ring<K> &ring)
{
    enum { TILE = K::UNITS * UNIT_SCALES_MXFP4 };
    int warp = threadIdx.x / WARP - WARPGROUP / WARP, g = threadIdx.x % WARP / 4;
    uint32_t at = ring.at() + K::SCALES_AT + U * UNIT_SCALES_MXFP4 + g * 4;
    if (!K::GATED) return load_shared_4(at + warp * TILE);
    at += warp / 2 * TILE;
    uint32_t gate = load_shared_4(at), up = load_shared_4(at + K::S_EACH);
    return __byte_perm(gate, up, warp % 2 ? 0x7632 : 0x5410);
}

/* `large` gathers all scales: a tile with a byte of 128 or more is computed again, plainly. */
template <class K, int U> INLINE void load_unit(unit_words &u, const wgmma_ring<K> &ring, uint32_t &large)
{
    uint32_t bytes = load_scales<K, U>(ring);
    load_words<K, U>(u, ring);
    set_scales(u, bytes);
    large |= bytes;
}

/* Of Q8_0 any scale is served. Rows g and g + 8 of a warp are in two tiles, of a head 32 rows apart. */
template <class K, int> INLINE void load_unit(q8_0_unit &u, const wgmma_ring<K> &ring, uint32_t &)
{
    enum { TILES = WGMMA_ROWS / TILE_ROWS_Q8_0, NEXT = K::HEADS ? TILES / 2 : 1, EACH = K::HEADS ? 1 : 2 };
    int warp = threadIdx.x / WARP - WARPGROUP / WARP, lane = threadIdx.x % WARP;
    int tile = warp / 4 * TILES + warp % 4 * EACH;
    uint32_t at = ring.at() + K::W_AT + tile * UNIT_BYTES + lane * 16;
    uint32_t scales = ring.at() + K::SCALES_AT + tile * UNIT_SCALES_Q8_0 + lane / 4 * 4;
    u.low = load_shared_16(at);
    u.high = load_shared_16(at + NEXT * UNIT_BYTES);
    set_scales(u, 0, load_shared_4(scales));
    set_scales(u, 1, load_shared_4(scales + NEXT * UNIT_SCALES_Q8_0));
}

template <int TYPE> struct unit_of;
template <> struct unit_of<TILES_MXFP4> {
    typedef unit_words type;
};
template <> struct unit_of<TILES_Q8_0> {
    typedef q8_0_unit type;
};

/* ---- products of a tile: sums of this warpgroup's 64 rows, of which the first N / 2 are used ---- */

template <class K, int N>
INLINE void multiply_step(float (&sums)[K::TOKENS / 2], const uint32_t (&f)[4], uint32_t x, int step)
{
    wgmma_fence();
    wgmma<N>::registers(sums, f, wgmma_operand(x, 16 * step));
    wgmma_commit();
}

/* While the products of a step run, the next step is decoded. */
template <class K, int N>
INLINE void multiply_packed(float (&sums)[K::TOKENS / 2], int units, wgmma_ring<K> &ring, uint32_t &large)
{
    typename unit_of<K::TYPE>::type w;
    uint32_t next[4], f1[4], f2[4], f3[4];
    int last = ring.stage;
    barrier_wait(ring.full(ring.stage), ring.phase);
    load_unit<K, 0>(w, ring, large);
    decode<0>(next, w);
    for (int u = 0; u < units; u++) {
        uint32_t x = ring.uniform_at();
        multiply_step<K, N>(sums, next, x, 0);
        decode<1>(f1, w);
        wgmma_wait<1>();
        if (u > 0) ring.release(last); /* its last products are done */
        multiply_step<K, N>(sums, f1, x, 1);
        decode<2>(f2, w);
        wgmma_wait<1>();
        multiply_step<K, N>(sums, f2, x, 2);
        decode<3>(f3, w);
        wgmma_wait<1>();
        multiply_step<K, N>(sums, f3, x, 3);
        last = ring.stage;
        ring.step();
        if (u + 1 < units) {
            barrier_wait(ring.full(ring.stage), ring.phase);
            load_unit<K, 0>(w, ring, large);
            decode<0>(next, w);
        }
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    ring.release(last);
}

/* Two steps at once, of fragments in the order of their columns. */
template <class K, int N>
INLINE void multiply_steps(float (&sums)[K::TOKENS / 2], const uint32_t (&f)[2][4], uint32_t x, int step)
{
    wgmma_fence();
    wgmma<N>::registers(sums, f[0], wgmma_operand(x, 16 * step));
    wgmma<N>::registers(sums, f[1], wgmma_operand(x, 16 * step + 16));
    wgmma_commit();
}

/* The same for few tokens, where decoding is most of the work: half a unit at a time, and two units a stage,
 * which takes fewer instructions. Behind an odd number of units one of zeros is multiplied, as the copy engine
 * fills in what is behind the end: asking costs more. */
template <class K, int N>
INLINE void multiply_halves(float (&sums)[K::TOKENS / 2], int units, wgmma_ring<K> &ring, uint32_t &large)
{
    unit_words w;
    uint32_t first[2][4], second[2][4];
    barrier_wait(ring.full(ring.stage), ring.phase);
    load_unit<K, 0>(w, ring, large);
    decode<0>(first[0], w);
    decode<1>(first[1], w);
    for (int u = 0; u < units; u += 2) {
        int stage = ring.stage;
        uint32_t x = ring.uniform_at();
        multiply_steps<K, N>(sums, first, x, 0);
        decode<2>(second[0], w);
        decode<3>(second[1], w);
        multiply_steps<K, N>(sums, second, x, 2);
        load_unit<K, 1>(w, ring, large);
        wgmma_wait<1>();
        decode<0>(first[0], w);
        decode<1>(first[1], w);
        wgmma_wait<0>();
        multiply_steps<K, N>(sums, first, x + K::X_BYTES, 0);
        decode<2>(second[0], w);
        decode<3>(second[1], w);
        multiply_steps<K, N>(sums, second, x + K::X_BYTES, 2);
        ring.step();
        if (u + 2 < units) {
            barrier_wait(ring.full(ring.stage), ring.phase);
            load_unit<K, 0>(w, ring, large);
        }
        wgmma_wait<1>();
        decode<0>(first[0], w);
        decode<1>(first[1], w);
        wgmma_wait<0>();
        ring.release(stage);
    }
}

template <class K>
INLINE void multiply_plain(float (&sums)[K::TOKENS / 2], int units, wgmma_ring<K> &ring)
{
    int wg = threadIdx.x / WARPGROUP - 1, last = ring.stage;
    for (int u = 0; u < units; u++) {
        barrier_wait(ring.full(ring.stage), ring.phase);
        uint32_t x = ring.at(), w = ring.at() + K::W_AT + wg * K::W_BYTES;
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++)
            wgmma<K::TOKENS>::shared(sums, wgmma_operand(w, 16 * s), wgmma_operand(x, 16 * s));
        wgmma_commit();
        wgmma_wait<1>();
        if (u > 0) ring.release(last);
        last = ring.stage;
        ring.step();
    }
    wgmma_wait<0>();
    ring.release(last);
}

/* What is done for a width of tokens of those that there are. */
#define WGMMA_WIDTHS(DO)                                                                            \
    DO(16) DO(32) DO(48) DO(64) DO(80) DO(96) DO(112) DO(128)                                       \
    DO(144) DO(160) DO(176) DO(192) DO(208) DO(224) DO(240) DO(256)

template <class K>
INLINE void multiply(float (&sums)[K::TOKENS / 2], int width, int units, wgmma_ring<K> &ring,
                     uint32_t &large)
{
    if constexpr (!K::PACKED) {
        multiply_plain<K>(sums, units, ring);
    } else if constexpr (!K::VARIES) {
        multiply_packed<K, K::TOKENS>(sums, units, ring, large);
    } else {
        switch (width) {
#define WIDTH(N)                                                                                    \
    case N:                                                                                         \
        if constexpr (N <= K::TOKENS && K::WARPGROUPS > 3)                                         \
            multiply_halves<K, N>(sums, units, ring, large);                                        \
        else if constexpr (N <= K::TOKENS)                                                          \
            multiply_packed<K, N>(sums, units, ring, large);                                        \
        break;
            WGMMA_WIDTHS(WIDTH)
#undef WIDTH
        }
    }
}

/* The same of rows in int8, finished. */
template <class K>
INLINE void multiply_i8(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, wgmma_ring<K> &ring,
                        i8_sums<K> &sums)
{
    const i8_weights<K> w(a, tile, feature, ring.base);
#pragma unroll
    for (int i = 0; i < K::TOKENS / 2; i++) sums.whole[i] = 0;
    switch (tile.width) {
#define WIDTH(N)                                                                                    \
    case N:                                                                                         \
        if constexpr (N <= K::TOKENS) multiply_i8_stages<K, N>(sums.whole, a.units, ring, w);       \
        break;
        WGMMA_WIDTHS(WIDTH) WIDTH(272) WIDTH(288) WIDTH(304) WIDTH(320)
#undef WIDTH
    }
    w.finish(a, tile, ring.base, sums);
}

/* ---- a product without the tensor cores ---- */

/* One result of a packed product by float32 arithmetic: any scale, whatever the speed. */
INLINE float plain_sum(const gemm_wgmma_args &a, int group, int which, int row, int token)
{
    float sum = a.bias[which] ? a.bias[which][(int64_t)group * a.n + row] : 0;
    int64_t t = (int64_t)group * a.group_rows + row / TILE_ROWS_MXFP4;
    const uint8_t *w = (const uint8_t *)a.plain_w[which] + t * a.units * UNIT_BYTES;
    const uint8_t *s = (const uint8_t *)a.plain_scales[which] + t * a.units * UNIT_SCALES_MXFP4;
    const uint16_t *x = (const uint16_t *)a.plain_x + (int64_t)token * a.units * WGMMA_K;
    for (int k = 0; k < a.units * WGMMA_K; k++)
        sum += mxfp4_tile_at(w, s, (uint32_t)row % TILE_ROWS_MXFP4, k) * bf16_to_f32(x[k]);
    return sum;
}

template <class K>
__device__ __noinline__ void multiply_plainly(const gemm_wgmma_args &a, const wgmma_tile &tile,
                                              int feature)
{
    for (int i = threadIdx.x % WARPGROUP; i < K::WG_FEATURES * tile.rows; i += WARPGROUP) {
        int row = feature + i % K::WG_FEATURES, token = tile.first_row + i / K::WG_FEATURES;
        if (row >= a.n) continue;
        float value = plain_sum(a, tile.group, 0, row, token);
        if (K::GATED)
            value = swiglu_near(value, plain_sum(a, tile.group, 1, row, token), a.alpha, a.limit);
        int64_t at = (int64_t)token * a.n + row;
        if (K::RESULT == WGMMA_BF16)
            ((uint16_t *)a.c)[at] = f32_to_bf16(value);
        else
            ((float *)a.c)[at] = value;
    }
}

/* A warpgroup whose features are all behind the last one. No product keeps a warp's lanes together here:
 * the first one could give stages back until another waits for a phase that has gone by. */
template <class K> INLINE void skip(int units, wgmma_ring<K> &ring)
{
    for (int u = 0; u < units; u += K::UNITS) {
        barrier_wait(ring.full(ring.stage), ring.phase);
        __syncwarp();
        ring.release(ring.stage);
        ring.step();
    }
}

/* The sums, finished, to where they go. */
template <class K>
INLINE void leave(const gemm_wgmma_args &a, const wgmma_tile &tile, int feature, const float (&bias)[2],
                  float (&sums)[K::TOKENS / 2], uint32_t out, head_turns<K> &turns)
{
    finish<K>(a, tile.rows, bias, sums);
    if constexpr (K::HEADS)
        store_head<K>(a, tile, feature, sums, out, turns);
    else
        store<K>(a, tile, feature, sums, out);
}

template <class K>
INLINE void multiply_all(const gemm_wgmma_args &a, const int32_t *offsets, wgmma_ring<K> &ring,
                         uint32_t out)
{
    wgmma_tiles<K> tiles;
    wgmma_tile tile;
    int wg = threadIdx.x / WARPGROUP - 1;
    int shift = wg * K::WG_FEATURES + (K::CLUSTER > 1 ? cluster_rank() * K::FEATURES : 0);
    const wgmma_share<K> share(a);
    const int units = share.last_unit - share.first_unit;
    while (tiles.next(a, offsets, tile)) {
        int feature = tile.first_feature + shift;
        if (feature >= a.n) {
            skip<K>(units, ring);
            continue;
        }
        if constexpr (K::I8) {
            i8_sums<K> sums;
            multiply_i8<K>(a, tile, feature, ring, sums);
            store<K>(a, tile, feature, sums.finished, out);
            continue;
        }
        float sums[K::TOKENS / 2], bias[2];
        uint32_t large = 0;
        head_turns<typename wgmma_share<K>::own> turns;
        load_bias<K>(a, tile.group, feature, bias);
        const wgmma_tile mine = share.own_tile(tile);
        if constexpr (turns.EARLY)
            if (K::SHARES == 1 || mine.rows > 0) turns.load(a, mine);
#pragma unroll
        for (int i = 0; i < K::TOKENS / 2; i++) sums[i] = 0;
        multiply<K>(sums, tile.width, units, ring, large);
        if constexpr (K::VARIES)
            if (named_any(1 + wg, (large & 0x80808080u) != 0)) {
                multiply_plainly<K>(a, tile, feature);
                continue;
            }
        if constexpr (K::SHARES > 1) {
            float total[wgmma_share<K>::own::TOKENS / 2];
            share.exchange(tile, sums, total, ring.base);
            leave<typename wgmma_share<K>::own>(a, mine, feature, bias, total, out, turns);
        } else {
            leave<K>(a, tile, feature, bias, sums, out, turns);
        }
    }
    copy_out_read();
}

template <class K> INLINE void gemm_wgmma(const gemm_wgmma_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    int32_t *offsets = (int32_t *)(shared + K::OFFSETS_AT);
    uint32_t base = shared_address(shared);
    wgmma_ring<K> ring = {base, 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(ring.full(s), 1);
            barrier_init(ring.empty(s), K::WARPS * K::CLUSTER);
        }
        if (K::SHARES > 1) barrier_init(base + K::PARTS_BARRIER_AT, 1);
        barrier_init_done();
        for (int i = 0; i < (K::HEADS ? 3 : K::GATED ? 2 : 1); i++) {
            prefetch_map(a.w[i]);
            if (K::PACKED) prefetch_map(a.scales[i]);
        }
        for (int i = 0; i < (K::VARIES ? WGMMA_BOXES : 1); i++) prefetch_map(a.x[i]);
        if (K::RESULT == WGMMA_BF16 || K::HEADS) prefetch_map(a.out);
        if constexpr (K::SHARES > 1) fetch_ahead<K>(a, ring);
    }
    wait_for_input();
    let_next_start();
    if (a.group_offsets)
        for (int g = threadIdx.x; g <= a.groups; g += K::THREADS) offsets[g] = a.group_offsets[g];
    __syncthreads();
    if (K::CLUSTER * K::SHARES > 1) cluster_sync();
    if (threadIdx.x < WARPGROUP) {
        if constexpr (K::BLOCKS == 1) registers_give<K::FETCH_REGISTERS>();
        if (threadIdx.x == 0) fetch_all<K>(a, offsets, ring);
    } else {
        if constexpr (K::BLOCKS == 1) registers_take<K::REGISTERS>();
        int wg = threadIdx.x / WARPGROUP - 1;
        multiply_all<K>(a, offsets, ring, base + K::OUT_AT + wg * K::OUT_BYTES);
    }
}

#define WGMMA_KERNEL(name, ...)                                                                     \
    extern "C" __global__ void __launch_bounds__(wgmma_kind<__VA_ARGS__>::THREADS,                  \
                                                 wgmma_kind<__VA_ARGS__>::BLOCKS)                   \
        name(const __grid_constant__ gemm_wgmma_args a)                                             \
    {                                                                                               \
        gemm_wgmma<wgmma_kind<__VA_ARGS__>>(a);                                                     \
    }

#else

/* Other architectures have no such instructions; the host does not choose these kernels there. */
#define WGMMA_KERNEL(name, ...)                                                                     \
    extern "C" __global__ void name(const __grid_constant__ gemm_wgmma_args a)                      \
    {                                                                                               \
        __trap();                                                                                   \
    }

#endif
#endif
