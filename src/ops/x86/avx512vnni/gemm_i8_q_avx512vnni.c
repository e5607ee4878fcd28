/* gemm with int8 activations and MXFP4 or Q8_0 weights, on AVX-512 VNNI.
 *
 * Phase 1 quantises the rows of A, per 32 values, into tiles of up to TILE_ROWS rows. Phase 2
 * multiplies: a vector's lane is a weight row, vpdpbusd takes 4 steps of k at once, weights
 * unsigned and activations signed. Weights become unsigned by an offset (e2m1 doubled + 12, q8_0 +
 * 128) that is taken back by starting each block's sum from -offset * sum(activations), a number of
 * phase 1. Sums over a block are exact; then c += sum * (scale of weights * scale of activations)
 * in float32.
 *
 * The weights stay in their file layout. A block of 16 rows is transposed on the way
 * (panel_load_16x16), and then
 *  - *alone*, for a single row of A: see gemv.h;
 *  - *direct*, for blocks of up to DIRECT_ROWS rows of A: goes from registers into the product.
 * Needs 60 vector operations per 16 weight blocks, so memory is the limit, and the panel after the
 * present one is prefetched;
 *  - *tiled*: two panels times CHUNK blocks of k are unpacked into an L1 buffer, and all tiles of A
 * run over it with 6 x 2 vectors of int32 and of float32 sums in registers. The float32 sums rest
 * in L2 between chunks. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/gemm_jobs.h"
#include "ops/op.h"
#include "ops/x86/avx512vnni/gemv.h"
#include "ops/x86/panel_avx512.h"
#include "ops/x86/quant_avx512.h"

enum {
    LANES = 16,
    BLOCK = 32, /* values that share a scale */
    TILE_ROWS =
        6, /* 6 rows x 2 panels: 12 int32 and 12 float32 sums, 3 operands, of 32 registers */
    /* What a tile holds. Unpacking twice would lose: Zen 4, n 46080, k 2880, one core, direct
     * against tiled for 6 rows: MXFP4 6.2 against 7.7 ms, Q8_0 (half the n) 3.4 against 6.0. */
    DIRECT_ROWS = 6,
    BLOCK_ROWS = 192, /* 192 x 2880 activations with scales are 690 KB of the 1 MB L2 of Zen 4 */
    CHUNK = 18,       /* 2 panels x 18 blocks are 20 KB of the 32 KB L1; 90 = 5 x 18 */
    AHEAD = 4,
    RING = 8, /* scales of direct products are gathered 4 blocks, some 120 cycles, ahead */
    SCALES = LANES * 2,                 /* bytes of the gathered scales of a block of 16 rows */
    STAGED = BLOCK * LANES + LANES * 4, /* bytes of an unpacked block of a panel: values, scales */
    ROW_BYTES = BLOCK + 4 + 4,          /* a packed activation block: values, scale, correction */
};

struct worker {
    _Alignas(64) uint8_t staged[CHUNK * 2 * STAGED];
    _Alignas(64) float sums[BLOCK_ROWS * 2 * LANES];
};

/* A tile of packed activations: [k blocks][rows][32] values, then [k blocks][rows] scales and the
 * same of corrections. */
struct tile {
    const int8_t *q;
    const float *scale;
    const int32_t *correction;
};

struct product {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    uint8_t *packed; /* row i of C begins at i * row_bytes, a tile where its first row does */
    struct worker *workers;
    int64_t k_blocks, row_bytes;
    float e8m0[256]; /* every scale byte as a number, for gemv.h */
    int32_t offset;
    float value_scale; /* of one step of the unpacked weights */
};

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

/* Room for a row of packed activations, in the wider of its two layouts. */
static size_t row_bytes(const struct gemm_args *a)
{
    int64_t k_blocks = a->k / BLOCK;
    size_t tiled = (size_t)k_blocks * ROW_BYTES;
    size_t lone = a->w.dtype == DTYPE_MXFP4
                      ? (size_t)gemv_mxfp4_steps(k_blocks) * sizeof(struct gemv_mxfp4_step)
                      : (size_t)k_blocks * sizeof(struct gemv_q8_0_step);
    return align64(lone > tiled ? lone : tiled);
}

