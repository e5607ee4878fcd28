/* Grouped products of NVFP4 on Hopper, step by step: each kernel is the one before it and one idea
 * more, so that what each idea is worth can be measured (docs/design/grouped-gemm.md, "The
 * ladder"). Nobody gets these kernels unasked where another one runs.
 *
 * A block computes tiles of 128 features by up to 128 tokens, 128 columns of k at a time. Codes of
 * both operands become halves, which are exact; a warp decodes eight rows at a time, and its 8 x 8
 * matrices leave as the lanes have them, since which column is which is free as long as both
 * operands agree.
 *
 *  - plain: all threads load codes, decode both operands into matrices of 8 x 8 that lie one behind
 *    the other, wait for all, multiply, wait
 *  - swizzle: the copy engine brings codes, and halves lie in rows of 128 bytes, swizzled
 *  - stages: codes of four steps are on their way; a step is decoded while the one before is
 *    multiplied
 *  - roles: a warp starts copies, seven decode tokens, eight decode weights into registers and
 *    multiply
 *  - cluster: two blocks have the same tokens and different features: each decodes half of the
 *    tokens and copies them to the other one
 *
 * The last step, persistent, is the cluster's kernel with as many pairs of blocks as fit: of p
 * pairs each takes every p-th tile of a list that begins with the longest. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_LADDER_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_LADDER_CUH

#include "common.cuh"
#include "copy_across.cuh"
#include "grouped_gemm/grouped_decode.cuh"
#include "grouped_gemm/grouped_ladder_args.h"
#include "wgmma_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- what a kernel is made of ---- */

template <int STAGES_, int BYTES_, int BARRIERS_, int CLUSTER_> struct ladder_ring_kind {
    enum { STAGES = STAGES_, STAGE_BYTES = BYTES_, BARRIERS_AT = BARRIERS_, CLUSTER = CLUSTER_ };
};

template <int STEP_, int STAGES_, int BUFFERS_> struct ladder_kind {
    enum {
        COPIED = STEP_ >= LADDER_SWIZZLE, /* by the copy engine; halves are swizzled */
        ROLES = STEP_ >= LADDER_ROLES,
        CLUSTER = STEP_ >= LADDER_CLUSTER ? 2 : 1,
        STAGES = STAGES_,
        BUFFERS = BUFFERS_,
        HALVES_AT = LADDER_HALVES_AT(STAGES_),
        BUFFER = LADDER_BUFFER(STEP_),
        OUT_AT = LADDER_OUT_AT(STEP_, STAGES_, BUFFERS_),
        BARRIERS_AT = LADDER_BARRIERS_AT(STEP_, STAGES_, BUFFERS_),
        /* Warps that read a stage, where there are roles; that decode tokens. */
        READERS = LADDER_WITH_ROLES / WARP - 1,
        DECODERS = READERS - LADDER_MULTIPLY / WARP,
    };
    typedef ladder_ring_kind<STAGES, LADDER_STAGE, BARRIERS_AT, 1> codes;
    typedef ladder_ring_kind<BUFFERS, BUFFER, BARRIERS_AT + 16 * STAGES - HALVES_AT, CLUSTER>
        halves;
};

template <class K> struct ladder_block {
    wgmma_ring<typename K::codes> codes;   /* of a stage: weights, then tokens */
    wgmma_ring<typename K::halves> halves; /* without roles: weights, then tokens; else tokens */
    uint32_t out;                          /* of this warp */
    int rank;

    INLINE ladder_block(uint32_t base)
        : codes{base, 0, 0}, halves{base + K::HALVES_AT, 0, 0},
          out(base + K::OUT_AT + threadIdx.x / WARP * LADDER_OUT), rank(blockIdx.x % K::CLUSTER)
    {
    }
};

/* ---- the work of a block ---- */

struct ladder_tile {
    const ladder_group *g;
    int feature, token; /* the first ones */
    int eights, steps;  /* of tokens; of columns */
};

