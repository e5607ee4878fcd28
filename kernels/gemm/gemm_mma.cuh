/* Products of many rows on tensor cores through mma.sync and cp.async, which every architecture
 * from sm_80 on has: the base for cards that have nothing better. Dense or grouped by expert, one
 * family for all weight formats, with the roles of gemm_wgmma.cuh: weights are the operand with 16
 * rows (features), tokens the one with 8, so that a weight that must be decoded serves many tokens
 * and a group with few tokens is hardly padded.
 *
 * A block of four warps makes a tile of 128 rows of weights by up to 128 tokens; a warp has half of
 * each, 64 x 64 at most, which needs 4 bytes of shared memory for 128 flops where an SM of the H100
 * has 128 bytes for some 2600. Two blocks share an SM: one's results leave while the other's
 * products run. Fragments are fetched one step of 16 columns ahead, stages of 32 or 64 columns
 * two or three ahead. Tiles that share weights are neighbours. Widths of tiles are even parts of a
 * group's tokens.
 *
 * Gate and up (GATED) are multiplied together: of a fragment's 16 rows the first 8 are gate's, the
 * others up's of the same features, so that a thread has both for swiglu. */
#ifndef KERNELS_GEMM_MMA_CUH
#define KERNELS_GEMM_MMA_CUH

#include "copy_async.cuh"
#include "gemm/gemm_mma_args.h"
#include "inline.cuh"
#include "mma.cuh"
#include "pack/mxfp4_tiles.h"
#include "swiglu/swiglu.cuh"
#include "weights.cuh"

template <int TYPE_, bool GATED_, int COLUMNS_, int STAGES_> struct mma_kind {
    enum {
        PACKED = TYPE_TILE_ROWS(TYPE_) != 0,
        GATED = GATED_,
        COLUMNS = COLUMNS_, /* of a stage */
        STAGES = STAGES_,
        STEPS = COLUMNS / 16,
        ROW = COLUMNS * 2,           /* bytes, of tokens and of plain weights */
        CHUNKS = COLUMNS / 8,        /* of 16 bytes, in them */
        ROWS = MMA_THREADS / CHUNKS, /* that the block copies at once */
        W_AT = MMA_X_BYTES(COLUMNS),
        SCALES_AT = W_AT + MMA_W_BYTES(TYPE_, COLUMNS),
        STAGE_BYTES = MMA_STAGE_BYTES(TYPE_, COLUMNS),
        FEATURES = GATED ? MMA_ROWS / 2 : MMA_ROWS, /* of a tile */
        WARP_FEATURES = FEATURES / 2,
        TILES = FEATURES / TILE_ROWS_MXFP4, /* packed, of one matrix */
    };
    static_assert(!PACKED || COLUMNS == UNIT_COLUMNS, "a stage is a unit");
    static_assert(CHUNKS == 4 || CHUNKS == 8, "swizzle");
    /* Where 16 bytes of a row lie: neighbouring rows meet different banks. */
    static INLINE uint32_t place(uint32_t row, uint32_t chunk)
    {
        return row * ROW + (chunk ^ (CHUNKS == 8 ? row % 8 : row / 2 % 4)) * 16;
    }
};

/* ---- tiles ---- */

struct mma_tile {
    int group, first_feature, first_row, rows, width; /* width: of the product, at least rows */
};

/* Tiles of a group: bands of up to BAND parts of its tokens; in a band features, and the band's
 * parts fastest, so that blocks that run together share weights and tokens. */
template <class K>
INLINE void place_tile(const gemm_mma_args &a, int at, int first, int rows, mma_tile &tile)
{
    enum { BAND = 16 };
    int parts = (rows + a.tokens - 1) / a.tokens, features = (a.n + K::FEATURES - 1) / K::FEATURES;
    int band = at / (BAND * features), size = min((int)BAND, parts - band * BAND);
    at -= band * BAND * features;
    int part = band * BAND + at % size;
    tile.width = ((rows + parts - 1) / parts + MMA_WIDTH - 1) / MMA_WIDTH * MMA_WIDTH;
    tile.first_feature = at / size * K::FEATURES;
    tile.first_row = first + part * tile.width;
    tile.rows = min(tile.width, rows - part * tile.width);
}

