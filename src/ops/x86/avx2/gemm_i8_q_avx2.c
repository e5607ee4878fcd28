/* gemm with int8 activations and MXFP4 or Q8_0 weights, for AVX2.
 *
 * A lane is four steps along k, so nothing is transposed. Phase 1 quantises the rows of A, per 32
 * values. Phase 2 decodes a panel of PANEL_ROWS weight rows to int8 and float32 scales for all rows
 * of A that use it. vpmaddubsw wants one unsigned operand and saturates at 16 bits: it gets the
 * magnitude of the weight and the activation with the weight's sign, so that a pair is at most 2 *
 * 128 * 127 = 32512. */
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/gemm_jobs.h"
#include "ops/op.h"

enum {
    BLOCK = 32, /* values that share a scale, and bytes of a register */
    PANEL_ROWS = 4,
    TILE_TOKENS = 2,  /* 8 sums, 4 weights and their magnitudes two at a time, of 16 registers */
    BLOCK_ROWS = 128, /* 128 rows of 2880 int8 with scales are 410 KB: fits a 512 KB L2 */
    FEW_ROWS = 4,
};

/* A row of A or of W: its values and a scale for each 32 of them. */
struct packed_row {
    int8_t *q;
    float *scale;
};

struct product {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    char *a;      /* [a_count] packed rows */
    char *panels; /* per worker: [PANEL_ROWS] packed rows */
    int64_t k_blocks;
};

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static size_t row_bytes(int64_t k_blocks)
{
    return align64((size_t)k_blocks * (BLOCK + sizeof(float)));
}

static struct packed_row row_at(char *rows, int64_t index, int64_t k_blocks)
{
    char *row = rows + (size_t)index * row_bytes(k_blocks);
    return (struct packed_row){(int8_t *)row, (float *)(row + k_blocks * BLOCK)};
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

static size_t workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    size_t rows = (size_t)(a->a_count + (int64_t)workers * PANEL_ROWS);
    return blocks_bytes(a) + rows * row_bytes(a->k / BLOCK);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    enum dtype dtype = ((const struct gemm_args *)args)->w.dtype;
    if (dtype == DTYPE_MXFP4 || dtype == DTYPE_Q8_0) return true;
    snprintf(why, OP_REASON_MAX, "weights are %s, this variant reads mxfp4 and q8_0",
             dtype_info(dtype)->name);
    return false;
}

/* ---- phase 1 ---- */

/* A block with NaN or Inf gets a NaN scale: whatever it is multiplied by becomes NaN. */
static void quantise_block(const float *x, int8_t *q, float *scale)
{
    float top = 0;
    bool finite = true;
    for (int i = 0; i < BLOCK; i++) {
        float magnitude = fabsf(x[i]);
        top = magnitude > top ? magnitude : top;
        finite &= magnitude <= 3.4e38f;
    }
    *scale = finite ? top / 127 : NAN;
    float factor = finite && top > 1e-30f ? 127 / top : 0;
    if (factor == 0 && finite) *scale = 0; /* below 1e-30 a whole block counts as zero */
    for (int i = 0; i < BLOCK; i++) q[i] = (int8_t)(factor == 0 ? 0 : lrintf(x[i] * factor));
}

static void quantise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct product *p = arg;
    for (int64_t i = begin; i < end; i++) {
        struct packed_row row = row_at(p->a, i, p->k_blocks);
        for (int64_t k = 0; k < p->k_blocks; k++)
            quantise_block(p->args->a + i * p->args->k + k * BLOCK, row.q + k * BLOCK,
                           row.scale + k);
    }
}

/* ---- weights ---- */

/* e2m1 doubled, so the scale is halved. */
static void decode_mxfp4(const struct block_mxfp4 *block, int64_t k_blocks, struct packed_row to)
{
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i low = _mm_set1_epi8(15);
    for (int64_t k = 0; k < k_blocks; k++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)block[k].nibbles);
        __m128i first = _mm_shuffle_epi8(table, _mm_and_si128(bytes, low));
        __m128i second = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
        _mm_storeu_si128((__m128i *)(to.q + k * BLOCK), first);
        _mm_storeu_si128((__m128i *)(to.q + k * BLOCK + 16), second);
        to.scale[k] = 0.5f * e8m0_to_f32(block[k].scale);
    }
}

