/* Grouped products of block-scaled operands on Hopper's tensor cores. A number of e2m1 times its
 * scale of e4m3 has at most six significant bits, so a half holds it exactly: both operands are
 * decoded to halves, and the tensor cores add in float32.
 *
 * Weights (b) are the operand of 64 rows, activations (a) the other one, any multiple of 8 tokens.
 * A block has a warpgroup that has both copied into shared memory, and two that decode weights into
 * their own registers and multiply, 64 or 128 features each, or 64 of a gate and of up. Activations
 * are decoded once, by all blocks, before all else. Which column of a step is which column of a
 * product is free as long as both sides agree: lane t of a row's four takes 32 columns of a step
 * from 32 t on, 16 bytes of codes, which are two blocks. Who decodes activations does the same, and
 * matrices of 8 x 8 leave as the lanes have them.
 *
 * The work, tiles by steps of 128 columns, is cut by the host into parts of equal cost, one for
 * each block. Where a cut falls within a tile, the block that has its beginning adds what the
 * others leave in memory. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_WGMMA_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_WGMMA_CUH

#include "grouped_gemm/grouped_decode.cuh"
#include "swiglu/swiglu_near.cuh"
#include "words.cuh"
#include "wgmma_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the warpgroup that copies ---- */

/* Whether the copy engine brings the scales of weights. */
INLINE bool scales_copied(const grouped_wgmma_args &a)
{
    return a.weights == WEIGHTS_TILES || in_atoms(a);
}

/* Weights of a step, as they are: codes by the copy engine, scales in atoms too; or tiles, which
 * have both. */
template <class K> struct weight_stream {
    const tensor_map *map;
    const uint8_t *scales[K::ROWS]; /* of each 128 rows' first one in its next step; or its tile */
    int feature, blocks;            /* blocks of 128 rows that have scales */

    INLINE void begin(const grouped_wgmma_args &a, const grouped_tile &tile)
    {
        const grouped_part &g = *tile.part;
        map = &a.map[g.map];
        feature = tile.feature;
        bool tiles = a.weights == WEIGHTS_TILES;
        int64_t at = tiles ? weight_tile_index(feature, tile.first * GROUPED_STEP, g.k)
                           : scale_index(a.scales, feature, tile.first * 8, g.k / 16);
        scales[0] = g.b_scales + at;
        if constexpr (K::MATRICES == 2)
            scales[1] = g.up_scales + at;
        else if constexpr (K::ROWS == 2)
            scales[1] = scales[0] + (tiles ? weight_tile_index(WEIGHT_TILE_ROWS, 0, g.k)
                                           : scale_index(a.scales, ATOM_ROWS, 0, g.k / 16));
        blocks =
            K::MATRICES == 2 ? 2 : min((int)K::ROWS, (g.n - feature + ATOM_ROWS - 1) / ATOM_ROWS);
    }

    INLINE void copy_tiles(uint32_t to, uint32_t full)
    {
        barrier_expect(full, blocks * WEIGHT_TILE_BYTES);
#pragma unroll
        for (int i = 0; i < K::ROWS; i++) {
            if (i < blocks) {
                copy_in(to + K::CODES_AT + i * WEIGHT_TILE_CODES, scales[i], WEIGHT_TILE_CODES,
                        full);
                copy_in(to + K::SCALES_AT + i * GROUPED_SCALES_BYTES, scales[i] + WEIGHT_TILE_CODES,
                        GROUPED_SCALES_BYTES, full);
            }
            scales[i] += WEIGHT_TILE_BYTES;
        }
    }

    /* Step s, by one thread; `whole`: it has 128 columns, not 64. */
    INLINE void copy(const grouped_wgmma_args &a, int s, bool whole, uint32_t to, uint32_t full)
    {
        enum { CODES = GROUPED_STEP / 2 };
        if (a.weights == WEIGHTS_TILES) {
            copy_tiles(to, full);
            return;
        }
        uint32_t bytes = whole ? GROUPED_SCALES_BYTES : ATOM_BYTES;
        barrier_expect(full, K::STAGE_ROWS * CODES + (in_atoms(a) ? blocks * bytes : 0));
        for (int i = 0; i < K::MATRICES; i++)
            copy_box_2d(to + K::CODES_AT + i * K::FEATURES * CODES, map[i], s * (GROUPED_STEP / 8),
                        feature, full);
        if (!in_atoms(a)) return;
#pragma unroll
        for (int i = 0; i < K::ROWS; i++) {
            if (i < blocks)
                copy_in(to + K::SCALES_AT + i * GROUPED_SCALES_BYTES, scales[i], bytes, full);
            scales[i] += GROUPED_SCALES_BYTES;
        }
    }
};