/* Tile `index` of all; false where there are fewer. For whole warps: a lane looks at a group. */
template <class K> INLINE bool find_tile(const gemm_mma_args &a, int index, mma_tile &tile)
{
    int features = (a.n + K::FEATURES - 1) / K::FEATURES;
    if (!a.group_offsets) {
        tile.group = 0;
        place_tile<K>(a, index, 0, a.m, tile);
        return true;
    }
    int lane = threadIdx.x % WARP, before = 0; /* tiles of the groups so far */
    for (int base = 0; base < a.groups; base += WARP) {
        int g = base + lane, begin = g < a.groups ? a.group_offsets[g] : 0;
        int rows = g < a.groups ? a.group_offsets[g + 1] - begin : 0;
        int tiles = (rows + a.tokens - 1) / a.tokens * features, end = tiles;
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(FULL_MASK, end, step);
            if (lane >= step) end += other;
        }
        uint32_t behind = __ballot_sync(FULL_MASK, index < before + end);
        if (behind) {
            int owner = __ffs((int)behind) - 1;
            int at = __shfl_sync(FULL_MASK, index - before - (end - tiles), owner);
            begin = __shfl_sync(FULL_MASK, begin, owner);
            rows = __shfl_sync(FULL_MASK, rows, owner);
            tile.group = base + owner;
            place_tile<K>(a, at, begin, rows, tile);
            return true;
        }
        before += __shfl_sync(FULL_MASK, end, WARP - 1);
    }
    return false;
}

/* ---- copies of a stage ---- */

/* What a thread copies: one chunk of every ROWS-th row of the tokens and of plain weights, or 16
 * bytes of two packed tiles. */
template <class K> struct mma_copies {
    const uint16_t *x;
    const char *w[2];
    const char *scales;
    uint32_t place, chunk;
    int row; /* of plain weights */

    INLINE mma_copies(const gemm_mma_args &a, const mma_tile &tile)
    {
        chunk = threadIdx.x % K::CHUNKS;
        uint32_t first = threadIdx.x / K::CHUNKS;
        place = K::place(first, chunk);
        x = a.x + (int64_t)(tile.first_row + first) * a.k_padded + chunk * 8;
        row = tile.first_feature + first;
        w[0] = (const char *)a.w[0] + 2 * (int64_t)tile.group * a.n * a.k;
        if (!K::PACKED) return;
        int tiles = tile_count(TILES_MXFP4, a.n), units = a.k_padded / UNIT_COLUMNS;
        int at = tile.first_feature / TILE_ROWS_MXFP4;
        for (int i = 0; i < 2; i++) {
            int which = K::GATED ? i : 0, warp = threadIdx.x / WARP;
            int t = min(tiles - 1, at + warp + (K::GATED ? 0 : 4 * i));
            w[i] = (const char *)a.w[which] +
                   ((int64_t)tile.group * tiles + t) * units * UNIT_BYTES + threadIdx.x % WARP * 16;
        }
        int t = threadIdx.x / 2 % 8, which = t / K::TILES;
        t = min(tiles - 1, at + t % K::TILES);
        scales = (const char *)a.scales[which] +
                 ((int64_t)tile.group * tiles + t) * units * UNIT_SCALES_MXFP4 + threadIdx.x % 2 * 16;
    }

    INLINE void fetch(const gemm_mma_args &a, int width, int stage, uint32_t to) const
    {
        const uint16_t *from = x + stage * K::COLUMNS;
#pragma unroll
        for (int i = 0; i < MMA_TOKENS / K::ROWS; i++)
            if (i * K::ROWS < width)
                copy_16(to + place + i * K::ROWS * K::ROW,
                        from + (int64_t)i * K::ROWS * a.k_padded);
        to += K::W_AT;
        if (K::PACKED) {
            uint32_t at = to + threadIdx.x * 16;
            copy_16(at, w[0] + stage * UNIT_BYTES);
            copy_16(at + MMA_THREADS * 16, w[1] + stage * UNIT_BYTES);
            if (threadIdx.x < 16)
                copy_16(to + K::SCALES_AT - K::W_AT + threadIdx.x * 16,
                        scales + stage * UNIT_SCALES_MXFP4);
            return;
        }
        int column = stage * K::COLUMNS + (int)chunk * 8;
#pragma unroll
        for (int i = 0; i < MMA_ROWS / K::ROWS; i++) {
            int64_t at = (int64_t)min(row + i * K::ROWS, a.n - 1) * a.k + column;
            copy_16(to + place + i * K::ROWS * K::ROW, w[0] + 2 * at, column < a.k);
        }
    }
};

