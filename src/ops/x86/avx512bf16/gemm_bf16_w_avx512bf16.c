/* gemm with bf16 activations and weights that bf16 holds exactly (BF16, MXFP4), by vdpbf16ps.
 *
 * A lane is a pair of steps along k, so nothing is transposed. Phase 1 rounds the rows of A to
 * bf16; phase 2 decodes a panel of PANEL_ROWS weight rows to bf16 for all rows of A that use it,
 * and runs tiles of TILE_TOKENS x PANEL_ROWS sums over it. Sums are float32; the instruction
 * flushes subnormals, which the tolerance of bf16 does not see. */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/gemm_jobs.h"
#include "ops/op.h"

enum {
    LANES = 32, /* bf16 values of a register */
    PANEL_ROWS = 4,
    TILE_TOKENS = 4,  /* 16 sums, 4 weights, 1 activation of 32 registers */
    BLOCK_ROWS = 128, /* 128 rows of 2880 bf16 are 740 KB: what a 1 MB L2 holds beside the panel */
    FEW_ROWS = 4,
};

struct product {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    uint16_t *a;      /* [a.rows][padded] activations in bf16 */
    uint16_t *panels; /* per worker: [PANEL_ROWS][padded] */
    int64_t padded;   /* k up to whole vectors; the rest is zero */
};

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static int64_t padded_k(const struct gemm_args *a)
{
    return (a->k + LANES - 1) / LANES * LANES;
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

static size_t workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    int64_t rows = a->a.rows + (int64_t)workers * PANEL_ROWS;
    return blocks_bytes(a) + (size_t)(rows * padded_k(a)) * sizeof(uint16_t);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    enum dtype dtype = ((const struct gemm_args *)args)->w.dtype;
    if (dtype == DTYPE_MXFP4 || dtype == DTYPE_BF16) return true;
    snprintf(why, OP_REASON_MAX, "weights are %s, bf16 holds mxfp4 and bf16 exactly",
             dtype_info(dtype)->name);
    return false;
}

/* ---- phase 1 ---- */

static void round_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct product *p = arg;
    const struct gemm_args *a = p->args;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < p->padded; j += 16) {
            int64_t left = a->k - j;
            __mmask16 mask = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1u) : 0;
            __m512 x = _mm512_maskz_loadu_ps(mask, matrix_floats(&a->a) + i * a->k + j);
            _mm256_storeu_si256((__m256i *)(p->a + i * p->padded + j),
                                (__m256i)_mm512_cvtneps_pbh(x));
        }
}

/* ---- weights ---- */

/* e2m1 values as bf16, twice, since a permutation of words looks at five bits. */
static __m512i e2m1_table(void)
{
    static const uint16_t values[16] = {0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
                                        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0,
                                        0xc000, 0xc040, 0xc080, 0xc0c0};
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)values));
}

/* The scale is added to the exponent, which the rare scales at the ends of the range would carry
 * out of it: those go through float32. */
static void decode_mxfp4(const struct block_mxfp4 *block, uint16_t *to, int64_t k)
{
    const __m512i table = e2m1_table();
    for (int64_t i = 0; i < k; i += 32, block++, to += 32) {
        if (block->scale < 2 || block->scale > 251) {
            float values[32];
            dtype_info(DTYPE_MXFP4)->decode(block, values, 32);
            dtype_info(DTYPE_BF16)->encode(values, to, 32);
            continue;
        }
        __m256i low = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)block->nibbles));
        __m512i nibbles =
            _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_srli_epi16(low, 4), 1);
        __m512i values = _mm512_permutexvar_epi16(nibbles, table);
        __m512i shift = _mm512_set1_epi16((int16_t)((block->scale - 127) * 128));
        __mmask32 nonzero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7fff));
        _mm512_storeu_si512(to, _mm512_mask_add_epi16(values, nonzero, values, shift));
    }
}

/* The panel's rows in bf16: in `to`, or where they lie when they are whole vectors of bf16 already.
 */