static size_t packed_bytes(const struct gemm_args *a)
{
    return (size_t)a->m * row_bytes(a);
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
    const uint8_t *base = p->packed + row * p->row_bytes;
    return (struct tile){(const int8_t *)base, (const float *)(base + rows * p->k_blocks * BLOCK),
                         (const int32_t *)(base + rows * p->k_blocks * (BLOCK + 4))};
}

/* ---- phase 1 ---- */

/* A row that is alone in its group is packed and multiplied by gemv.h. */
static bool alone(const struct product *p, const struct gemm_block *b)
{
    return b->rows == 1 && p->args->n >= GEMV_ROWS_MAX;
}

/* Row `r` of the tile of `rows` rows that begins at row `first` of C. */
static void pack_into_tile(const struct product *p, int64_t first, int64_t rows, int64_t r,
                           const float *x)
{
    struct tile t = tile_at(p, first, rows);
    for (int64_t k = 0; k < p->k_blocks; k++) {
        int64_t at = k * rows + r;
        int32_t sum =
            quant_block_avx512(x + k * BLOCK, (int8_t *)t.q + at * BLOCK, (float *)t.scale + at);
        ((float *)t.scale)[at] *= p->value_scale;
        ((int32_t *)t.correction)[at] = -p->offset * sum;
    }
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct product *p = arg;
    const struct gemm_args *a = p->args;
    for (int64_t i = begin; i < end; i++) {
        const struct gemm_block *b = gemm_block_of_row(&p->jobs, i);
        const float *x = matrix_floats(&a->a) + (a->a_rows ? a->a_rows[i] : i) * a->k;
        if (alone(p, b)) {
            void *steps = p->packed + i * p->row_bytes;
            if (a->w.dtype == DTYPE_MXFP4)
                gemv_mxfp4_pack(x, p->k_blocks, steps);
            else
                gemv_q8_0_pack(x, p->k_blocks, steps);
            continue;
        }
        int64_t first, index = gemm_tile_of_row(b->rows, TILE_ROWS, i - b->row);
        int64_t rows = gemm_tile_rows(b->rows, TILE_ROWS, index, &first);
        pack_into_tile(p, b->row + first, rows, i - b->row - first, x);
    }
}

/* ---- weights ---- */

static inline __attribute__((always_inline)) int64_t block_bytes(bool mxfp4)
{
    return mxfp4 ? (int64_t)sizeof(struct block_mxfp4) : (int64_t)sizeof(struct block_q8_0);
}

/* Scales of a block of 16 rows as they lie, E8M0 bytes or fp16, collected into one place. Done some
 * blocks ahead of panel_scales(), so that the narrow stores have left the store buffer when they
 * are read as a vector. */
static inline __attribute__((always_inline)) void
gather_scales(const struct panel_cursor *c, int64_t at, bool mxfp4, uint8_t out[SCALES])
{
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) {
        uint16_t scale = *(panel_row(c, r) + at);
        if (!mxfp4) memcpy(&scale, panel_row(c, r) + at, 2);
        /* Opaque, or gcc 12 builds vectors from single bytes, at twice the cost. */
        __asm__ volatile("" : "+r"(scale) : : "memory");
        if (mxfp4)
            out[r] = (uint8_t)scale;
        else
            memcpy(out + 2 * r, &scale, 2);
    }
}

static inline __attribute__((always_inline)) __m512 panel_scales(const uint8_t gathered[SCALES],
                                                                 bool mxfp4)
{
    if (!mxfp4) return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)gathered));
    __m128i e = _mm_load_si128((const __m128i *)gathered), one = _mm_set1_epi8(1);
    /* 0 (subnormal) and 255 (NaN) are rare enough for a branch: it saves four operations of sixty.
     */
    if (__builtin_expect(_mm_cmple_epu8_mask(_mm_add_epi8(e, one), one), 0)) return panel_e8m0(e);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(e), 23));
}

/* One block of 16 rows: out[i], lane r = the offset values 4i .. 4i+3 of row r. */
static inline __attribute__((always_inline)) void unpack_block(const struct panel_cursor *c,
                                                               bool mxfp4, __m512i out[8])
{
    if (mxfp4) {
        /* vpermb takes 6 bits of each byte and the table repeats after 16: no masking of nibbles.
         */
        const __m512i table = _mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        __m512i n[4];
        panel_load_16x16(c, 1, n);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            out[i] = _mm512_permutexvar_epi8(n[i], table);
            out[i + 4] = _mm512_permutexvar_epi8(_mm512_srli_epi16(n[i], 4), table);
        }
    } else {
        panel_load_16x16(c, 2, out);
        panel_load_16x16(c, 18, out + 4);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) out[i] = _mm512_xor_si512(out[i], _mm512_set1_epi8(-128));
    }
}