/* ---- fragments ---- */

/* Fragments of a warp's 64 rows of weights, plain: the present step's, and the next one's. */
template <class K> struct plain_weights {
    uint32_t f[2][4][4], at;

    INLINE plain_weights()
    {
        uint32_t lane = threadIdx.x % WARP, half = threadIdx.x / WARP % 2;
        at = K::W_AT + K::place(half * 64 + lane % 16, lane / 16);
    }
    INLINE void load(uint32_t stage, int step, int to)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_matrices(f[to][i], ((stage + at) ^ step * 32) + i * 16 * K::ROW);
    }
};

/* Packed MXFP4: words of a unit, decoded when their step comes. What the pairs lack is 2^(e-1), for
 * which a bf16 is too small when e is above 128: `large` gathers such scales, and a tile that has
 * them is computed again, plainly. Trained models have none. */
template <class K> struct packed_weights {
    uint4 words[4];
    uint32_t scales[4]; /* row g's two blocks, then row g + 8's */
    uint32_t large;

    INLINE packed_weights() : large(0) {}
    INLINE void load(uint32_t stage)
    {
        uint32_t lane = threadIdx.x % WARP, first = threadIdx.x / WARP % 2 * (K::TILES / 2);
        uint32_t w = stage + K::W_AT + first * UNIT_BYTES + lane * 16;
        uint32_t s = stage + K::SCALES_AT + first * UNIT_SCALES_MXFP4 + lane / 4 * 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int tile = K::GATED ? i % 2 * K::TILES + i / 2 : i; /* gate's, up's, gate's, up's */
            words[i] = load_shared_16(w + tile * UNIT_BYTES);
            scales[i] = load_shared_4(s + tile * UNIT_SCALES_MXFP4);
            large |= ((scales[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu) & scales[i];
        }
#pragma unroll
        for (int i = 0; K::GATED && i < 4; i += 2) { /* rows 0..7 of both, then rows 8..15 */
            uint4 gate = words[i], up = words[i + 1];
            words[i] = uint4{gate.x, gate.y, up.x, up.y};
            words[i + 1] = uint4{gate.z, gate.w, up.z, up.w};
            uint32_t s = scales[i];
            scales[i] = __byte_perm(s, scales[i + 1], 0x5410);
            scales[i + 1] = __byte_perm(s, scales[i + 1], 0x7632);
        }
    }
    /* As bf16, twice. */
    template <int BYTE> static INLINE uint32_t scale(uint32_t four)
    {
        return __byte_perm(four, 0, 0x4040 | BYTE | BYTE << 8) * 128 + 0x3f003f00u;
    }
    template <int STEP> INLINE void decode(uint32_t (&f)[4][4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low = STEP < 2 ? words[i].x : words[i].y;
            uint32_t high = STEP < 2 ? words[i].z : words[i].w;
            uint32_t s = scale<STEP / 2>(scales[i]), t = scale<2 + STEP / 2>(scales[i]);
            f[i][0] = mul_bf16x2(mxfp4_pair(low, STEP % 2 * 2), s);
            f[i][1] = mul_bf16x2(mxfp4_pair(high, STEP % 2 * 2), t);
            f[i][2] = mul_bf16x2(mxfp4_pair(low, STEP % 2 * 2 + 1), s);
            f[i][3] = mul_bf16x2(mxfp4_pair(high, STEP % 2 * 2 + 1), t);
        }
    }
};

/* Of a warp's 8 x COUNT tokens. */
template <class K, int COUNT> struct token_fragments {
    uint32_t f[2][COUNT][2], at;

    INLINE token_fragments()
    {
        uint32_t lane = threadIdx.x % WARP, half = threadIdx.x / WARP / 2;
        at = K::place(half * 8 * COUNT + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    }
    INLINE void load(uint32_t stage, int step, int to)
    {
#pragma unroll
        for (int j = 0; j < COUNT; j += 2)
            load_matrices(f[to][j], ((stage + at) ^ step * 32) + j * 8 * K::ROW);
    }
};

/* ---- products of a tile ---- */

template <int COUNT>
INLINE void multiply_step(float (&sums)[4][COUNT][4], const uint32_t (&w)[4][4],
                          const uint32_t (&x)[COUNT][2])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < COUNT; j++) mma_bf16(sums[i][j], w[i], x[j]);
}