template <class K> struct ladder_tiles {
    uint32_t index;
    int at;

    INLINE ladder_tiles() : index(blockIdx.x / K::CLUSTER), at(0) {}
    INLINE bool next(const grouped_ladder_args &a, ladder_tile &tile)
    {
        if (index >= a.tiles) return false;
        while (at + 1 < a.n_groups && a.groups[at + 1].of.first_tile <= index) at++;
        const ladder_group &g = a.groups[at];
        uint32_t in = index - g.of.first_tile;
        tile.g = &g;
        tile.feature = (int)(in / g.parts * K::CLUSTER + blockIdx.x % K::CLUSTER) * LADDER_FEATURES;
        tile.token = g.token + (int)(in % g.parts) * LADDER_TOKENS;
        tile.eights = (min((int)LADDER_TOKENS, g.of.m - tile.token) + 7) / 8;
        tile.steps = (g.of.k + LADDER_COLUMNS - 1) / LADDER_COLUMNS;
        index += gridDim.x / K::CLUSTER;
        return true;
    }
};

/* An operand of a tile: `eights` of rows from `first` on, which is row `shift` of its atom. */
struct ladder_side {
    const uint8_t *codes, *scales;
    int first, rows, k, shift, eights, layout;
    uint32_t at; /* in a stage */
};

INLINE ladder_side weights_of(const grouped_ladder_args &a, const ladder_tile &tile)
{
    const grouped_tiles_group &g = tile.g->of;
    return {g.b, g.b_scales, tile.feature, g.n, g.k, 0, LADDER_EIGHTS, a.scales, 0};
}

/* Those that this block decodes: of two blocks the first has the larger half. */
template <class K>
INLINE ladder_side tokens_of(const grouped_ladder_args &a, const ladder_tile &tile)
{
    const grouped_tiles_group &g = tile.g->of;
    int half = (tile.eights + K::CLUSTER - 1) / K::CLUSTER, second = blockIdx.x % K::CLUSTER;
    ladder_side x = {g.a, g.a_scales, tile.token, g.m, g.k, 0, half, a.scales, LADDER_SIDE};
    if (second) x.first += half * 8, x.shift = half * 8, x.eights = tile.eights - half;
    return x;
}

/* ---- codes to shared memory, by one thread, step by step ---- */

/* Scales in atoms: those of rows behind the last one are the last atom's. NULL: in rows. */
INLINE const uint8_t *atoms_of(const ladder_side &x)
{
    int row = min(x.first, x.rows - 1) / ATOM_ROWS * ATOM_ROWS;
    return x.layout == SCALES_ATOMS ? x.scales + scale_index(x.layout, row, 0, x.k / 16) : nullptr;
}

template <class K> struct ladder_copies {
    const ladder_group *g;
    const uint8_t *weights, *tokens; /* scales of the next step */
    int feature, token, column;      /* the first ones */

    INLINE ladder_copies(const grouped_ladder_args &a, const ladder_tile &tile)
        : g(tile.g), weights(atoms_of(weights_of(a, tile))),
          tokens(atoms_of(tokens_of<K>(a, tile))), feature(tile.feature),
          token(tokens_of<K>(a, tile).first), column(0)
    {
    }
    INLINE void next(uint32_t to, uint32_t full)
    {
        int atoms = weights ? min(2, (g->of.k - column) / 64) : 0;
        barrier_expect(full,
                       LADDER_CODES + LADDER_CODES / K::CLUSTER + 2 * atoms * (int)ATOM_BYTES);
        copy_box_2d(to, g->b, column / 8, feature, full);
        copy_box_2d(to + LADDER_SIDE, g->a, column / 8, token, full);
        column += LADDER_COLUMNS;
        if (!atoms) return;
        copy_in(to + LADDER_CODES, weights, atoms * ATOM_BYTES, full);
        copy_in(to + LADDER_SIDE + LADDER_CODES, tokens, atoms * ATOM_BYTES, full);
        weights += 2 * ATOM_BYTES;
        tokens += 2 * ATOM_BYTES;
    }
};

/* ---- codes to halves ---- */

