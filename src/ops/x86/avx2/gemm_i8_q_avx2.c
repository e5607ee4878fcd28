/* gemm with int8 activations and MXFP4 or Q8_0 weights, on AVX2.
 *
 * Phase 1 quantises the rows of A, per 32 values, into tiles of up to TILE_ROWS rows. Phase 2
 * multiplies: a panel is 8 weight rows, a 32-bit lane belongs to one of them and takes 4 steps of k
 * at once. vpmaddubsw has one unsigned side and saturates at 16 bits:
 *  - MXFP4: e2m1 doubled + 12 is 0..24, and a pair of products at most 6096. The 16 products that
 *    meet in a 16-bit lane over a block are, without the offset, at most 16 * 12 * 127 = 24384: so
 *    a block is summed in 16 bits, modulo 2^16, from -12 * sum(activations) on, and is exact.
 *  - Q8_0: |w| times the activation with w's sign. A pair is at most 2 * 128 * 127 = 32512 (w =
 * -128 included) and is widened at once. Then c += sum * (scale of weights * scale of activations)
 * in float32.
 *
 * The weights stay in their file layout.
 *  - *alone*, for a single row of A: two weight rows share a vector as they lie, and the sums of
 *    eight are transposed. That takes fewer shuffles than transposing weights does.
 * For more rows a block of 8 weight rows is transposed on the way, and then
 *  - *direct*, for blocks of few rows of A (DIRECT_MXFP4, DIRECT_Q8_0): goes from registers into
 * the product, while the next panel is prefetched;
 *  - *tiled*: two panels times CHUNK blocks of k are unpacked into an L1 buffer, and all tiles of A
 *    run over it. Their float32 sums rest in L2 between chunks. */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/gemm_jobs.h"
#include "ops/op.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 8,
    BLOCK = 32, /* values that share a scale */
    /* Times two panels: 8 block sums, 2 weights, activation and product are 12 of 16 registers. */
    TILE_ROWS = 4,
    /* Zen 3, n 256, k 2880, one core, 6 rows: MXFP4 81 us direct, 68 tiled; Q8_0 107, 145. */
    DIRECT_MXFP4 = 4,
    DIRECT_Q8_0 = 6,
    DIRECT_ROWS = 6, /* the most of both */
    BLOCK_ROWS = 96, /* 96 x 2880 activations with scales are 345 KB; L2 of Zen 2 and 3: 512 KB */
    CHUNK = 30,      /* 2 panels x 30 blocks are 17 KB of the 32 KB L1; 90 = 3 x 30 */
    STAGED = BLOCK * LANES + LANES * 4, /* bytes of an unpacked block of a panel: values, scales */
    ROW_BYTES = BLOCK + 4 + 4,          /* a packed activation block: values, scale, correction */
};

struct worker {
    _Alignas(64) uint8_t staged[CHUNK * 2 * STAGED];
    _Alignas(64) float sums[BLOCK_ROWS * 2 * LANES];
};

/* A tile of packed activations: [k blocks][rows][32] values, then [k blocks][rows] scales and the
 * same of corrections, each a pair of 16 bits for the two sums in a lane. */
struct tile {
    int8_t *q;
    float *scale;
    int16_t (*correction)[2];
};

struct product {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    uint8_t
        *packed; /* row i of C begins at i * ROW_BYTES * k_blocks, a tile where its first does */
    struct worker *workers;
    int64_t k_blocks, direct; /* direct: rows of A that a product takes without tiles */
};

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

static size_t packed_bytes(const struct gemm_args *a)
{
    return align64((size_t)a->m * (size_t)(a->k / BLOCK) * ROW_BYTES);
}

static size_t workspace(const void *args, int workers)
{
    return blocks_bytes(args) + packed_bytes(args) + (size_t)workers * sizeof(struct worker);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    const struct gemm_args *a = args;
    if (a->w.dtype == DTYPE_MXFP4 || a->w.dtype == DTYPE_Q8_0) return true;
    snprintf(why, OP_REASON_MAX, "weights are %s, this variant reads mxfp4 and q8_0",
             dtype_info(a->w.dtype)->name);
    return false;
}