/* The ring of stages: the next one to use is there when `advance` returns, and the one used before
 * is being filled again. All warps have its last fragments in registers when they call it. */
template <class K> struct mma_ring {
    uint32_t base, stage; /* shared addresses */
    int at, count;        /* stages used, and in all */

    INLINE uint32_t behind(uint32_t s) const
    {
        return s + K::STAGE_BYTES == base + K::STAGES * K::STAGE_BYTES ? base : s + K::STAGE_BYTES;
    }
    INLINE void start(const gemm_mma_args &a, const mma_copies<K> &copies, int width)
    {
#pragma unroll
        for (int s = 0; s < K::STAGES; s++) {
            if (s < count) copies.fetch(a, width, s, base + s * K::STAGE_BYTES);
            copy_commit();
        }
        copy_wait<K::STAGES - 1>();
        __syncthreads();
    }
    INLINE void advance(const gemm_mma_args &a, const mma_copies<K> &copies, int width)
    {
        copy_wait<K::STAGES - 2>();
        __syncthreads();
        if (at + K::STAGES < count) copies.fetch(a, width, at + K::STAGES, stage);
        copy_commit();
        if (++at < count)
            stage = behind(stage); /* behind the last one nothing comes: that one again */
    }
};

template <class K, int COUNT>
INLINE void multiply_plain(const gemm_mma_args &a, const mma_copies<K> &copies, mma_ring<K> &ring,
                           float (&sums)[4][COUNT][4])
{
    plain_weights<K> w;
    token_fragments<K, COUNT> x;
    int width = COUNT * 16;
    ring.start(a, copies, width);
    w.load(ring.stage, 0, 0);
    x.load(ring.stage, 0, 0);
    while (ring.at < ring.count) {
#pragma unroll
        for (int step = 0; step < K::STEPS; step++) {
            int next = (step + 1) % K::STEPS;
            if (next == 0) ring.advance(a, copies, width);
            w.load(ring.stage, next, (step + 1) % 2);
            x.load(ring.stage, next, (step + 1) % 2);
            multiply_step<COUNT>(sums, w.f[step % 2], x.f[step % 2]);
        }
    }
}

template <class K, int STEP, int COUNT>
INLINE void multiply_decoded(float (&sums)[4][COUNT][4], packed_weights<K> &w,
                             token_fragments<K, COUNT> &x, uint32_t stage)
{
    uint32_t f[4][4];
    w.template decode<STEP>(f);
    if (STEP == K::STEPS - 1) w.load(stage);
    x.load(stage, (STEP + 1) % K::STEPS, (STEP + 1) % 2);
    multiply_step<COUNT>(sums, f, x.f[STEP % 2]);
}

template <class K, int COUNT>
INLINE bool multiply_packed(const gemm_mma_args &a, const mma_copies<K> &copies, mma_ring<K> &ring,
                            float (&sums)[4][COUNT][4])
{
    packed_weights<K> w;
    token_fragments<K, COUNT> x;
    int width = COUNT * 16;
    ring.start(a, copies, width);
    w.load(ring.stage);
    x.load(ring.stage, 0, 0);
    while (ring.at < ring.count) {
        multiply_decoded<K, 0, COUNT>(sums, w, x, ring.stage);
        multiply_decoded<K, 1, COUNT>(sums, w, x, ring.stage);
        multiply_decoded<K, 2, COUNT>(sums, w, x, ring.stage);
        ring.advance(a, copies, width);
        multiply_decoded<K, 3, COUNT>(sums, w, x, ring.stage);
    }
    return __any_sync(FULL_MASK, (w.large & 0x80808080u) != 0);
}

/* ---- results ---- */

/* One result of a packed product by float32 arithmetic: any scale, whatever the speed. */
INLINE float plain_sum(const gemm_mma_args &a, int group, int which, int row, int token)
{
    int units = a.k_padded / UNIT_COLUMNS;
    int64_t tile = (int64_t)group * tile_count(TILES_MXFP4, a.n) + row / TILE_ROWS_MXFP4;
    const uint8_t *w = (const uint8_t *)a.w[which] + tile * units * UNIT_BYTES;
    const uint8_t *s = (const uint8_t *)a.scales[which] + tile * units * UNIT_SCALES_MXFP4;
    const uint16_t *x = a.x + (int64_t)token * a.k_padded;
    float sum = a.bias[which] ? a.bias[which][(int64_t)group * a.n + row] : 0;
    for (int k = 0; k < a.k_padded; k++)
        sum += mxfp4_tile_at(w, s, (uint32_t)row % TILE_ROWS_MXFP4, k) * bf16_to_f32(x[k]);
    return sum;
}