/* Of eight rows by a step a lane has 32 columns of row lane / 4. */
struct ladder_words {
    uint4 codes;
    uint32_t scales; /* two */
};

/* Eight number e of step s, from memory or the stage at `stage`. */
template <class K>
INLINE ladder_words load_words(const ladder_side &x, int e, int s, uint32_t stage)
{
    int lane = threadIdx.x % WARP, row = e * 8 + lane / 4, t = lane % 4;
    int column = s * LADDER_COLUMNS + t * 32, place = min(x.first + row, x.rows - 1);
    ladder_words w = {uint4{0, 0, 0, 0}, 0};
    if (column >= x.k) return w;
    if constexpr (K::COPIED)
        w.codes = load_shared_16(stage + x.at + row * LADDER_ROW + t * 16);
    else
        w.codes = __ldg((const uint4 *)(x.codes + (int64_t)place * (x.k / 2) + column / 2));
    row += x.shift;
    if (K::COPIED && x.layout == SCALES_ATOMS)
        w.scales = load_shared_2(stage + x.at + LADDER_CODES + t / 2 * ATOM_BYTES + row % 32 * 16 +
                                 row / 32 * 4 + t % 2 * 2);
    else
        w.scales = __ldg(
            (const uint16_t *)(x.scales + scale_index(x.layout, place, column / 16, x.k / 16)));
    return w;
}

/* Eight rows as halves: two swizzled kilobytes of 64 columns each, or 16 matrices. */
template <bool SWIZZLED> INLINE void put_words(uint32_t to, const ladder_words &w)
{
    uint32_t scales = decode_scales(w.scales), m[4];
    int lane = threadIdx.x % WARP, row = lane % 8, matrix = lane / 8; /* the lane's address */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        decode_word(m, word_of(w.codes, i), twice(scales, i / 2));
        if (SWIZZLED)
            store_matrices(to + i / 2 * 1024 + row * 128 + (i % 2 * 64 ^ (matrix ^ row) * 16), m);
        else
            store_matrices(to + (i * 4 + matrix) * 128 + row * 16, m);
    }
}

/* Columns 16 i to 16 i + 15 of rows whose first eight is at `at`. */
template <bool SWIZZLED> INLINE uint64_t halves_operand(uint32_t at, int i)
{
    if (SWIZZLED) return wgmma_operand<LADDER_EIGHT>(at + i / 4 * 1024, i % 4 * 16);
    /* No swizzle: 128 bytes from a matrix to the next one in a row, LADDER_EIGHT to the next row of
     * them. */
    return (uint64_t)(LADDER_EIGHT / 16) << 32 | 128 / 16 << 16 | (at + i * 256) >> 4;
}

/* ---- results ---- */

/* A warp's 16 features of 16 tokens from `token` on, 32 bytes a token, through `out`. */
INLINE void store_16(const grouped_tiles_group &g, int type, int feature, int token, const float *s,
                     uint32_t out)
{
    int lane = threadIdx.x % WARP, f = feature + lane % 2 * 8;
    uint32_t m[4] = {to_half2(type, s[0], s[1]), to_half2(type, s[2], s[3]),
                     to_half2(type, s[4], s[5]), to_half2(type, s[6], s[7])};
    __syncwarp(); /* what was there has been read */
    store_transposed(out + (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16, m);
    __syncwarp();
    if (token + lane / 2 < g.m && f < g.n)
        *(uint4 *)((uint16_t *)g.c + (int64_t)(token + lane / 2) * g.n + f) =
            load_shared_16(out + lane * 16);
}

/* The same of 8 tokens in float32. */
INLINE void store_f32(const grouped_tiles_group &g, int feature, int token, const float *s)
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = token + lane % 4 * 2 + i % 2, f = feature + lane / 4 + i / 2 * 8;
        if (row < g.m && f < g.n) ((float *)g.c)[(int64_t)row * g.n + f] = s[i];
    }
}