/* Who copies weights: a warp, or three where scales lie in rows; the second warp of the group
 * copies activations. */
INLINE int weight_threads(const grouped_wgmma_args &a)
{
    return scales_copied(a) ? WARP : GROUPED_WARPGROUP - WARP;
}

/* Scales that lie in rows: of a step, 8 bytes a row, through registers. In shared memory they lie
 * as in atoms. */
template <class K> struct scale_stream {
    enum { THREADS = GROUPED_WARPGROUP - WARP, EACH = (K::STAGE_ROWS + THREADS - 1) / THREADS };
    const uint8_t *from[K::MATRICES]; /* the tile's first row */
    uint32_t next[EACH][2];
    int pitch, first, rows; /* this thread's first row; rows of the tile that there are */

    INLINE void begin(const grouped_tile &tile)
    {
        const grouped_part &g = *tile.part;
        pitch = g.k / 16;
        first = threadIdx.x < WARP ? threadIdx.x : threadIdx.x - WARP;
        rows = min((int)K::FEATURES, g.n - tile.feature);
        int64_t at = (int64_t)tile.feature * pitch + tile.first * 8;
        from[0] = g.b_scales + at;
        if constexpr (K::MATRICES == 2) from[1] = g.up_scales + at;
    }
    INLINE void load(bool whole)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int row = first + i * THREADS, matrix = row / K::FEATURES;
            row -= matrix * K::FEATURES;
            bool there = matrix < K::MATRICES && row < rows;
            const uint32_t *at =
                (const uint32_t *)((matrix == 0 ? from[0] : from[K::MATRICES - 1]) + row * pitch);
            next[i][0] = there ? __ldg(at) : 0;
            next[i][1] = there && whole ? __ldg(at + 1) : 0;
        }
        for (int i = 0; i < K::MATRICES; i++) from[i] += 8;
    }
    INLINE void store(uint32_t to) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int row = first + i * THREADS;
            if (row >= K::STAGE_ROWS) break;
            uint32_t at = to + K::SCALES_AT + row / ATOM_ROWS * GROUPED_SCALES_BYTES +
                          row % 32 * 16 + row % ATOM_ROWS / 32 * 4;
            store_shared_4(at, next[i][0]);
            store_shared_4(at + ATOM_BYTES, next[i][1]);
        }
    }
};

/* The second atoms of a stage, of columns behind the last one: a scale there could be NaN. */
template <class K> INLINE void clear_scales(uint32_t to)
{
    for (int i = 0; i < K::ROWS; i++)
        for (int j = threadIdx.x * 4; j < ATOM_BYTES; j += WARP * 4)
            store_shared_4(to + K::SCALES_AT + i * GROUPED_SCALES_BYTES + ATOM_BYTES + j, 0);
    fence_for_copies(); /* the next to come there is a copy */
}

template <class K> INLINE void copy_weights(const grouped_wgmma_args &a, wgmma_ring<K> ring)
{
    grouped_tiles<K> tiles(a);
    grouped_tile tile;
    weight_stream<K> weights;
    scale_stream<K> scales;
    while (tiles.next(a, tile)) {
        weights.begin(a, tile);
        if (!scales_copied(a)) scales.begin(tile);
#pragma unroll 1
        for (int s = tile.first; s < tile.last; s++) {
            bool whole = (s + 1) * GROUPED_STEP <= tile.part->k;
            if (!scales_copied(a)) scales.load(whole);
            barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
            uint32_t to = ring.at();
            if (threadIdx.x == 0) weights.copy(a, s, whole, to, ring.full(ring.stage));
            if (!scales_copied(a))
                scales.store(to);
            else if (!whole && a.weights != WEIGHTS_TILES) /* tiles have zeros there */
                clear_scales<K>(to);
            barrier_arrive(ring.full(ring.stage));
            ring.step();
        }
    }
}