/* A warp's part of a tile: features, and tokens, from the first on. */
template <class K>
__device__ __noinline__ void multiply_plainly(const gemm_mma_args &a, int group, int feature,
                                              int token, int tokens)
{
    for (int i = threadIdx.x % WARP; i < K::WARP_FEATURES * tokens; i += WARP) {
        int row = feature + i % K::WARP_FEATURES, t = token + i / K::WARP_FEATURES;
        if (row >= a.n) continue;
        float value = plain_sum(a, group, 0, row, t);
        if (K::GATED) value = swiglu(value, plain_sum(a, group, 1, row, t), a.alpha, a.limit);
        a.c[(int64_t)t * a.n + row] = value;
    }
}

/* Straight from registers: the 8 lanes of a token write 32 neighbouring bytes. */
template <class K, int COUNT>
INLINE void store(const gemm_mma_args &a, int group, int feature, int token, int tokens,
                  const float (&sums)[4][COUNT][4])
{
    int lane = threadIdx.x % WARP, first = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < (K::GATED ? 1 : 2); h++) {
            int row = feature + (K::GATED ? 8 * i : 16 * i + 8 * h) + lane / 4;
            if (row >= a.n) continue;
            int64_t at = (int64_t)group * a.n + row;
            float bias = a.bias[0] ? a.bias[0][at] : 0;
            float up_bias = K::GATED && a.bias[1] ? a.bias[1][at] : 0;
            float *c = a.c + (int64_t)(token + first) * a.n + row;
#pragma unroll
            for (int j = 0; j < COUNT; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float value = sums[i][j][2 * h + e] + bias;
                    if (K::GATED)
                        value = swiglu(value, sums[i][j][2 + e] + up_bias, a.alpha, a.limit);
                    if (8 * j + first + e < tokens) c[(int64_t)(8 * j + e) * a.n] = value;
                }
        }
}

/* A tile of 16 x COUNT tokens. */
template <class K, int COUNT>
INLINE void make_tile(const gemm_mma_args &a, const mma_tile &tile, uint32_t base)
{
    float sums[4][COUNT][4];
#pragma unroll
    for (int i = 0; i < 16 * COUNT; i++) sums[i / 4 / COUNT][i / 4 % COUNT][i % 4] = 0;
    mma_copies<K> copies(a, tile);
    mma_ring<K> ring = {base, base, 0, (a.k + K::COLUMNS - 1) / K::COLUMNS};
    int warp = threadIdx.x / WARP, token = warp / 2 * 8 * COUNT;
    int feature = tile.first_feature + warp % 2 * K::WARP_FEATURES;
    int tokens = min(8 * COUNT, tile.rows - token);
    token += tile.first_row;
    if constexpr (!K::PACKED) {
        multiply_plain<K, COUNT>(a, copies, ring, sums);
    } else if (multiply_packed<K, COUNT>(a, copies, ring, sums)) {
        multiply_plainly<K>(a, tile.group, feature, token, tokens);
        return;
    }
    store<K, COUNT>(a, tile.group, feature, token, tokens, sums);
}

template <class K> INLINE void gemm_mma(const gemm_mma_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    mma_tile tile;
    wait_for_input();
    let_next_start();
    if (!find_tile<K>(a, (int)blockIdx.x, tile)) return;
    uint32_t base = shared_at(shared);
    switch (tile.width) {
    case 32:
        make_tile<K, 2>(a, tile, base);
        break;
    case 64:
        make_tile<K, 4>(a, tile, base);
        break;
    case 96:
        make_tile<K, 6>(a, tile, base);
        break;
    default:
        make_tile<K, 8>(a, tile, base);
    }
}

#define MMA_KERNEL(name, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS, MMA_BLOCKS)                          \
        name(const __grid_constant__ gemm_mma_args a)                                              \
    {                                                                                              \
        gemm_mma<mma_kind<__VA_ARGS__>>(a);                                                        \
    }

#endif