INLINE void store_tile(const grouped_ladder_args &a, const ladder_tile &tile,
                       float (&sums)[LADDER_TOKENS / 2], uint32_t out)
{
    const grouped_tiles_group &g = tile.g->of;
    int feature = tile.feature + threadIdx.x / WARP * 16, mine = feature + threadIdx.x % WARP / 4;
    float by = 0x1p28f * (g.factor ? __ldg(g.factor) : 1), add[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        add[i] = g.bias && mine + 8 * i < g.n ? __ldg(g.bias + mine + 8 * i) : 0;
#pragma unroll
    for (int j = 0; j < LADDER_EIGHTS; j += 2) {
        if (j >= tile.eights) break;
        float *s = sums + 4 * j;
#pragma unroll
        for (int i = 0; i < 8; i++) s[i] = fmaf(s[i], by, add[i / 2 % 2]);
        int token = tile.token + j * 8;
        if (a.c_type == DTYPE_F32) {
            store_f32(g, feature, token, s);
            store_f32(g, feature, token + 8, s + 4);
        } else {
            store_16(g, a.c_type, feature, token, s, out);
        }
    }
}

/* ---- without roles: a step is decoded by all, then multiplied ---- */

template <class K>
INLINE void decode_step(const grouped_ladder_args &a, const ladder_tile &tile, int s,
                        uint32_t stage, uint32_t to)
{
    enum { WARPS = LADDER_MULTIPLY / WARP, EACH = LADDER_EIGHTS / WARPS };
    const ladder_side side[2] = {weights_of(a, tile), tokens_of<K>(a, tile)};
    int warp = threadIdx.x / WARP;
    ladder_words w[2][EACH];
#pragma unroll
    for (int i = 0; i < 2 * EACH; i++) {
        int e = warp + i % EACH * WARPS;
        if (e < side[i / EACH].eights)
            w[i / EACH][i % EACH] = load_words<K>(side[i / EACH], e, s, stage);
    }
#pragma unroll
    for (int i = 0; i < 2 * EACH; i++) {
        int e = warp + i % EACH * WARPS;
        if (e < side[i / EACH].eights)
            put_words<K::COPIED>(to + i / EACH * LADDER_OPERAND + e * LADDER_EIGHT,
                                 w[i / EACH][i % EACH]);
    }
}

/* Both operands are at `at`. */
template <class K, int N> INLINE void multiply_shared(float *sums, uint32_t at)
{
    at = __reduce_max_sync(FULL_MASK, at);
    uint32_t weights = at + __shfl_sync(FULL_MASK, threadIdx.x / 128, 0) * (8 * LADDER_EIGHT);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < LADDER_COLUMNS / 16; i++)
        wgmma_f16<N>::shared(sums, halves_operand<K::COPIED>(weights, i),
                             halves_operand<K::COPIED>(at + LADDER_OPERAND, i));
    wgmma_commit();
}

template <class K, int N>
INLINE void multiply_in_turn(const grouped_ladder_args &a, const ladder_tile &tile,
                             ladder_block<K> &block, float (&sums)[LADDER_TOKENS / 2])
{
    ladder_copies<K> copies(a, tile);
    int asked = 0; /* steps whose copies are on their way or there */
#pragma unroll 1
    for (int s = 0; s < tile.steps; s++) {
        if constexpr (K::COPIED) {
            /* What is in the stages of steps before s has been read: all have met since. */
            for (; asked < min(s + (int)K::STAGES, tile.steps); asked++)
                if (threadIdx.x == 0)
                    copies.next(block.codes.base + asked % K::STAGES * LADDER_STAGE,
                                block.codes.full(asked % K::STAGES));
            barrier_wait(block.codes.full(block.codes.stage), block.codes.phase);
        }
        decode_step<K>(a, tile, s, block.codes.at(), block.halves.at());
        if constexpr (K::BUFFERS > 1) wgmma_wait<0>(); /* the step before */
        fence_for_copies();
        __syncthreads();
        multiply_shared<K, N>(sums, block.halves.at());
        if constexpr (K::BUFFERS == 1) {
            wgmma_wait<0>();
            __syncthreads();
        }
        block.codes.step();
        block.halves.step();
    }
    wgmma_wait<0>();
}

