/* Grouped products of block-scaled operands on Hopper's tensor cores. A number of e2m1 times its
 * scale of e4m3 has at most six significant bits, so a half holds it exactly: both operands are
 * decoded to halves, and the tensor cores add in float32.
 *
 * Weights (b) are the operand of 64 rows, activations (a) the other one, any multiple of 8 tokens.
 * A block has a warpgroup that copies both into shared memory, and two that decode weights into
 * their own registers and multiply, 64 or 128 features each. Activations are decoded once, by all
 * blocks, before all else. Which column of a step is which column of a product is free as long as
 * both sides agree: lane t of a row's four takes 32 columns of a step from 32 t on, 16 bytes of
 * codes, which are two blocks. Who decodes activations does the same, and matrices of 8 x 8 leave
 * as the lanes have them.
 *
 * The work, tiles by steps of 128 columns, is cut into as many equal parts as there are blocks.
 * Where a cut falls within a tile, the block that has its beginning adds what the others leave in
 * memory. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_WGMMA_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_WGMMA_CUH

#include "grouped_gemm/grouped_decode.cuh"
#include "wgmma_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the warpgroup that copies ---- */

/* A thread's share of the weights: 16 bytes of every 32nd row, and for each 128 rows the scales of
 * one, or 16 bytes of the atoms. In shared memory scales lie as in atoms. */
template <class K> struct weight_stream {
    enum { EACH = GROUPED_WARPGROUP / 4, PIECES = K::FEATURES / EACH };
    const uint8_t *codes, *scales[K::ROWS];
    int columns, pitch, rows; /* columns left; rows of the tile that there are, less one */

    INLINE void begin(const grouped_wgmma_args &a, const grouped_tile &tile)
    {
        const grouped_part &g = *tile.part;
        int thread = threadIdx.x;
        columns = g.k - tile.first * GROUPED_STEP;
        pitch = g.k / 2;
        rows = g.n - 1 - tile.feature;
        codes =
            g.b + (int64_t)tile.feature * pitch + tile.first * (GROUPED_STEP / 2) + thread % 4 * 16;
#pragma unroll
        for (int i = 0; i < K::ROWS; i++) {
            int row = min(ATOM_ROWS * i + (in_atoms(a) ? 0 : thread),
                          in_atoms(a) ? rows / ATOM_ROWS * ATOM_ROWS : rows);
            scales[i] = g.b_scales + scales_at(a, g.k, tile.feature + row) +
                        (int64_t)(2 * tile.first) * scale_step(a) + (in_atoms(a) ? thread * 16 : 0);
        }
    }

    INLINE void copy(const grouped_wgmma_args &a, uint32_t to)
    {
        int thread = threadIdx.x;
        bool valid = thread % 4 * 32 < columns, second = columns > 64;
        if (rows >= K::FEATURES - 1) {
            const uint8_t *from = codes + (valid ? thread / 4 * pitch : 0);
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                copy_16(to + K::CODES_AT + (thread + GROUPED_WARPGROUP * i) * 16, from, valid);
                from += valid ? EACH * pitch : 0;
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < PIECES; i++)
                copy_16(to + K::CODES_AT + (thread + GROUPED_WARPGROUP * i) * 16,
                        codes + (valid ? min(thread / 4 + EACH * i, rows) * pitch : 0), valid);
        }
#pragma unroll
        for (int i = 0; i < K::ROWS; i++) {
            uint32_t at = to + K::SCALES_AT + i * GROUPED_SCALES_BYTES;
            if (in_atoms(a)) {
                if (thread < (second ? 64 : 32)) copy_16(at + thread * 16, scales[i]);
            } else {
                copy_4(at + thread % 32 * 16 + thread / 32 * 4, scales[i], true);
                copy_4(at + ATOM_BYTES + thread % 32 * 16 + thread / 32 * 4,
                       scales[i] + (second ? 4 : 0), second);
            }
            scales[i] += 2 * scale_step(a);
        }
        codes += GROUPED_STEP / 2;
        columns -= GROUPED_STEP;
    }
};

/* Decoded activations, by a thread, a step behind the other; not before all blocks have decoded
 * theirs. */
template <class K> struct token_stream {
    grouped_tiles<K> tiles;
    wgmma_ring<K> ring;
    const uint8_t *from;
    uint32_t bytes, next; /* of 64 columns of the tile; from there to the next 64 */
    int left, behind;     /* steps left of the tile; steps whose weights are on their way already */
    uint32_t before;
    bool ready;

    INLINE token_stream(const grouped_wgmma_args &a, const wgmma_ring<K> &r, uint32_t word)
        : tiles(a), ring(r), left(0), behind(0), before(word), ready(false)
    {
    }

    INLINE void copy(const grouped_wgmma_args &a, bool last)
    {
        behind++;
        if (!ready && behind < K::STAGES && !last) return;
        if (!ready) grid_wait(a.words, before);
        ready = true;
        for (; behind; behind--) {
            grouped_tile tile;
            if (!left && tiles.next(a, tile)) {
                const grouped_part &g = *tile.part;
                bytes = GROUPED_HALF_BYTES(g.width);
                next = g.eights * GROUPED_KILO;
                from = a.decoded + ((int64_t)g.at + tile.token / 8) * GROUPED_KILO +
                       (int64_t)(2 * tile.first) * next;
                left = tile.last - tile.first;
            }
            uint32_t full = ring.full(ring.stage), to = ring.at();
            barrier_expect(full, 2 * bytes);
            copy_in(to, from, bytes, full);
            copy_in(to + K::HALF_BYTES, from + next, bytes, full);
            from += 2 * (int64_t)next;
            left--;
            ring.step();
        }
    }
};