/* Decoded activations: how many bytes a step of the tile has, and from its next step to the one
 * behind. */
template <class K> struct token_stream {
    const uint8_t *from;
    uint32_t bytes, next;

    INLINE void begin(const grouped_wgmma_args &a, const grouped_tile &tile)
    {
        const grouped_part &g = *tile.part;
        bytes = g.width / 8 * GROUPED_EIGHT_BYTES;
        next = g.eights * GROUPED_EIGHT_BYTES;
        from = a.decoded + ((int64_t)g.at + tile.token / 8) * GROUPED_EIGHT_BYTES +
               (int64_t)tile.first * next;
    }
    INLINE void copy(uint32_t to, uint32_t full)
    {
        barrier_expect(full, bytes);
        copy_in(to, from, bytes, full);
        from += next;
    }
};

/* Activations, by one thread, not before all blocks have decoded theirs. */
template <class K>
INLINE void copy_tokens(const grouped_wgmma_args &a, wgmma_ring<K> ring, uint32_t before)
{
    grouped_tiles<K> tiles(a);
    grouped_tile tile;
    token_stream<K> tokens;
    grid_wait(a.words, before);
    while (tiles.next(a, tile)) {
        tokens.begin(a, tile);
#pragma unroll 1
        for (int s = tile.first; s < tile.last; s++) {
            barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
            tokens.copy(ring.at(), ring.full(ring.stage));
            ring.step();
        }
    }
}

/* ---- the warpgroups that multiply ---- */

/* A lane's four words of a step, for rows g and g + 8 of a warp's 16, and their two scales. */
template <class K> struct weight_words {
    uint4 row[K::ROWS][2];
    uint32_t scales[K::ROWS][2];
};

/* Where a lane's codes and scales are in a stage: of row g of its warp's first 16. */
template <class K> struct weight_place {
    uint32_t codes, scales;

    INLINE weight_place()
    {
        uint32_t thread = threadIdx.x - GROUPED_WARPGROUP, t = thread % 4;
        uint32_t row = thread / GROUPED_WARPGROUP * K::WARPGROUP_ROWS +
                       thread % GROUPED_WARPGROUP / WARP * 16 + thread % WARP / 4;
        codes = K::CODES_AT + row * (GROUPED_STEP / 2) + t * 16;
        scales = K::SCALES_AT + row / ATOM_ROWS * GROUPED_SCALES_BYTES + t / 2 * ATOM_BYTES +
                 row % 32 * 16 + row % ATOM_ROWS / 32 * 4 + t % 2 * 2;
    }

    /* Of the stage at `stage`, 64 rows. */
    INLINE void load(weight_words<K> &w, uint32_t stage, int tile) const
    {
        enum { NEXT_SCALES = K::NEXT_ROWS == ATOM_ROWS ? (int)GROUPED_SCALES_BYTES : 8 };
#pragma unroll
        for (int i = 0; i < 2; i++) {
            w.row[tile][i] =
                load_shared_16(stage + codes + (tile * K::NEXT_ROWS + i * 8) * (GROUPED_STEP / 2));
            w.scales[tile][i] = load_shared_2(stage + scales + i * 8 * 16 + tile * NEXT_SCALES);
        }
    }
};

template <class K, int N>
INLINE void multiply_32(float *sums, const uint32_t (&f)[2][4], uint32_t x, int word)
{
    wgmma_fence();
    wgmma_f16<N>::registers(sums, f[0], wgmma_operand<GROUPED_EIGHT_BYTES>(x, word * 32));
    wgmma_f16<N>::registers(sums, f[1], wgmma_operand<GROUPED_EIGHT_BYTES>(x, word * 32 + 16));
    wgmma_commit();
}