/* What a whole panel of `rows` weight rows will need next: `bytes` at `w`, into L2. */
static inline __attribute__((always_inline)) void prefetch(const uint8_t *w, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)(w + i), _MM_HINT_T1);
}

/* ---- direct ---- */

static inline __attribute__((always_inline)) void
store_sums(const struct gemm_panel *p, int64_t group, int64_t row, __m512 sum, bool bias)
{
    const struct gemm_args *a = p->args;
    __mmask16 mask = (__mmask16)p->mask;
    if (bias && a->bias)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, a->bias + group * a->n + p->feature));
    _mm512_mask_storeu_ps(matrix_floats(&a->c) + row * a->n + p->feature, mask, sum);
}

/* One panel times a tile of `rows` activations. */
static inline __attribute__((always_inline)) void direct_panel(const struct product *p,
                                                               const struct gemm_block *b,
                                                               const struct gemm_panel *panel,
                                                               int rows, bool mxfp4)
{
    const struct tile t = tile_at(p, b->row, rows);
    const int64_t bytes = block_bytes(mxfp4), stride = panel->stride;
    const uint8_t *ahead = panel->w + LANES * stride;
    _Alignas(64) uint8_t ring[RING][SCALES];
    __m512 sum[DIRECT_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    struct panel_cursor c = panel_cursor(panel->w, stride);
    for (int64_t k = 0; k < gemm_min(p->k_blocks, AHEAD); k++)
        gather_scales(&c, k * bytes, mxfp4, ring[k]);
    for (int64_t k = 0; k < p->k_blocks; k++) {
        const int32_t *q = (const int32_t *)(t.q + k * rows * BLOCK);
        __m512i values[8], dot[DIRECT_ROWS];
        prefetch(ahead + k * LANES * bytes, LANES * bytes);
        if (k + AHEAD < p->k_blocks)
            gather_scales(&c, AHEAD * bytes, mxfp4, ring[(k + AHEAD) % RING]);
        unpack_block(&c, mxfp4, values);
        panel_advance(&c, bytes);
        __m512 scale = panel_scales(ring[k % RING], mxfp4);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            dot[r] = _mm512_set1_epi32(t.correction[k * rows + r]);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                dot[r] = _mm512_dpbusd_epi32(dot[r], values[i], _mm512_set1_epi32(q[r * 8 + i]));
            __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(t.scale[k * rows + r]));
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), s, sum[r]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) store_sums(panel, b->group, b->row + r, sum[r], true);
}

static inline __attribute__((always_inline)) void direct_rows(const struct product *p,
                                                              const struct gemm_block *b,
                                                              const struct gemm_panel *panel,
                                                              bool mxfp4)
{
    switch (b->rows) {
    case 1:
        direct_panel(p, b, panel, 1, mxfp4);
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

static void direct_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                       int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, LANES);
        if (p->args->w.dtype == DTYPE_MXFP4)
            direct_rows(p, b, &panel, true);
        else
            direct_rows(p, b, &panel, false);
    }
}

/* ---- alone ---- */

/* Panels of a product are neighbours, so their features are one run; the last few are moved back
 * where they would stick out. */
static void alone_panels(const struct product *p, const struct gemm_block *b,
                         const struct gemm_args *a, int64_t begin, int64_t end)
{
    const void *steps = p->packed + b->row * p->row_bytes;
    bool mxfp4 = a->w.dtype == DTYPE_MXFP4;
    int64_t stride = (int64_t)dtype_row_bytes(a->w.dtype, a->k);
    int64_t at_once = mxfp4 ? GEMV_MXFP4_ROWS : GEMV_Q8_0_ROWS;
    int64_t first = a->n < LANES ? begin : begin * LANES;
    int64_t last = a->n < LANES ? end : gemm_min(end * LANES, a->n);
    for (int64_t f = first; f < last; f += at_once) {
        int64_t from = gemm_min(f, a->n - at_once);
        const uint8_t *w = tensor_row(&a->w, b->group, from);
        float sum[GEMV_ROWS_MAX];
        if (mxfp4)
            gemv_mxfp4_rows(w, stride, steps, p->k_blocks, p->e8m0, sum);
        else
            gemv_q8_0_rows(w, stride, steps, p->k_blocks, sum);
        for (int64_t r = f - from; r < at_once && from + r < last; r++) {
            int64_t column = from + r;
            float bias = a->bias ? a->bias[b->group * a->n + column] : 0;
            matrix_floats(&a->c)[b->row * a->n + column] = sum[r] + bias;
        }
    }
}