template <class K>
INLINE void copy_all(const grouped_wgmma_args &a, wgmma_ring<K> ring, uint32_t before)
{
    grouped_tiles<K> tiles(a);
    grouped_tile tile;
    weight_stream<K> weights;
    token_stream<K> tokens(a, ring, before);
    while (tiles.next(a, tile)) {
        weights.begin(a, tile);
        for (int s = tile.first; s < tile.last; s++) {
            barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
            weights.copy(a, ring.at());
            barrier_arrive_copied(ring.full(ring.stage));
            if (threadIdx.x == 0) tokens.copy(a, s + 1 == tile.last && tiles.at >= tiles.end);
            ring.step();
        }
    }
    copy_commit();
    copy_wait<0>();
}

/* ---- the warpgroups that multiply ---- */

/* What a lane has of 64 columns: two words, and their block's scale twice, of rows g and g + 8 of a
 * warp's 16. */
struct weight_words {
    uint2 row[2];
    uint32_t scale[2];
};

/* Where a lane's codes and scales are in a stage: of row g of its warp's first 16. */
template <class K> struct weight_place {
    uint32_t codes, scales;

    INLINE weight_place()
    {
        uint32_t thread = threadIdx.x - GROUPED_WARPGROUP, t = thread % 4;
        uint32_t row = thread / GROUPED_WARPGROUP * 64 * K::ROWS +
                       thread % GROUPED_WARPGROUP / WARP * 16 + thread % WARP / 4;
        codes = K::CODES_AT + row * (GROUPED_STEP / 2) + t * 16;
        scales = K::SCALES_AT + row / ATOM_ROWS * GROUPED_SCALES_BYTES + t / 2 * ATOM_BYTES +
                 row % 32 * 16 + row % ATOM_ROWS / 32 * 4 + t % 2 * 2;
    }
};

/* A row's share of 64 columns. */
template <int CODES, int SCALES>
INLINE void load_row(uint2 &row, uint32_t &scale, uint32_t codes, uint32_t scales, bool valid)
{
    row = load_shared_8_at<CODES>(codes);
    uint16_t byte = load_shared_1_at<SCALES>(scales);
    if (!valid) row = uint2{0, 0}, byte = 0;
    scale = twice(decode_scales(byte), 0);
}

/* 64 columns; nothing where the lane's are behind the last one. `codes`, `scales`: a lane's place
 * of them. */
template <int TILE>
INLINE void load_weights(weight_words &w, uint32_t codes, uint32_t scales, bool valid)
{
    enum { ROW_CODES = 8 * 64, ROW_SCALES = 8 * 16, CODES = TILE * 64 * 64, SCALES = TILE * 8 };
    load_row<CODES, SCALES>(w.row[0], w.scale[0], codes, scales, valid);
    load_row<CODES + ROW_CODES, SCALES + ROW_SCALES>(w.row[1], w.scale[1], codes, scales, valid);
}

/* Fragments of 32 columns. */
INLINE void decode_weights(uint32_t (&f)[2][4], uint32_t low, uint32_t high,
                           const uint32_t (&scale)[2])
{
    uint32_t part[2][4];
    decode_word(part[0], low, scale[0]);
    decode_word(part[1], high, scale[1]);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) f[s][i] = part[i % 2][2 * s + i / 2];
}

template <class K, int N>
INLINE void multiply_32(float *sums, const uint32_t (&f)[2][4], uint32_t x, int word)
{
    wgmma_fence();
    wgmma_f16<N>::registers(sums, f[0], wgmma_operand(x, word * 32));
    wgmma_f16<N>::registers(sums, f[1], wgmma_operand(x, word * 32 + 16));
    wgmma_commit();
}

/* 64 columns. While products run, the next fragments are decoded; `last`: a stage that is given
 * back once its products are done, or -1. */