static struct tile tile_at(const struct product *p, int64_t row, int64_t rows)
{
    uint8_t *base = p->packed + row * p->k_blocks * ROW_BYTES;
    return (struct tile){(int8_t *)base, (float *)(base + rows * p->k_blocks * BLOCK),
                         (int16_t(*)[2])(base + rows * p->k_blocks * (BLOCK + 4))};
}

/* Its rows are one tile, and weights go from registers into the product. */
static bool is_direct(const struct product *p, const struct gemm_block *b)
{
    return b->rows <= p->direct;
}

/* ---- phase 1 ---- */

/* The largest magnitude of 32 floats as bits; as integers they order like the floats, with Inf and
 * NaN on top. */
static uint32_t largest_bits(const __m256 x[4])
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* q = round(x / scale), |q| <= 127; pair[i] = sum of the q that meet in 16-bit half i of a lane. A
 * block that holds NaN or Inf gets scale NaN and q 0: every product with it becomes NaN. */
static void quantise(const float *x, int8_t *q, float *scale, int pair[2])
{
    __m256 v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
    uint32_t bits = largest_bits(v);
    pair[0] = pair[1] = 0;
    if (bits >= 0x7f800000u || bits == 0) {
        *scale = bits ? __builtin_nanf("") : 0;
        memset(q, 0, BLOCK);
        return;
    }
    float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
    float up = max < 0x1p-100f ? 0x1p100f : 1; /* keeps 127 / max finite */
    *scale = max / 127.0f;
    __m256 factor = _mm256_set1_ps(127.0f / (max * up)), raise = _mm256_set1_ps(up);
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_mul_ps(v[i], raise), factor));
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    /* Packing works within halves: dwords come as 0 2 4 6 | 1 3 5 7. */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
    __m256i two = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes); /* sums of pairs */
    __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
    pair[0] = (int16_t)_mm_extract_epi16(sum, 0);
    pair[1] = (int16_t)_mm_extract_epi16(sum, 1);
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct product *p = arg;
    const struct gemm_args *a = p->args;
    const bool mxfp4 = a->w.dtype == DTYPE_MXFP4;
    for (int64_t i = begin; i < end; i++) {
        const struct gemm_block *b = gemm_block_of_row(&p->jobs, i);
        const int64_t max = is_direct(p, b) ? p->direct : TILE_ROWS;
        int64_t first, index = gemm_tile_of_row(b->rows, max, i - b->row);
        int64_t rows = gemm_tile_rows(b->rows, max, index, &first);
        struct tile t = tile_at(p, b->row + first, rows);
        int64_t r = i - b->row - first;
        const float *x = matrix_floats(&a->a) + (a->a_rows ? a->a_rows[i] : i) * a->k;
        for (int64_t k = 0; k < p->k_blocks; k++) {
            int64_t at = k * rows + r;
            int pair[2];
            quantise(x + k * BLOCK, t.q + at * BLOCK, &t.scale[at], pair);
            if (mxfp4) t.scale[at] *= 0.5f; /* weights are doubled */
            for (int h = 0; h < 2; h++) t.correction[at][h] = (int16_t)(mxfp4 ? -12 * pair[h] : 0);
        }
    }
}

/* ---- weights ---- */

INLINE int64_t block_bytes(bool mxfp4)
{
    return mxfp4 ? (int64_t)sizeof(struct block_mxfp4) : (int64_t)sizeof(struct block_q8_0);
}

/* Rows 0..3 and 4..7 of a panel. */
struct cursor {
    const uint8_t *low, *high;
    int64_t stride, stride3;
};

INLINE struct cursor cursor_at(const struct gemm_panel *panel, int64_t offset)
{
    const uint8_t *w = panel->w + offset;
    return (struct cursor){w, w + 4 * panel->stride, panel->stride, 3 * panel->stride};
}

/* The compiler may not know the pointers as sums: it would keep eight, most of them on the stack.
 */
INLINE void advance(struct cursor *c, int64_t bytes)
{
    c->low += bytes;
    c->high += bytes;
    __asm__("" : "+r"(c->low), "+r"(c->high), "+r"(c->stride), "+r"(c->stride3));
}

INLINE const uint8_t *row_at(const struct cursor *c, int row)
{
    return (row < 4 ? c->low : c->high) + (row % 4 == 3 ? c->stride3 : row % 4 * c->stride);
}