/* A step, of the stage at x. While products run, the next fragments are decoded; behind the last
 * ones the words of the next step are loaded, if there is `more`, from the ring's stage once it is
 * full. `last`: a stage that is given back when the products before this step are done, or -1. */
template <class K, int N>
INLINE void multiply_step(float (&sums)[K::ROWS][K::SUMS], weight_words<K> &w,
                          const weight_place<K> &place, const wgmma_ring<K> &ring, uint32_t x,
                          int last, bool more)
{
    enum { GROUPS = 4 * K::ROWS };
    uint32_t f[2][2][4], scales[K::ROWS][2];
#pragma unroll
    for (int i = 0; i < 2 * K::ROWS; i++)
        scales[i / 2][i % 2] = decode_scales(w.scales[i / 2][i % 2]);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        int tile = i % K::ROWS, word = i / K::ROWS;
        decode_weights(f[i % 2], word_of(w.row[tile][0], word), word_of(w.row[tile][1], word),
                       twice(scales[tile][0], word / 2), twice(scales[tile][1], word / 2));
        multiply_32<K, N>(sums[tile], f[i % 2], x + word / 2 * GROUPED_KILO, word % 2);
        if (word == 2 && tile == 0 && more) barrier_wait(ring.full(ring.stage), ring.phase);
        if (word == 3 && more) place.load(w, ring.at(), tile);
        wgmma_wait<1>();
        if (i == 0 && last >= 0) ring.release(last);
    }
}

template <class K, int N>
INLINE void multiply(float (&sums)[K::ROWS][K::SUMS], const grouped_tile &tile, wgmma_ring<K> &ring)
{
    weight_place<K> place;
    weight_words<K> w;
    int last = -1, left = tile.last - tile.first;
    barrier_wait(ring.full(ring.stage), ring.phase);
#pragma unroll
    for (int t = 0; t < K::ROWS; t++) place.load(w, ring.at(), t);
#pragma unroll 1
    while (left > 0) {
        uint32_t x = ring.uniform_at();
        int before = last;
        last = ring.stage;
        ring.step();
        left--;
        multiply_step<K, N>(sums, w, place, ring, x, before, left > 0);
    }
    wgmma_wait<0>();
    ring.release(last);
}

/* ---- results ---- */

/* All who multiply; barriers 1 and 2 are those of a warpgroup alone. */
INLINE void sync_multiplying()
{
    named_sync(3, GROUPED_MULTIPLY_THREADS);
}

/* Sums of a part of a tile to memory, for the block that has its beginning. */
template <class K>
INLINE void leave_part(const grouped_wgmma_args &a, int width,
                       const float (&sums)[K::ROWS][K::SUMS])
{
    int thread = threadIdx.x - GROUPED_WARPGROUP;
    float4 *to = (float4 *)((uint8_t *)a.partial + (int64_t)blockIdx.x * K::PARTIAL) + thread;
#pragma unroll
    for (int t = 0; t < K::ROWS; t++)
#pragma unroll
        for (int i = 0; i < K::TOKENS / 8; i++) {
            const float *v = sums[t] + 4 * i;
            if (8 * i < width)
                __stcg(to + (t * K::TOKENS / 8 + i) * GROUPED_MULTIPLY_THREADS,
                       float4{v[0], v[1], v[2], v[3]});
        }
    fence_for_bulk_copies();
    __threadfence();
    sync_multiplying();
    if (thread == 0) word_set_1(a.words + 1 + blockIdx.x);
}

/* Adds what the blocks behind this one have of its last tile. Nobody needs the stages any more:
 * they come there. */