template <class K, int N>
INLINE void multiply_64(float (&sums)[K::ROWS][K::SUMS], const wgmma_ring<K> &ring,
                        const weight_place<K> &place, int half, int last, bool valid)
{
    weight_words w[K::ROWS];
    uint32_t f[2][2][4], x = ring.at() + half * K::HALF_BYTES;
    uint32_t codes = ring.at() + place.codes + half * 8, scales = ring.at() + place.scales + half;
    load_weights<0>(w[0], codes, scales, valid);
    if constexpr (K::ROWS == 2) load_weights<1>(w[1], codes, scales, valid);
#pragma unroll
    for (int i = 0; i < 2 * K::ROWS; i++) {
        int tile = i % K::ROWS, word = i / K::ROWS;
        const weight_words &v = w[tile];
        decode_weights(f[i % 2], word ? v.row[0].y : v.row[0].x, word ? v.row[1].y : v.row[1].x,
                       v.scale);
        multiply_32<K, N>(sums[tile], f[i % 2], x, word);
        wgmma_wait<1>();
        if (i == 0 && last >= 0) ring.release(last);
    }
}

template <class K, int N>
INLINE void multiply(float (&sums)[K::ROWS][K::SUMS], const grouped_tile &tile, wgmma_ring<K> &ring)
{
    weight_place<K> place;
    int last = -1, lane = threadIdx.x % WARP, k = tile.part->k;
#pragma unroll 1
    for (int s = 2 * tile.first; s < 2 * tile.last; s++) {
        int half = s % 2;
        if (half == 0) barrier_wait(ring.full(ring.stage), ring.phase);
        multiply_64<K, N>(sums, ring, place, half, half ? -1 : last,
                          s / 2 * GROUPED_STEP + lane % 4 * 32 < k);
        if (half == 0) continue;
        last = ring.stage;
        ring.step();
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

/* Adds what the blocks behind this one have of its last tile, whose cost ends at `end`. Nobody
 * needs the stages any more: they come there. */
template <class K>
INLINE void add_parts(const grouped_wgmma_args &a, int width, uint32_t end,
                      float (&sums)[K::ROWS][K::SUMS], uint32_t shared)
{
    enum { EACH = GROUPED_MULTIPLY_THREADS * 16, ROW = K::TOKENS / 8 * EACH };
    int thread = threadIdx.x - GROUPED_WARPGROUP;
    uint32_t stop = grouped_begin(a, blockIdx.x + 1), barrier = shared + K::SUMS_BARRIER_AT,
             phase = 0;
    for (uint32_t b = blockIdx.x + 1; stop < end; b++) {
        uint32_t begin = stop;
        stop = grouped_begin(a, b + 1);
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

INLINE uint32_t to_half2(int type, float x, float y)
{
    return type == DTYPE_F16 ? f32_to_f16x2(x, y) : f32_to_bf16x2(x, y);
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
                *(uint4 *)(c + (int64_t)row * g.n + p * 8) =
                    load_shared_16(out + row * GROUPED_ROW_BYTES + (p ^ row % 8) * 16);
        }
    }
}

template <class K>
INLINE void finish(const grouped_wgmma_args &a, const grouped_tile &tile, uint32_t end,
                   float (&sums)[K::ROWS][K::SUMS], uint32_t shared, uint32_t out)
{
    const grouped_part &g = *tile.part;
    if (tile.first > 0) {
        leave_part<K>(a, g.width, sums);
        return;
    }
    if (tile.last < tile.end) add_parts<K>(a, g.width, end, sums, shared);
    float factor = 0x1p28f * (g.factor ? __ldg(g.factor) : 1);
    int thread = threadIdx.x - GROUPED_WARPGROUP, wg = thread / GROUPED_WARPGROUP;
    int row = thread % GROUPED_WARPGROUP / WARP * 16 + thread % WARP / 4;
#pragma unroll
    for (int t = 0; t < K::ROWS; t++) {
        int first = tile.feature + (wg * K::ROWS + t) * 64;
        float bias[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            bias[i] = g.bias && first + row + 8 * i < g.n ? __ldg(g.bias + first + row + 8 * i) : 0;
#pragma unroll
        for (int i = 0; i < K::SUMS; i++) sums[t][i] = fmaf(sums[t][i], factor, bias[i / 2 % 2]);
        store_halves<K>(a, tile, first, sums[t], out);
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
        uint32_t end = tiles.at + (uint32_t)(tile.end - tile.last) * step_cost(*tile.part);
        finish<K>(a, tile, end, sums, ring.base, out);
    }
}

template <class K> INLINE void grouped_wgmma(const grouped_wgmma_args &a)
{
    extern __shared__ __align__(1024) char shared[];
    wgmma_ring<K> ring = {shared_address(shared), 0, 0};
    if (threadIdx.x == 0) {
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(ring.full(s), GROUPED_WARPGROUP + 1);
            barrier_init(ring.empty(s), GROUPED_MULTIPLY_THREADS / WARP);
        }
        barrier_init(ring.base + K::SUMS_BARRIER_AT, 1);
        barrier_init_done();
    }
    uint32_t before = word_take(a.words);
    __syncthreads();
    if (threadIdx.x < GROUPED_WARPGROUP) {
        registers_give<56>();
        copy_all<K>(a, ring, before);
    } else {
        registers_take<216>();
        decode_share(a, ring.base + K::OUT_AT);
        sync_multiplying();
        if (threadIdx.x == GROUPED_WARPGROUP) grid_arrive(a.words);
        multiply_all<K>(a, ring);
    }
}

#endif
#endif