/* 16 bytes of row i, and of row i + 4. */
INLINE __m256i two_rows(const struct cursor *c, int i, int64_t at)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(row_at(c, i) + at));
    __m128i high = _mm_loadu_si128((const __m128i *)(row_at(c, i + 4) + at));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* out[i], lane r = bytes at + 4i .. at + 4i+3 of row r. */
INLINE void load_8x16(const struct cursor *c, int64_t at, __m256i out[4])
{
    __m256i r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) r[i] = two_rows(c, i, at);
    __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
    __m256i d = _mm256_unpackhi_epi32(r[0], r[1]), e = _mm256_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm256_unpacklo_epi64(a, b);
    out[1] = _mm256_unpackhi_epi64(a, b);
    out[2] = _mm256_unpacklo_epi64(d, e);
    out[3] = _mm256_unpackhi_epi64(d, e);
}

/* Collected in scalar registers: their pipes have nothing else to do. */
INLINE __m256 load_scales(const struct cursor *c, bool mxfp4)
{
    uint64_t bits[2] = {0, 0};
#pragma GCC unroll 8
    for (int r = 0; r < LANES; r++) {
        uint16_t scale = *row_at(c, r);
        if (!mxfp4) memcpy(&scale, row_at(c, r), 2);
        if (mxfp4)
            bits[0] |= (uint64_t)scale << (8 * r);
        else
            bits[r / 4] |= (uint64_t)scale << (16 * (r % 4));
    }
    __m128i packed = _mm_set_epi64x((int64_t)bits[1], (int64_t)bits[0]);
    if (!mxfp4) return _mm256_cvtph_ps(packed);
    /* 2^(e-127): the exponent in place; 0 becomes the subnormal 2^-127, 255 means NaN. */
    const __m256i quiet = _mm256_set1_epi32(0x400000);
    __m256i e = _mm256_cvtepu8_epi32(packed);
    __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)), quiet);
    __m256i scale = _mm256_max_epu32(_mm256_slli_epi32(e, 23), quiet);
    return _mm256_castsi256_ps(_mm256_or_si256(scale, nan));
}

/* The values of bytes' low nibbles, and of their high ones: e2m1 doubled + 12. */
INLINE void unpack_e2m1(__m256i bytes, __m256i *low, __m256i *high)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i mask = _mm256_set1_epi8(15);
    *low = _mm256_shuffle_epi8(table, _mm256_and_si256(bytes, mask));
    *high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask));
}

/* One block of 8 rows: out[i], lane r = the values 4i .. 4i+3 of row r. */
INLINE void unpack_block(const struct cursor *c, bool mxfp4, __m256i out[8])
{
    if (!mxfp4) {
        load_8x16(c, 2, out);
        load_8x16(c, 18, out + 4);
        return;
    }
    __m256i n[4];
    load_8x16(c, 1, n);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) unpack_e2m1(n[i], &out[i], &out[i + 4]);
}

/* `bytes` at `w` into L2: what the next panel will need. */
INLINE void prefetch(const uint8_t *w, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(w + i), _MM_HINT_T1);
}

/* ---- the product of a block ---- */

INLINE __m256i begin_sum(const int16_t correction[2], bool mxfp4)
{
    int32_t both;
    memcpy(&both, correction, 4);
    return mxfp4 ? _mm256_set1_epi32(both) : _mm256_setzero_si256();
}