template <class K>
INLINE void add_parts(const grouped_wgmma_args &a, const grouped_part &g,
                      float (&sums)[K::ROWS][K::SUMS], uint32_t shared)
{
    enum { EACH = GROUPED_MULTIPLY_THREADS * 16, ROW = K::TOKENS / 8 * EACH };
    int thread = threadIdx.x - GROUPED_WARPGROUP, width = g.width;
    uint32_t stop = a.begin[blockIdx.x + 1], barrier = shared + K::SUMS_BARRIER_AT, phase = 0;
    uint32_t end = stop + g.tile_cost - (stop - g.first) % g.tile_cost; /* of the tile */
    for (uint32_t b = blockIdx.x + 1; stop < end; b++) {
        uint32_t begin = stop;
        stop = a.begin[b + 1];
        if (begin == stop) continue;
        sync_multiplying();
        if (thread == 0) {
            while (!word_take(a.words + 1 + b)) {
            }
            a.words[1 + b] = 0;
            fence_for_bulk_copies();
            barrier_expect(barrier, K::ROWS * width / 8 * EACH);
            const uint8_t *from = (const uint8_t *)a.partial + (int64_t)b * K::PARTIAL;
            for (int t = 0; t < K::ROWS; t++)
                copy_in(shared + t * ROW, from + t * ROW, width / 8 * EACH, barrier);
        }
        barrier_wait(barrier, phase);
        phase ^= 1;
#pragma unroll
        for (int t = 0; t < K::ROWS; t++)
#pragma unroll
            for (int i = 0; i < K::TOKENS / 8; i++) {
                if (8 * i >= width) break;
                uint4 v = load_shared_16(shared + t * ROW + i * EACH + thread * 16);
                float *sum = sums[t] + 4 * i;
                sum[0] += __uint_as_float(v.x), sum[1] += __uint_as_float(v.y);
                sum[2] += __uint_as_float(v.z), sum[3] += __uint_as_float(v.w);
            }
    }
}

/* Rows of c in halves, of 64 features: through shared memory, a token's together. */
template <class K>
INLINE void store_halves(const grouped_wgmma_args &a, const grouped_tile &tile, int feature,
                         const float (&sums)[K::SUMS], uint32_t out)
{
    const grouped_part &g = *tile.part;
    int wg = threadIdx.x / GROUPED_WARPGROUP, thread = threadIdx.x % GROUPED_WARPGROUP;
    int warp = thread / WARP, lane = thread % WARP;
    /* The lane's address: token lane % 8 of the first or second eight, features 8 (lane / 8 % 2).
     */
    int token = lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
    uint32_t to = out + token * GROUPED_ROW_BYTES + (piece ^ token % 8) * 16;
#pragma unroll
    for (int first = 0; first < K::TOKENS; first += GROUPED_OUT_TOKENS) {
        int count = min(min(g.width - first, (int)GROUPED_OUT_TOKENS), g.m - tile.token - first);
        if (count <= 0) break;
        named_sync(wg, GROUPED_WARPGROUP); /* what was here has left */
#pragma unroll
        for (int j = first / 8; j < (first + GROUPED_OUT_TOKENS) / 8; j += 2) {
            const float *s = sums + 4 * j;
            uint32_t m[4] = {to_half2(a.c_type, s[0], s[1]), to_half2(a.c_type, s[2], s[3]),
                             to_half2(a.c_type, s[4], s[5]), to_half2(a.c_type, s[6], s[7])};
            store_transposed(to + (j * 8 - first) * GROUPED_ROW_BYTES, m);
        }
        named_sync(wg, GROUPED_WARPGROUP);
        uint16_t *c = (uint16_t *)g.c + (int64_t)(tile.token + first) * g.n + feature;
        for (int i = thread; i < count * 8; i += GROUPED_WARPGROUP) {
            int row = i / 8, p = i % 8;
            if (feature + p * 8 < g.n)
                store_16(c + (int64_t)row * g.n + p * 8,
                         load_shared_16(out + row * GROUPED_ROW_BYTES + (p ^ row % 8) * 16));
        }
    }
}