static void decode_q8_0(const uint8_t *row, int64_t k_blocks, struct packed_row to)
{
    for (int64_t k = 0; k < k_blocks; k++, row += sizeof(struct block_q8_0)) {
        uint16_t scale;
        memcpy(&scale, row, sizeof scale);
        to.scale[k] = _cvtsh_ss(scale);
        memcpy(to.q + k * BLOCK, row + sizeof scale, BLOCK);
    }
}

static void decode_panel(const struct product *p, const struct gemm_panel *panel, char *rows)
{
    for (int r = 0; r < PANEL_ROWS; r++) {
        const uint8_t *w = panel->w + r * panel->stride;
        struct packed_row to = row_at(rows, r, p->k_blocks);
        if (p->args->w.dtype == DTYPE_MXFP4)
            decode_mxfp4((const struct block_mxfp4 *)w, p->k_blocks, to);
        else
            decode_q8_0(w, p->k_blocks, to);
    }
}

/* ---- the product ---- */

static inline __attribute__((always_inline)) __m256i dot(__m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

static float total(__m256 sum)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

static inline __attribute__((always_inline)) void multiply_tile(const struct product *p,
                                                                const struct gemm_panel *panel,
                                                                char *rows, int64_t group,
                                                                int64_t row, int tokens)
{
    const struct gemm_args *a = p->args;
    struct packed_row w[PANEL_ROWS], x[TILE_TOKENS];
    __m256 sum[TILE_TOKENS][PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) w[r] = row_at(rows, r, p->k_blocks);
    for (int t = 0; t < tokens; t++) {
        x[t] = row_at(p->a, a->a_rows ? a->a_rows[row + t] : row + t, p->k_blocks);
        for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < p->k_blocks; k++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            __m256i values = _mm256_loadu_si256((const __m256i *)(w[r].q + k * BLOCK));
            for (int t = 0; t < tokens; t++) {
                __m256i q = _mm256_loadu_si256((const __m256i *)(x[t].q + k * BLOCK));
                __m256 scale = _mm256_set1_ps(w[r].scale[k] * x[t].scale[k]);
                sum[t][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot(values, q)), scale, sum[t][r]);
            }
        }
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            if (!(panel->mask >> r & 1)) continue;
            int64_t column = panel->feature + r;
            float bias = a->bias ? a->bias[group * a->n + column] : 0;
            a->c[(row + t) * a->n + column] = total(sum[t][r]) + bias;
        }
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    char *rows = p->panels + (size_t)worker * PANEL_ROWS * row_bytes(p->k_blocks);
    for (int64_t job = begin; job < end; job++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, job);
        int64_t first = (job - b->first_job) * b->panels_per_job;
        int64_t last = gemm_min(first + b->panels_per_job, p->jobs.n_panels);
        for (int64_t i = first; i < last; i++) {
            struct gemm_panel panel = gemm_panel_at(p->args, b->group, i, PANEL_ROWS);
            decode_panel(p, &panel, rows);
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
    char *space = (char *)context->workspace + blocks_bytes(a);
    struct product p = {
        .args = a,
        .jobs.blocks = context->workspace,
        .a = space,
        .panels = space + (size_t)a->a_count * row_bytes(a->k / BLOCK),
        .k_blocks = a->k / BLOCK,
    };
    gemm_make_jobs(&p.jobs, a, PANEL_ROWS, BLOCK_ROWS, FEW_ROWS, pool_size(context->pool));
    pool_for(context->pool, a->a_count, 8, quantise_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply, &p);
}

const struct op_variant gemm_i8_q_avx2 = {
    .name = "gemm_i8_q_avx2",
    .summary = "int8 activations, mxfp4 or q8_0 weights; vpmaddubsw on signs and magnitudes",
    .numerics = NUMERICS_I8,
    .needs = CPU_AVX2,
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
};