INLINE __m256i add_products(__m256i sum, __m256i w, const int8_t *q, bool mxfp4)
{
    int32_t four;
    memcpy(&four, q, 4);
    __m256i x = _mm256_set1_epi32(four);
    if (mxfp4) {
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    } else {
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    /* Opaque, or gcc 12 adds products to each other first, and has no registers for so many. */
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE __m256 end_sum(__m256 total, __m256i sum, __m256 w_scale, float scale, bool mxfp4)
{
    if (mxfp4) sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(w_scale, _mm256_set1_ps(scale)),
                           total);
}

static void store_sums(const struct gemm_panel *p, int64_t group, int64_t row, __m256 sum)
{
    const struct gemm_args *a = p->args;
    float *c = matrix_floats(&a->c) + row * a->n + p->feature;
    const float *bias = a->bias ? a->bias + group * a->n + p->feature : NULL;
    if (p->mask == (1u << LANES) - 1) {
        _mm256_storeu_ps(c, bias ? _mm256_add_ps(sum, _mm256_loadu_ps(bias)) : sum);
        return;
    }
    float lanes[LANES];
    _mm256_storeu_ps(lanes, sum);
    for (int i = 0; i < LANES; i++)
        if (p->mask >> i & 1) c[i] = lanes[i] + (bias ? bias[i] : 0);
}

/* ---- alone ---- */

/* Two weight rows' sums, in four lanes each: of two times 16 bits, or for Q8_0 of 32. low: the
 * first 16 activations in both halves, high: the others. */
INLINE __m256i two_dots(const struct cursor *c, int i, __m256i low, __m256i high, bool mxfp4)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a, b;
    if (mxfp4) {
        unpack_e2m1(two_rows(c, i, 1), &a, &b);
        return _mm256_add_epi16(_mm256_maddubs_epi16(a, low), _mm256_maddubs_epi16(b, high));
    }
    a = two_rows(c, i, 2);
    b = two_rows(c, i, 18);
    a = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(low, a));
    b = _mm256_maddubs_epi16(_mm256_abs_epi8(b), _mm256_sign_epi8(high, b));
    return _mm256_add_epi32(_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones));
}

INLINE __m256i add_sums(__m256i a, __m256i b, bool mxfp4)
{
    return mxfp4 ? _mm256_add_epi16(a, b) : _mm256_add_epi32(a, b);
}

/* Sums of rows 0 and 4, 1 and 5, 2 and 6, 3 and 7: a lane of each row. */
INLINE __m256i turn_sums(const __m256i s[4], bool mxfp4)
{
    __m256i a =
        add_sums(_mm256_unpacklo_epi32(s[0], s[1]), _mm256_unpackhi_epi32(s[0], s[1]), mxfp4);
    __m256i b =
        add_sums(_mm256_unpacklo_epi32(s[2], s[3]), _mm256_unpackhi_epi32(s[2], s[3]), mxfp4);
    return add_sums(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), mxfp4);
}

/* One panel times one row of activations. */
INLINE void alone_panel(const struct product *p, const struct gemm_block *b,
                        const struct gemm_panel *panel, bool mxfp4)
{
    const struct tile t = tile_at(p, b->row, 1);
    const int64_t bytes = block_bytes(mxfp4);
    const uint8_t *ahead = panel->w + LANES * panel->stride;
    struct cursor c = cursor_at(panel, 0);
    __m256 total = _mm256_setzero_ps();
    for (int64_t k = 0; k < p->k_blocks; k++) {
        const __m128i *q = (const __m128i *)(t.q + k * BLOCK);
        __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128(q));
        __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128(q + 1));
        __m256i dots[4], sum = begin_sum(t.correction[k], mxfp4);
        prefetch(ahead + k * LANES * bytes, LANES * bytes);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) dots[i] = two_dots(&c, i, low, high, mxfp4);
        __m256 w_scale = load_scales(&c, mxfp4);
        advance(&c, bytes);
        sum = add_sums(sum, turn_sums(dots, mxfp4), mxfp4);
        total = end_sum(total, sum, w_scale, t.scale[k], mxfp4);
    }
    store_sums(panel, b->group, b->row, total);
}

/* ---- direct ---- */

/* One panel times a tile of `rows` activations. */
INLINE void direct_panel(const struct product *p, const struct gemm_block *b,
                         const struct gemm_panel *panel, int rows, bool mxfp4)
{
    const struct tile t = tile_at(p, b->row, rows);
    const int64_t bytes = block_bytes(mxfp4);
    const uint8_t *ahead = panel->w + LANES * panel->stride;
    struct cursor c = cursor_at(panel, 0);
    __m256 total[DIRECT_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) total[r] = _mm256_setzero_ps();
    for (int64_t k = 0; k < p->k_blocks; k++) {
        __m256i w[8];
        prefetch(ahead + k * LANES * bytes, LANES * bytes);
        unpack_block(&c, mxfp4, w);
        __m256 w_scale = load_scales(&c, mxfp4);
        advance(&c, bytes);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int64_t at = k * rows + r;
            __m256i sum = begin_sum(t.correction[at], mxfp4);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                sum = add_products(sum, w[i], t.q + at * BLOCK + 4 * i, mxfp4);
            total[r] = end_sum(total[r], sum, w_scale, t.scale[at], mxfp4);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) store_sums(panel, b->group, b->row + r, total[r]);
}