/* Sums of features `feature` and 8 behind it as numbers of c. */
template <class K>
INLINE void scale_sums(float (&sums)[K::SUMS], const float *factor, const float *bias, int feature,
                       int n)
{
    float by = 0x1p28f * (factor ? __ldg(factor) : 1), add[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        add[i] = bias && feature + 8 * i < n ? __ldg(bias + feature + 8 * i) : 0;
#pragma unroll
    for (int i = 0; i < K::SUMS; i++) sums[i] = fmaf(sums[i], by, add[i / 2 % 2]);
}

template <class K>
INLINE void finish(const grouped_wgmma_args &a, const grouped_tile &tile,
                   float (&sums)[K::ROWS][K::SUMS], uint32_t shared, uint32_t out)
{
    const grouped_part &g = *tile.part;
    if (tile.first > 0) {
        leave_part<K>(a, g.width, sums);
        return;
    }
    if (tile.last < g.steps) add_parts<K>(a, g, sums, shared);
    int thread = threadIdx.x - GROUPED_WARPGROUP, wg = thread / GROUPED_WARPGROUP;
    int first = tile.feature + wg * K::WARPGROUP_ROWS;
    int feature = first + thread % GROUPED_WARPGROUP / WARP * 16 + thread % WARP / 4;
    if constexpr (K::MATRICES == 2) {
        scale_sums<K>(sums[0], g.factor, g.bias, feature, g.n);
        scale_sums<K>(sums[1], g.up_factor, g.up_bias, feature, g.n);
#pragma unroll
        for (int i = 0; i < K::SUMS; i++)
            sums[0][i] = swiglu_near(sums[0][i], sums[1][i], a.alpha, a.limit);
        store_halves<K>(a, tile, first, sums[0], out);
    } else {
#pragma unroll
        for (int t = 0; t < K::ROWS; t++) {
            scale_sums<K>(sums[t], g.factor, g.bias, feature + t * 64, g.n);
            store_halves<K>(a, tile, first + t * 64, sums[t], out);
        }
    }
}

template <class K> INLINE void multiply_all(const grouped_wgmma_args &a, wgmma_ring<K> ring)
{
    grouped_tiles<K> tiles(a);
    grouped_tile tile;
    uint32_t out =
        ring.base + K::OUT_AT + (threadIdx.x / GROUPED_WARPGROUP - 1) * GROUPED_OUT_BYTES;
    while (tiles.next(a, tile)) {
        float sums[K::ROWS][K::SUMS];
#pragma unroll
        for (int i = 0; i < K::ROWS * K::SUMS; i++) sums[i / K::SUMS][i % K::SUMS] = 0;
#define WIDTH(N)                                                                                   \
    case N:                                                                                        \
        multiply<K, N>(sums, tile, ring);                                                          \
        break;
        if constexpr (K::ROWS == 1) {
            switch (tile.part->width) {
                GROUPED_WIDTHS_1(WIDTH)
            }
        } else {
            switch (tile.part->width) {
                GROUPED_WIDTHS_2(WIDTH)
            }
        }
#undef WIDTH
        finish<K>(a, tile, sums, ring.base, out);
    }
}

template <class K> INLINE void grouped_wgmma(const grouped_wgmma_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    wgmma_ring<K> ring = {shared_address(shared), 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(ring.full(s), weight_threads(a) + 2);
            barrier_init(ring.empty(s), GROUPED_MULTIPLY_THREADS / WARP);
        }
        barrier_init(ring.base + K::SUMS_BARRIER_AT, 1);
        barrier_init_done();
    }
    uint32_t before = word_take(a.words);
    __syncthreads();
    if (threadIdx.x < GROUPED_WARPGROUP) {
        registers_give<48>();
        if (threadIdx.x == WARP)
            copy_tokens<K>(a, ring, before);
        else if (threadIdx.x / WARP != 1 &&
                 threadIdx.x < (scales_copied(a) ? WARP : GROUPED_WARPGROUP))
            copy_weights<K>(a, ring);
    } else {
        registers_take<224>();
        decode_share(a, ring.base + K::OUT_AT);
        sync_multiplying();
        if (threadIdx.x == GROUPED_WARPGROUP) grid_arrive(a.words);
        multiply_all<K>(a, ring);
    }
}

#endif
#endif