static void alone_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                      int64_t end)
{
    while (begin < end) {
        int64_t from = begin;
        const struct gemm_args *a = gemm_product_of(&p->jobs, &from, LANES);
        int64_t n = gemm_min(end - begin, gemm_panels(a, LANES) - from);
        alone_panels(p, b, a, from, from + n);
        begin += n;
    }
}

/* ---- tiled ---- */

/* Unpacks n blocks from block k0 on; [k][2 panels][STAGED bytes], starting at this panel's part. */
static inline __attribute__((always_inline)) void
stage_as(const struct gemm_panel *panel, int64_t k0, int64_t n, bool mxfp4, uint8_t *staged)
{
    const int64_t bytes = block_bytes(mxfp4), stride = panel->stride;
    struct panel_cursor c = panel_cursor(panel->w + k0 * bytes, stride);
    const uint8_t *ahead = panel->w + 2 * LANES * stride + k0 * LANES * bytes;
    _Alignas(64) uint8_t scales[CHUNK][SCALES];
    for (int64_t k = 0; k < n; k++) gather_scales(&c, k * bytes, mxfp4, scales[k]);
    for (int64_t k = 0; k < n; k++, staged += 2 * STAGED) {
        __m512i values[8];
        prefetch(ahead + k * LANES * bytes, LANES * bytes);
        unpack_block(&c, mxfp4, values);
        panel_advance(&c, bytes);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) _mm512_store_si512(staged + i * 64, values[i]);
        _mm512_store_ps((float *)(staged + BLOCK * LANES), panel_scales(scales[k], mxfp4));
    }
}

static void stage(const struct product *p, const struct gemm_panel *panel, int64_t k0, int64_t n,
                  uint8_t *staged)
{
    if (p->args->w.dtype == DTYPE_MXFP4)
        stage_as(panel, k0, n, true, staged);
    else
        stage_as(panel, k0, n, false, staged);
}

/* `rows` activations times 2 staged panels over n blocks; sums is [rows][2][LANES]. */
static inline __attribute__((always_inline)) void
multiply_tile(struct tile t, const uint8_t *staged, int64_t n, int rows, float *sums)
{
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        sum[r][0] = _mm512_load_ps(sums + r * 2 * LANES);
        sum[r][1] = _mm512_load_ps(sums + r * 2 * LANES + LANES);
    }
    for (int64_t k = 0; k < n; k++, staged += 2 * STAGED) {
        const int32_t *q = (const int32_t *)t.q;
        __m512i dot[TILE_ROWS][2];
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) dot[r][0] = dot[r][1] = _mm512_set1_epi32(t.correction[r]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m512i w0 = _mm512_load_si512(staged + i * 64);
            __m512i w1 = _mm512_load_si512(staged + STAGED + i * 64);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                __m512i x = _mm512_set1_epi32(q[r * 8 + i]);
                dot[r][0] = _mm512_dpbusd_epi32(dot[r][0], w0, x);
                dot[r][1] = _mm512_dpbusd_epi32(dot[r][1], w1, x);
            }
        }
        __m512 s0 = _mm512_load_ps((const float *)(staged + BLOCK * LANES));
        __m512 s1 = _mm512_load_ps((const float *)(staged + STAGED + BLOCK * LANES));
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512 s = _mm512_set1_ps(t.scale[r]);
            sum[r][0] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(s0, s), sum[r][0]);
            sum[r][1] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(s1, s), sum[r][1]);
        }
        t.q += rows * BLOCK;
        t.scale += rows;
        t.correction += rows;
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm512_store_ps(sums + r * 2 * LANES, sum[r][0]);
        _mm512_store_ps(sums + r * 2 * LANES + LANES, sum[r][1]);
    }
}