INLINE void direct_rows(const struct product *p, const struct gemm_block *b,
                        const struct gemm_panel *panel, bool mxfp4)
{
    switch (b->rows) {
    case 1:
        alone_panel(p, b, panel, mxfp4);
        break;
    case 2:
        direct_panel(p, b, panel, 2, mxfp4);
        break;
    case 3:
        direct_panel(p, b, panel, 3, mxfp4);
        break;
    case 4:
        direct_panel(p, b, panel, 4, mxfp4);
        break;
    case 5:
        direct_panel(p, b, panel, 5, mxfp4);
        break;
    default:
        direct_panel(p, b, panel, 6, mxfp4);
        break;
    }
}

/* ---- tiled ---- */

/* Unpacks n blocks from block k0 on: [k][2 panels]{8 x [8 rows][4] values, 8 scales}, starting at
 * this panel's part. */
INLINE void stage(const struct gemm_panel *panel, int64_t k0, int64_t n, bool mxfp4,
                  uint8_t *staged)
{
    const int64_t bytes = block_bytes(mxfp4);
    const uint8_t *ahead = panel->w + 2 * LANES * panel->stride + k0 * LANES * bytes;
    struct cursor c = cursor_at(panel, k0 * bytes);
    for (int64_t k = 0; k < n; k++, staged += 2 * STAGED) {
        __m256i w[8];
        prefetch(ahead + k * LANES * bytes, LANES * bytes);
        unpack_block(&c, mxfp4, w);
        _mm256_store_ps((float *)(staged + BLOCK * LANES), load_scales(&c, mxfp4));
        advance(&c, bytes);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) _mm256_store_si256((__m256i *)(staged + i * 32), w[i]);
    }
}

/* The sums over a block of `rows` activations times two staged panels. */
INLINE void sum_block(struct tile t, const uint8_t *staged, int rows, bool mxfp4,
                      __m256i sum[TILE_ROWS][2])
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = begin_sum(t.correction[r], mxfp4);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m256i *w = (const __m256i *)(staged + i * 32);
        __m256i w0 = _mm256_load_si256(w), w1 = _mm256_load_si256(w + STAGED / sizeof *w);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const int8_t *q = t.q + r * BLOCK + 4 * i;
            sum[r][0] = add_products(sum[r][0], w0, q, mxfp4);
            sum[r][1] = add_products(sum[r][1], w1, q, mxfp4);
        }
    }
}

/* The same over n blocks; sums is [rows][2][LANES]. */
INLINE void multiply_tile(struct tile t, const uint8_t *staged, int64_t n, int rows, bool mxfp4,
                          float *sums)
{
    __m256 total[TILE_ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * rows; i++) total[i / 2][i % 2] = _mm256_load_ps(sums + i * LANES);
    for (int64_t k = 0; k < n; k++, staged += 2 * STAGED) {
        __m256i sum[TILE_ROWS][2];
        sum_block(t, staged, rows, mxfp4, sum);
        __m256 s0 = _mm256_load_ps((const float *)(staged + BLOCK * LANES));
        __m256 s1 = _mm256_load_ps((const float *)(staged + STAGED + BLOCK * LANES));
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            total[r][0] = end_sum(total[r][0], sum[r][0], s0, t.scale[r], mxfp4);
            total[r][1] = end_sum(total[r][1], sum[r][1], s1, t.scale[r], mxfp4);
        }
        t.q += rows * BLOCK;
        t.scale += rows;
        t.correction += rows;
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * rows; i++) _mm256_store_ps(sums + i * LANES, total[i / 2][i % 2]);
}

INLINE void multiply_rows(struct tile t, const uint8_t *staged, int64_t n, int64_t rows, bool mxfp4,
                          float *sums)
{
    switch (rows) {
    case 1:
        multiply_tile(t, staged, n, 1, mxfp4, sums);
        break;
    case 2:
        multiply_tile(t, staged, n, 2, mxfp4, sums);
        break;
    case 3:
        multiply_tile(t, staged, n, 3, mxfp4, sums);
        break;
    default:
        multiply_tile(t, staged, n, 4, mxfp4, sums);
        break;
    }
}

