/* gemm with bf16 activations and weights that bf16 holds exactly (BF16, MXFP4), by bfmmla and
 * bfdot.
 *
 * Phase 1 rounds the rows of A to bf16. Phase 2 multiplies, panels of 8 weight rows at a time:
 *  - *direct*, for blocks of one or two rows of A and BF16 weights: 8 values of each weight row go
 *    from memory into bfdot, and the four lanes are added up at the end.
 *  - *tiled*: a panel times CHUNK values of k is brought into bfmmla's order in L1, and all tiles
 *    of A run over it. bfmmla multiplies 2 rows x 4 by 4 x 2 weight rows: 8 rows x 8 weight rows
 *    are 16 squares of sums, fed by 4 + 4 loads a step: two multiplications a load, 24 of 32
 *    registers.
 * Sums are float32; both instructions flush subnormals, which the tolerance of bf16 does not see.
 */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/arm/panel.h"
#include "ops/op.h"

#define BF16_INLINE static inline __attribute__((always_inline))

enum {
    STEP = 4,      /* values of k in a bfmmla */
    VALUES = 8,    /* bf16 values of a register; k is padded to whole ones */
    PAIRS = 4,     /* of rows in a tile, and of weight rows in a panel */
    TILE_ROWS = 8, /* 2 * PAIRS */
    SQUARES = 16,  /* PAIRS * PAIRS */
    DIRECT_ROWS = 2,
    FEW_ROWS = 8, /* blocks of so few wait for weights: longer jobs, for longer streams */
    BLOCK_ROWS =
        96,       /* 96 rows of 2880 bf16 are 553 KB: they stay in the 1 MB L2 of a Neoverse N1 */
    CHUNK = 1024, /* 16 KB of weights, and as much of each tile, of a 64 KB L1 */
};

struct worker {
    _Alignas(64) uint16_t staged[CHUNK * PANEL_LANES];
    _Alignas(64) float sums[BLOCK_ROWS / TILE_ROWS][SQUARES * 4];
};

struct product {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    uint16_t *packed;
    struct worker *workers;
    int64_t padded; /* k up to whole vectors; the rest is zero */
};

static int64_t padded_k(const struct gemm_args *a)
{
    return (a->k + VALUES - 1) / VALUES * VALUES;
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

/* The last tile of a block may have room for more rows than there are. */
static size_t packed_bytes(const struct gemm_args *a)
{
    int64_t rows = a->m + gemm_max_blocks(a, BLOCK_ROWS) * (TILE_ROWS - 1);
    return align64((size_t)(rows * padded_k(a)) * sizeof(uint16_t));
}

static size_t workspace(const void *args, int workers)
{
    return blocks_bytes(args) + packed_bytes(args) + (size_t)workers * sizeof(struct worker);
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

static bool is_direct(const struct gemm_args *a, const struct gemm_block *b)
{
    return b->rows <= DIRECT_ROWS && a->w.dtype == DTYPE_BF16;
}

/* Packed rows of a block: [rows][padded] when it is direct, else tiles of
 * [padded / STEP][PAIRS]{2 rows x STEP values}. */
static uint16_t *packed_block(const struct product *p, const struct gemm_block *b)
{
    return p->packed + (b->row + (b - p->jobs.blocks) * (TILE_ROWS - 1)) * p->padded;
}

/* ---- phase 1 ---- */

/* 8 values as bf16, zeros from the n-th on. */
BF16_INLINE uint16x8_t round_values(const float *x, int64_t n)
{
    float rest[VALUES] = {0};
    if (n < VALUES) {
        memcpy(rest, x, sizeof *x * (size_t)n);
        x = rest;
    }
    bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(x));
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(x + 4)));
}