static void multiply_rows(struct tile t, const uint8_t *staged, int64_t n, int64_t rows,
                          float *sums)
{
    switch (rows) {
    case 1:
        multiply_tile(t, staged, n, 1, sums);
        break;
    case 2:
        multiply_tile(t, staged, n, 2, sums);
        break;
    case 3:
        multiply_tile(t, staged, n, 3, sums);
        break;
    case 4:
        multiply_tile(t, staged, n, 4, sums);
        break;
    case 5:
        multiply_tile(t, staged, n, 5, sums);
        break;
    default:
        multiply_tile(t, staged, n, 6, sums);
        break;
    }
}

/* Two panels (the second may be the first again, with nothing to store) times a block of A. */
static void tiled_pair(const struct product *p, const struct gemm_block *b,
                       const struct gemm_panel panels[2], struct worker *worker)
{
    int64_t n_tiles = gemm_div_up(b->rows, TILE_ROWS), n_chunks = gemm_div_up(p->k_blocks, CHUNK);
    for (int64_t i = 0; i < b->rows * 2; i++)
        _mm512_store_ps(worker->sums + i * LANES, _mm512_setzero_ps());
    for (int64_t c = 0; c < n_chunks; c++) {
        int64_t k0, n = gemm_tile_rows(p->k_blocks, CHUNK, c, &k0);
        stage(p, &panels[0], k0, n, worker->staged);
        stage(p, &panels[1], k0, n, worker->staged + STAGED);
        for (int64_t i = 0; i < n_tiles; i++) {
            int64_t first, rows = gemm_tile_rows(b->rows, TILE_ROWS, i, &first);
            struct tile t = tile_at(p, b->row + first, rows);
            t.q += k0 * rows * BLOCK;
            t.scale += k0 * rows;
            t.correction += k0 * rows;
            multiply_rows(t, worker->staged, n, rows, worker->sums + first * 2 * LANES);
        }
    }
    for (int64_t r = 0; r < b->rows; r++)
        for (int i = 0; i < 2; i++)
            store_sums(&panels[i], b->group, b->row + r,
                       _mm512_load_ps(worker->sums + (r * 2 + i) * LANES), true);
}

static void tiled_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                      int64_t end, struct worker *worker)
{
    for (int64_t i = begin; i < end; i += 2) {
        struct gemm_panel panels[2] = {gemm_panel_at(&p->jobs, b->group, i, LANES)};
        panels[1] = panels[0];
        if (i + 1 < end)
            panels[1] = gemm_panel_at(&p->jobs, b->group, i + 1, LANES);
        else
            panels[1].mask = 0;
        tiled_pair(p, b, panels, worker);
    }
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    for (int64_t j = begin; j < end; j++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, j);
        int64_t from = (j - b->first_job) * b->panels_per_job;
        int64_t to = gemm_min(from + b->panels_per_job, p->jobs.n_panels);
        if (alone(p, b))
            alone_job(p, b, from, to);
        else if (b->rows <= DIRECT_ROWS)
            direct_job(p, b, from, to);
        else
            tiled_job(p, b, from, to, &p->workers[worker]);
    }
}

/* All of them, or none, are multiplied by gemv.h where a row is alone. */
static bool joins(const void *args, const void *next)
{
    const struct gemm_args *a = args, *b = next;
    return gemm_joins(args, next) && (a->n >= GEMV_ROWS_MAX) == (b->n >= GEMV_ROWS_MAX);
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
        .row_bytes = (int64_t)row_bytes(a),
        .offset = a->w.dtype == DTYPE_MXFP4 ? 12 : 128,
        .value_scale = a->w.dtype == DTYPE_MXFP4 ? 0.5f : 1.0f,
    };
    for (int e = 0; e < 256; e++) p.e8m0[e] = e8m0_to_f32((uint8_t)e);
    gemm_make_jobs(&p.jobs, context, a, LANES, BLOCK_ROWS, DIRECT_ROWS);
    pool_for(context->pool, p.jobs.n_rows, 8, pack_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply, &p);
}

const struct op_variant gemm_i8_q_avx512vnni = {
    .name = "gemm_i8_q_avx512vnni",
    .summary = "int8 activations, mxfp4 or q8_0 weights; vpdpbusd, weights unpacked tile by tile",
    .numerics = NUMERICS_I8,
    .needs = CPU_AVX512 | CPU_AVX512_VNNI,
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
    .joins = joins,
};