/* ---- with roles ---- */

template <class K> INLINE void copy_all(const grouped_ladder_args &a, ladder_block<K> block)
{
    ladder_tiles<K> tiles;
    ladder_tile tile;
    while (tiles.next(a, tile)) {
        ladder_copies<K> copies(a, tile);
        for (int s = 0; s < tile.steps; s++) {
            barrier_wait(block.codes.empty(block.codes.stage), block.codes.phase ^ 1);
            copies.next(block.codes.at(), block.codes.full(block.codes.stage));
            block.codes.step();
        }
    }
}

/* This block's tokens, to both blocks. */
template <class K> INLINE void decode_tokens(const grouped_ladder_args &a, ladder_block<K> block)
{
    enum { EACH = (LADDER_EIGHTS / K::CLUSTER + K::DECODERS - 1) / K::DECODERS };
    int warp = threadIdx.x / WARP - LADDER_MULTIPLY / WARP, lane = threadIdx.x % WARP;
    ladder_tiles<K> tiles;
    ladder_tile tile;
    while (tiles.next(a, tile)) {
        ladder_side x = tokens_of<K>(a, tile);
        uint32_t others = (tile.eights - x.eights) * LADDER_EIGHT;
#pragma unroll 1
        for (int s = 0; s < tile.steps; s++) {
            ladder_words w[EACH];
            barrier_wait(block.codes.full(block.codes.stage), block.codes.phase);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (warp + i * K::DECODERS < x.eights)
                    w[i] = load_words<K>(x, warp + i * K::DECODERS, s, block.codes.at());
            __syncwarp();
            block.codes.release(block.codes.stage);
            block.codes.step();
            uint32_t full = block.halves.full(block.halves.stage);
            uint32_t to = block.halves.at() + (x.shift / 8 + warp) * LADDER_EIGHT;
            barrier_wait(block.halves.empty(block.halves.stage), block.halves.phase ^ 1);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (warp + i * K::DECODERS < x.eights)
                    put_words<true>(to + i * K::DECODERS * LADDER_EIGHT, w[i]);
            fence_for_copies();
            __syncwarp();
            if (K::CLUSTER == 2 && lane < EACH && warp + lane * K::DECODERS < x.eights) {
                uint32_t at = to + lane * K::DECODERS * LADDER_EIGHT;
                copy_across(at, at, LADDER_EIGHT, full, block.rank ^ 1);
            }
            if (lane == 0) {
                if (K::CLUSTER == 2 && warp == 0)
                    barrier_expect(full, others);
                else
                    barrier_arrive(full);
            }
            block.halves.step();
        }
    }
}

/* A warp's 16 rows of a step, and the stage is given back. */
template <class K>
INLINE void take_weights(ladder_words (&w)[2], const ladder_side &x, int s, ladder_block<K> &block)
{
    barrier_wait(block.codes.full(block.codes.stage), block.codes.phase);
#pragma unroll
    for (int i = 0; i < 2; i++)
        w[i] = load_words<K>(x, threadIdx.x / WARP * 2 + i, s, block.codes.at());
    __syncwarp();
    block.codes.release(block.codes.stage);
    block.codes.step();
}

/* Step s, of the tokens in the present buffer. While products run, the next fragments are decoded;
 * behind the last ones the weights of the next step are taken. `last`: a buffer to give back when
 * the products before are done, or -1. */