static void pack_row(const struct product *p, const struct gemm_block *b, int64_t row)
{
    const struct gemm_args *a = p->args;
    const float *x =
        matrix_floats(&a->a) + (a->a_rows ? a->a_rows[b->row + row] : b->row + row) * a->k;
    uint16_t *to = packed_block(p, b);
    if (is_direct(a, b)) {
        to += row * p->padded;
        for (int64_t i = 0; i < a->k; i += VALUES) vst1q_u16(to + i, round_values(x + i, a->k - i));
        return;
    }
    to += row / TILE_ROWS * TILE_ROWS * p->padded + row % TILE_ROWS * STEP;
    for (int64_t i = 0; i < a->k; i += VALUES, to += 2 * TILE_ROWS * STEP) {
        uint16x8_t v = round_values(x + i, a->k - i);
        vst1_u16(to, vget_low_u16(v));
        vst1_u16(to + TILE_ROWS * STEP, vget_high_u16(v));
    }
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct product *p = arg;
    for (int64_t i = begin; i < end; i++) {
        const struct gemm_block *b = gemm_block_of_row(&p->jobs, i);
        pack_row(p, b, i - b->row);
    }
}

/* ---- direct ---- */

BF16_INLINE bfloat16x8_t load(const void *from)
{
    return vreinterpretq_bf16_u8(vld1q_u8(from)); /* rows of odd files may be unaligned */
}

BF16_INLINE float32x4_t add_up(const float32x4_t v[4])
{
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}

BF16_INLINE void direct_panel(const struct product *p, const struct gemm_block *b,
                              const struct gemm_panel *panel, const int rows)
{
    const int64_t k = p->args->k;
    const uint16_t *x = packed_block(p, b);
    const uint8_t *ahead = panel->w + PANEL_LANES * panel->stride;
    float32x4_t sum[DIRECT_ROWS][PANEL_LANES];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int j = 0; j < PANEL_LANES; j++) sum[r][j] = vdupq_n_f32(0);
    int64_t i = 0;
    for (; i + VALUES <= k; i += VALUES) {
        const uint8_t *w = panel->w + 2 * i;
        bfloat16x8_t left[DIRECT_ROWS];
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) left[r] = load(x + r * p->padded + i);
        /* The next panel, 128 bytes for the 8 x 16 read here: the hardware's prefetchers lose track
         * of 8 short rows (seen on x86: ops/vector/gemm.h). */
        __builtin_prefetch(ahead + 16 * i);
        __builtin_prefetch(ahead + 16 * i + 64);
#pragma GCC unroll 8
        for (int j = 0; j < PANEL_LANES; j++) {
            bfloat16x8_t right = load(w + j * panel->stride);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) sum[r][j] = vbfdotq_f32(sum[r][j], right, left[r]);
        }
    }
    if (i < k) {
#pragma GCC unroll 8
        for (int j = 0; j < PANEL_LANES; j++) {
            uint16_t rest[VALUES] = {0};
            memcpy(rest, panel->w + j * panel->stride + 2 * i, sizeof *rest * (size_t)(k - i));
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
                sum[r][j] = vbfdotq_f32(sum[r][j], load(rest), load(x + r * p->padded + i));
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++)
        panel_store(panel, b->group, b->row + r, add_up(sum[r]), add_up(sum[r] + 4));
}

/* ---- tiled ---- */