INLINE void tiled_pair(const struct product *p, const struct gemm_block *b,
                       const struct gemm_panel panels[2], bool mxfp4, struct worker *worker)
{
    int64_t n_tiles = gemm_div_up(b->rows, TILE_ROWS), n_chunks = gemm_div_up(p->k_blocks, CHUNK);
    memset(worker->sums, 0, (size_t)b->rows * 2 * LANES * sizeof(float));
    for (int64_t i = 0; i < n_chunks; i++) {
        int64_t k0, n = gemm_tile_rows(p->k_blocks, CHUNK, i, &k0);
        stage(&panels[0], k0, n, mxfp4, worker->staged);
        stage(&panels[1], k0, n, mxfp4, worker->staged + STAGED);
        for (int64_t j = 0; j < n_tiles; j++) {
            int64_t first, rows = gemm_tile_rows(b->rows, TILE_ROWS, j, &first);
            struct tile t = tile_at(p, b->row + first, rows);
            t.q += k0 * rows * BLOCK;
            t.scale += k0 * rows;
            t.correction += k0 * rows;
            multiply_rows(t, worker->staged, n, rows, mxfp4, worker->sums + first * 2 * LANES);
        }
    }
    for (int64_t i = 0; i < 2 * b->rows; i++)
        store_sums(&panels[i % 2], b->group, b->row + i / 2,
                   _mm256_load_ps(worker->sums + i * LANES));
}

/* ---- jobs ---- */

/* Two panels at a time; where one is left, the second is the same again, with nothing to store. */
INLINE void tiled_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                      int64_t end, bool mxfp4, struct worker *worker)
{
    for (int64_t i = begin; i < end; i += 2) {
        struct gemm_panel panels[2];
        for (int h = 0; h < 2; h++)
            panels[h] = gemm_panel_at(&p->jobs, b->group, gemm_min(i + h, end - 1), LANES);
        if (i + 1 == end) panels[1].mask = 0;
        tiled_pair(p, b, panels, mxfp4, worker);
    }
}

INLINE void direct_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                       int64_t end, bool mxfp4)
{
    for (int64_t i = begin; i < end; i++) {
        struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, LANES);
        direct_rows(p, b, &panel, mxfp4);
    }
}

INLINE void run_job(const struct product *p, const struct gemm_block *b, int64_t begin, int64_t end,
                    bool mxfp4, struct worker *worker)
{
    if (is_direct(p, b))
        direct_job(p, b, begin, end, mxfp4);
    else
        tiled_job(p, b, begin, end, mxfp4, worker);
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    for (int64_t j = begin; j < end; j++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, j);
        int64_t from = (j - b->first_job) * b->panels_per_job;
        int64_t to = gemm_min(from + b->panels_per_job, p->jobs.n_panels);
        if (p->args->w.dtype == DTYPE_MXFP4)
            run_job(p, b, from, to, true, &p->workers[worker]);
        else
            run_job(p, b, from, to, false, &p->workers[worker]);
    }
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    uint8_t *space = context->workspace;
    struct product p = {
        .args = a,
        .jobs.blocks = (struct gemm_block *)space,
        .packed = space + blocks_bytes(a),
        .workers = (struct worker *)(space + blocks_bytes(a) + packed_bytes(a)),
        .k_blocks = a->k / BLOCK,
        .direct = a->w.dtype == DTYPE_MXFP4 ? DIRECT_MXFP4 : DIRECT_Q8_0,
    };
    gemm_make_jobs(&p.jobs, context, a, LANES, BLOCK_ROWS, p.direct);
    pool_for(context->pool, p.jobs.n_rows, 8, pack_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply, &p);
}

const struct op_variant gemm_i8_q_avx2 = {
    .name = "gemm_i8_q_avx2",
    .summary = "int8 activations, mxfp4 or q8_0 weights; vpmaddubsw, weights unpacked tile by tile",
    .numerics = NUMERICS_I8,
    .needs = CPU_AVX2,
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
    .joins = gemm_joins,
};