template <class K, int N>
INLINE void multiply_step(float *sums, ladder_words (&w)[2], const ladder_side &x, int s, int steps,
                          int last, ladder_block<K> &block)
{
    uint32_t f[2][2][4], at = __reduce_max_sync(FULL_MASK, block.halves.at());
    uint32_t scales[2] = {decode_scales(w[0].scales), decode_scales(w[1].scales)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        decode_weights(f[i % 2], word_of(w[0].codes, i), word_of(w[1].codes, i),
                       twice(scales[0], i / 2), twice(scales[1], i / 2));
        if (i == 0) barrier_wait(block.halves.full(block.halves.stage), block.halves.phase);
        wgmma_fence();
        wgmma_f16<N>::registers(sums, f[i % 2][0], halves_operand<true>(at, 2 * i));
        wgmma_f16<N>::registers(sums, f[i % 2][1], halves_operand<true>(at, 2 * i + 1));
        wgmma_commit();
        if (i == 3 && s + 1 < steps) take_weights(w, x, s + 1, block);
        wgmma_wait<1>();
        if (i == 0 && last >= 0) block.halves.release(last);
    }
}

template <class K, int N>
INLINE void multiply_roles(const grouped_ladder_args &a, const ladder_tile &tile,
                           ladder_block<K> &block, float (&sums)[LADDER_TOKENS / 2])
{
    ladder_side x = weights_of(a, tile);
    ladder_words w[2];
    int last = -1;
    take_weights(w, x, 0, block);
#pragma unroll 1
    for (int s = 0; s < tile.steps; s++) {
        multiply_step<K, N>(sums, w, x, s, tile.steps, last, block);
        last = block.halves.stage;
        block.halves.step();
    }
    wgmma_wait<0>();
    block.halves.release(last);
}

/* ---- the kernel ---- */

template <class K, int N>
INLINE void multiply(const grouped_ladder_args &a, const ladder_tile &tile, ladder_block<K> &block,
                     float (&sums)[LADDER_TOKENS / 2])
{
    if constexpr (K::ROLES)
        multiply_roles<K, N>(a, tile, block, sums);
    else
        multiply_in_turn<K, N>(a, tile, block, sums);
}

/* Without roles there is a block for each tile. */
template <class K> INLINE void multiply_all(const grouped_ladder_args &a, ladder_block<K> block)
{
    ladder_tiles<K> tiles;
    ladder_tile tile;
    while (tiles.next(a, tile)) {
        float sums[LADDER_TOKENS / 2];
#pragma unroll
        for (int i = 0; i < LADDER_TOKENS / 2; i++) sums[i] = 0;
#define WIDTH(N)                                                                                   \
    case N / LADDER_WIDTH_UNIT:                                                                    \
        multiply<K, N>(a, tile, block, sums);                                                      \
        break;
        switch ((tile.eights * 8 + LADDER_WIDTH_UNIT - 1) / LADDER_WIDTH_UNIT) {
            LADDER_WIDTHS(WIDTH)
        }
#undef WIDTH
        wgmma_settle(sums);
        store_tile(a, tile, sums, block.out);
    }
}

/* All threads, of both blocks. */
template <class K> INLINE void meet_all()
{
    __syncwarp();
    if constexpr (K::CLUSTER == 2)
        cluster_sync();
    else
        __syncthreads();
}

template <class K> INLINE void ladder(const grouped_ladder_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    ladder_block<K> block(shared_address(shared));
    if (threadIdx.x == 0) {
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(block.codes.full(s), 1);
            barrier_init(block.codes.empty(s), K::READERS);
        }
        for (int s = 0; s < K::BUFFERS; s++) {
            barrier_init(block.halves.full(s), K::DECODERS);
            barrier_init(block.halves.empty(s), LADDER_MULTIPLY / WARP * K::CLUSTER);
        }
        barrier_init_done();
    }
    meet_all<K>();
    wait_for_input();
    let_next_start();
    if (threadIdx.x < LADDER_MULTIPLY) {
        if constexpr (K::ROLES) registers_take<168>();
        multiply_all<K>(a, block);
    } else if constexpr (K::ROLES) {
        registers_give<88>();
        if (threadIdx.x < K::READERS * WARP)
            decode_tokens<K>(a, block);
        else if (threadIdx.x == K::READERS * WARP)
            copy_all<K>(a, block);
    }
    /* No block ends while the other one still copies and arrives there. */
    if constexpr (K::CLUSTER == 2) meet_all<K>();
}

#endif
#endif