BF16_INLINE uint16x8_t zip_low(uint16x8_t a, uint16x8_t b)
{
    return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

BF16_INLINE uint16x8_t zip_high(uint16x8_t a, uint16x8_t b)
{
    return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

/* 8 values of both rows of a pair, into two steps. */
BF16_INLINE void stage_values(uint16x8_t first, uint16x8_t second, uint16_t *to)
{
    vst1q_u16(to, zip_low(first, second));
    vst1q_u16(to + PANEL_LANES * STEP, zip_high(first, second));
}

/* Values k0 .. k0+n-1 of a panel of BF16 as [n / STEP][PAIRS]{2 rows x STEP}. */
static void stage_bf16(const struct gemm_panel *panel, int64_t k, int64_t k0, int64_t n,
                       uint16_t *staged)
{
    for (int pair = 0; pair < PAIRS; pair++) {
        const uint8_t *first = panel->w + 2 * pair * panel->stride + 2 * k0;
        const uint8_t *second = first + panel->stride;
        uint16_t *to = staged + pair * 2 * STEP;
        int64_t i = 0;
        for (; i < n && k0 + i + VALUES <= k; i += VALUES, to += 2 * PANEL_LANES * STEP)
            stage_values(vreinterpretq_u16_u8(vld1q_u8(first + 2 * i)),
                         vreinterpretq_u16_u8(vld1q_u8(second + 2 * i)), to);
        if (i == n) continue;
        uint16_t rest[2][VALUES] = {{0}};
        memcpy(rest[0], first + 2 * i, sizeof **rest * (size_t)(k - k0 - i));
        memcpy(rest[1], second + 2 * i, sizeof **rest * (size_t)(k - k0 - i));
        stage_values(vld1q_u16(rest[0]), vld1q_u16(rest[1]), to);
    }
}

/* A block as bf16. The scale is added to the exponent, which the rare scales at the ends of the
 * range would carry out of it: those go through float32. */
BF16_INLINE void decode_mxfp4(const struct block_mxfp4 *block, uint16x8_t out[4])
{
    static const uint8_t tops[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    static const uint8_t seconds[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                        0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    if (block->scale < 2 || block->scale > 251) {
        float values[32];
        uint16_t rounded[32];
        dtype_info(DTYPE_MXFP4)->decode(block, values, 32);
        dtype_info(DTYPE_BF16)->encode(values, rounded, 32);
        for (int i = 0; i < 4; i++) out[i] = vld1q_u16(rounded + i * VALUES);
        return;
    }
    const uint8x16_t first = vld1q_u8(tops), second = vld1q_u8(seconds);
    const uint16x8_t shift = vdupq_n_u16((uint16_t)((block->scale - 127) * 128));
    uint8x16_t bytes = vld1q_u8(block->nibbles);
    uint8x16_t nibbles[2] = {vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        uint8x16_t upper = vqtbl1q_u8(first, nibbles[h]), lower = vqtbl1q_u8(second, nibbles[h]);
        out[2 * h] = vreinterpretq_u16_u8(vzip1q_u8(lower, upper));
        out[2 * h + 1] = vreinterpretq_u16_u8(vzip2q_u8(lower, upper));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        uint16x8_t nonzero = vtstq_u16(out[i], vdupq_n_u16(0x7fff));
        out[i] = vaddq_u16(out[i], vandq_u16(nonzero, shift));
    }
}

static void stage_mxfp4(const struct gemm_panel *panel, int64_t k0, int64_t n, uint16_t *staged)
{
    int64_t offset = k0 / 32 * (int64_t)sizeof(struct block_mxfp4);
    for (int pair = 0; pair < PAIRS; pair++) {
        const uint8_t *row = panel->w + 2 * pair * panel->stride + offset;
        const struct block_mxfp4 *first = (const struct block_mxfp4 *)row;
        const struct block_mxfp4 *second = (const struct block_mxfp4 *)(row + panel->stride);
        uint16_t *to = staged + pair * 2 * STEP;
        for (int64_t i = 0; i < n; i += 32) {
            uint16x8_t a[4], b[4];
            decode_mxfp4(first++, a);
            decode_mxfp4(second++, b);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++, to += 2 * PANEL_LANES * STEP) stage_values(a[v], b[v], to);
        }
    }
}

/* sums [pairs][PAIRS]{2 x 2} += tile * panel over n values of k. */
BF16_INLINE void multiply_tile(const uint16_t *tile, const uint16_t *staged, int64_t n,
                               const int pairs, float *sums)
{
    float32x4_t sum[PAIRS][PAIRS];
#pragma GCC unroll 4
    for (int p = 0; p < pairs; p++)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++) sum[p][j] = vld1q_f32(sums + (p * PAIRS + j) * 4);
    for (int64_t i = 0; i < n; i += STEP, tile += TILE_ROWS * STEP, staged += PANEL_LANES * STEP) {
        bfloat16x8_t left[PAIRS];
#pragma GCC unroll 4
        for (int p = 0; p < pairs; p++) left[p] = load(tile + p * 2 * STEP);
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++) {
            bfloat16x8_t right = load(staged + j * 2 * STEP);
#pragma GCC unroll 4
            for (int p = 0; p < pairs; p++) sum[p][j] = vbfmmlaq_f32(sum[p][j], left[p], right);
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < pairs; p++)
#pragma GCC unroll 4
        for (int j = 0; j < PAIRS; j++) vst1q_f32(sums + (p * PAIRS + j) * 4, sum[p][j]);
}

static void multiply_rows(const uint16_t *tile, const uint16_t *staged, int64_t n, int64_t rows,
                          float *sums)
{
    if (rows > 6)
        multiply_tile(tile, staged, n, 4, sums);
    else if (rows > 4)
        multiply_tile(tile, staged, n, 3, sums);
    else if (rows > 2)
        multiply_tile(tile, staged, n, 2, sums);
    else
        multiply_tile(tile, staged, n, 1, sums);
}

/* Row r of a tile out of its squares. */
static void store_row(const struct gemm_block *b, const struct gemm_panel *panel, const float *sums,
                      int64_t first, int64_t r)
{
    const float *at = sums + r / 2 * PAIRS * 4 + r % 2 * 2;
    float32x4_t low = vcombine_f32(vld1_f32(at), vld1_f32(at + 4));
    float32x4_t high = vcombine_f32(vld1_f32(at + 8), vld1_f32(at + 12));
    panel_store(panel, b->group, b->row + first + r, low, high);
}

static void tiled_panel(const struct product *p, const struct gemm_block *b,
                        const struct gemm_panel *panel, struct worker *worker)
{
    int64_t n_tiles = gemm_div_up(b->rows, TILE_ROWS);
    memset(worker->sums, 0, (size_t)n_tiles * sizeof *worker->sums);
    for (int64_t k0 = 0; k0 < p->padded; k0 += CHUNK) {
        int64_t n = gemm_min(p->padded - k0, CHUNK);
        if (p->args->w.dtype == DTYPE_MXFP4)
            stage_mxfp4(panel, k0, n, worker->staged);
        else
            stage_bf16(panel, p->args->k, k0, n, worker->staged);
        for (int64_t i = 0; i < n_tiles; i++) {
            const uint16_t *tile = packed_block(p, b) + (i * p->padded + k0) * TILE_ROWS;
            multiply_rows(tile, worker->staged, n, b->rows - i * TILE_ROWS, worker->sums[i]);
        }
    }
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t tile = r / TILE_ROWS;
        store_row(b, panel, worker->sums[tile], tile * TILE_ROWS, r % TILE_ROWS);
    }
}

static void multiply(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    for (int64_t j = begin; j < end; j++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, j);
        int64_t from = (j - b->first_job) * b->panels_per_job;
        int64_t to = gemm_min(from + b->panels_per_job, p->jobs.n_panels);
        for (int64_t i = from; i < to; i++) {
            struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, PANEL_LANES);
            if (!is_direct(p->args, b))
                tiled_panel(p, b, &panel, &p->workers[worker]);
            else if (b->rows == 1)
                direct_panel(p, b, &panel, 1);
            else
                direct_panel(p, b, &panel, 2);
        }
    }
}

static void run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    uint8_t *space = context->workspace;
    struct product p = {
        .args = a,
        .jobs.blocks = (struct gemm_block *)space,
        .packed = (uint16_t *)(space + blocks_bytes(a)),
        .workers = (struct worker *)(space + blocks_bytes(a) + packed_bytes(a)),
        .padded = padded_k(a),
    };
    gemm_make_jobs(&p.jobs, context, a, PANEL_LANES, BLOCK_ROWS, FEW_ROWS);
    pool_for(context->pool, p.jobs.n_rows, 8, pack_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply, &p);
}

const struct op_variant gemm_bf16_w_bfmmla = {
    .name = "gemm_bf16_w_bfmmla",
    .summary = "bf16 activations, bf16 or mxfp4 weights; bfmmla for many rows, bfdot for few",
    .numerics = NUMERICS_BF16,
    .needs = CPU_NEON | CPU_ARM_BF16,
    .can_run = can_run,
    .workspace = workspace,
    .run = run,
    .joins = gemm_joins,
};