static void decode_panel(const struct product *p, const struct gemm_panel *panel, uint16_t *to,
                         const uint16_t *rows[PANEL_ROWS])
{
    const struct gemm_args *a = p->args;
    bool in_place = a->w.dtype == DTYPE_BF16 && p->padded == a->k;
    for (int r = 0; r < PANEL_ROWS; r++, to += p->padded) {
        const uint8_t *row = panel->w + r * panel->stride;
        rows[r] = in_place ? (const uint16_t *)row : to;
        if (in_place) continue;
        if (a->w.dtype == DTYPE_MXFP4)
            decode_mxfp4((const struct block_mxfp4 *)row, to, a->k);
        else
            memcpy(to, row, sizeof *to * (size_t)a->k);
        memset(to + a->k, 0, sizeof *to * (size_t)(p->padded - a->k));
    }
}

/* ---- the product ---- */

static inline __attribute__((always_inline)) void
multiply_tile(const struct product *p, const struct gemm_panel *panel,
              const uint16_t *const w[PANEL_ROWS], int64_t group, int64_t row, int tokens)
{
    const struct gemm_args *a = p->args, *to = panel->args;
    const uint16_t *x[TILE_TOKENS];
    __m512 sum[TILE_TOKENS][PANEL_ROWS];
    for (int t = 0; t < tokens; t++) {
        x[t] = p->a + (a->a_rows ? a->a_rows[row + t] : row + t) * p->padded;
        for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < p->padded; i += LANES) {
        __m512bh right[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) {
            /* The next panel, for rows in place: four short rows lose the hardware's prefetchers.
             */
            __builtin_prefetch(w[r] + PANEL_ROWS * p->padded + i);
            right[r] = (__m512bh)_mm512_loadu_si512(w[r] + i);
        }
        for (int t = 0; t < tokens; t++) {
            __m512bh left = (__m512bh)_mm512_loadu_si512(x[t] + i);
            for (int r = 0; r < PANEL_ROWS; r++)
                sum[t][r] = _mm512_dpbf16_ps(sum[t][r], left, right[r]);
        }
    }
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            if (!(panel->mask >> r & 1)) continue;
            int64_t column = panel->feature + r;
            float bias = to->bias ? to->bias[group * to->n + column] : 0;
            matrix_floats(&to->c)[(row + t) * to->n + column] =
                _mm512_reduce_add_ps(sum[t][r]) + bias;
        }
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    uint16_t *w = p->panels + (int64_t)worker * PANEL_ROWS * p->padded;
    for (int64_t job = begin; job < end; job++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, job);
        int64_t first = (job - b->first_job) * b->panels_per_job;
        int64_t last = gemm_min(first + b->panels_per_job, p->jobs.n_panels);
        for (int64_t i = first; i < last; i++) {
            struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, PANEL_ROWS);
            const uint16_t *rows[PANEL_ROWS];
            decode_panel(p, &panel, w, rows);
            int64_t row = b->row, end_row = b->row + b->rows;
            for (; row + TILE_TOKENS <= end_row; row += TILE_TOKENS)
                multiply_tile(p, &panel, rows, b->group, row, TILE_TOKENS);
            for (; row < end_row; row++) multiply_tile(p, &panel, rows, b->group, row, 1);
        }
    }
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    int64_t padded = padded_k(a);
    uint16_t *space = (uint16_t *)((char *)context->workspace + blocks_bytes(a));
    struct product p = {
        .args = a,
        .jobs.blocks = context->workspace,
        .a = space,
        .panels = space + a->a.rows * padded,
        .padded = padded,
    };
    gemm_make_jobs(&p.jobs, context, a, PANEL_ROWS, BLOCK_ROWS, FEW_ROWS);
    pool_for(context->pool, a->a.rows, 8, round_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply, &p);
}

const struct op_variant gemm_bf16_w_avx512bf16 = {
    .name = "gemm_bf16_w_avx512bf16",
    .summary = "bf16 activations, bf16 or mxfp4 weights; vdpbf16ps",
    .numerics = NUMERICS_BF16,
    .needs = CPU_AVX512 | CPU_AVX512_BF16,
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
    .joins = gemm_joins,
};
