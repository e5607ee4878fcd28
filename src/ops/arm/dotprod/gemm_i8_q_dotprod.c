/* gemm with int8 activations and MXFP4 or Q8_0 weights, on Arm: the driver and the sdot kernels.
 *
 * Phase 1 quantises the rows of A, per 32 values. Phase 2 multiplies, panels of 8 weight rows at a
 * time, weights in their file layout. Sums over a block of 32 are exact; then
 * c += sum * scale of weights * scale of activations in float32.
 *  - *direct*, for blocks of one or two rows of A: weights go from registers into sdot along k, and
 *    the four lanes of four weight rows are added pairwise into one vector. One row of A takes 77
 *    vector operations and 3 prefetches per 8 weight blocks (136 bytes of MXFP4).
 *  - *tiled*: a panel times CHUNK blocks of k is unpacked into L1, turned so that a lane is a
 *    weight row, and all tiles of A run over it: 4 rows x 8 weight rows of sums in registers.
 *    Turning and unpacking is 55 vector operations a block, a tile of 1..4 rows 24, 48, 72, 96.
 *
 * The tiled kernels come in a table, so that i8mm/gemm_i8_q_i8mm.c uses all else here. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/arm/gemm_i8_q.h"
#include "ops/arm/panel.h"
#include "ops/gemm_jobs.h"

enum {
    /* Direct against tiled, in vector operations per block for 1, 2, 3, 4 rows: 77, 116, 153, 188
     * against 79, 103, 127, 151 (gcc 12, MXFP4); at 2 rows direct has no stores and 160
     * instructions against 181. */
    DIRECT_ROWS = 2,
    FEW_ROWS = 8, /* blocks of so few wait for weights: longer jobs, for longer streams */
    /* 128 x 2880 activations with scales are 415 KB: they stay in the 512 KB L2 of a Cortex-A725
     * (an X925 has 2 MB). */
    BLOCK_ROWS = 128,
    CHUNK = 96, /* 28 KB of a 64 KB L1; the 90 blocks of gpt-oss's rows are one chunk */
};

struct worker {
    _Alignas(64) uint8_t staged[CHUNK * I8_STAGED];
    _Alignas(64) float sums[BLOCK_ROWS * I8_LANES];
};

struct product {
    const struct gemm_args *args;
    const struct i8_tiles *tiles;
    struct gemm_jobs jobs;
    uint8_t *packed;
    struct worker *workers;
    int64_t k_blocks;
    float value_scale; /* of one step of the unpacked weights */
};

static size_t blocks_bytes(const struct gemm_args *a)
{
    return align64((size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block));
}

/* The last tile of a block may have room for three rows more than there are. */
static size_t packed_bytes(const struct gemm_args *a)
{
    int64_t rows = a->m + gemm_max_blocks(a, BLOCK_ROWS) * (I8_TILE_ROWS - 1);
    return align64((size_t)rows * (size_t)(a->k / I8_BLOCK) * I8_ROW_BYTES);
}

size_t i8_workspace(const void *args, int workers)
{
    return blocks_bytes(args) + packed_bytes(args) + (size_t)workers * sizeof(struct worker);
}

bool i8_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    const struct gemm_args *a = args;
    if (a->w.dtype == DTYPE_MXFP4 || a->w.dtype == DTYPE_Q8_0) return true;
    snprintf(why, OP_REASON_MAX, "weights are %s, this variant reads mxfp4 and q8_0",
             dtype_info(a->w.dtype)->name);
    return false;
}

/* Packed rows of a block: its tiles one after the other, or, when it is direct, one tile that is
 * [k blocks]{rows x 32 values, rows scales}. */
static uint8_t *packed_block(const struct product *p, const struct gemm_block *b)
{
    int64_t before = b->row + (b - p->jobs.blocks) * (I8_TILE_ROWS - 1);
    return p->packed + before * p->k_blocks * I8_ROW_BYTES;
}

/* ---- phase 1 ---- */

/* q = round(x / scale), |q| <= 127. A block that holds NaN or Inf gets scale NaN and q 0: whatever
 * it is multiplied by becomes NaN. */
static inline float quantise(const float *x, int8x16_t *low, int8x16_t *high)
{
    float32x4_t v[8];
    uint32x4_t top = vdupq_n_u32(0);
    /* As integers, magnitudes order like the floats, with Inf and NaN on top. */
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    uint32_t bits = vmaxvq_u32(top);
    float max, up = 1;
    memcpy(&max, &bits, sizeof max);
    if (bits >= 0x7f800000u || bits == 0) {
        *low = *high = vdupq_n_s8(0);
        return bits ? __builtin_nanf("") : 0;
    }
    if (max < 0x1p-100f) up = 0x1p100f; /* keeps 127 / max finite */
    float factor = 127.0f / (max * up);
    int16x4_t q[8];
    for (int i = 0; i < 8; i++)
        q[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vmulq_n_f32(v[i], up), factor)));
    *low = vcombine_s8(vqmovn_s16(vcombine_s16(q[0], q[1])), vqmovn_s16(vcombine_s16(q[2], q[3])));
    *high = vcombine_s8(vqmovn_s16(vcombine_s16(q[4], q[5])), vqmovn_s16(vcombine_s16(q[6], q[7])));
    return max / 127.0f;
}

static void pack_row(const struct product *p, const struct gemm_block *b, int64_t row)
{
    const struct gemm_args *a = p->args;
    const float *x =
        matrix_floats(&a->a) + (a->a_rows ? a->a_rows[b->row + row] : b->row + row) * a->k;
    uint8_t *block = packed_block(p, b);
    bool direct = b->rows <= p->tiles->direct_rows;
    int64_t rows = direct ? b->rows : I8_TILE_ROWS, r = row;
    if (!direct) {
        block += row / I8_TILE_ROWS * p->k_blocks * I8_TILE_BYTES;
        r = row % I8_TILE_ROWS;
    }
    for (int64_t k = 0; k < p->k_blocks; k++, block += rows * I8_ROW_BYTES) {
        int8x16_t low, high;
        float scale = quantise(x + k * I8_BLOCK, &low, &high) * p->value_scale;
        memcpy(block + rows * I8_BLOCK + r * 4, &scale, sizeof scale);
        if (direct) {
            vst1q_s8((int8_t *)block + r * I8_BLOCK, low);
            vst1q_s8((int8_t *)block + r * I8_BLOCK + 16, high);
        } else {
            p->tiles->pack(low, high, r, (int8_t *)block);
        }
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

/* One panel times a block of `rows` rows of A. */
I8_INLINE void direct_panel(const struct product *p, const struct gemm_block *b,
                            const struct gemm_panel *panel, const int rows, const bool mxfp4)
{
    const int64_t bytes = i8_block_bytes(mxfp4), stride = panel->stride;
    const uint8_t *w = panel->w, *ahead = panel->w + I8_LANES * stride;
    const uint8_t *block = packed_block(p, b);
    const int8x16_t table = i8_e2m1_table();
    const int32x4_t start = vsetq_lane_s32(I8_MAGIC_BITS, vdupq_n_s32(0), 0);
    float32x4_t sum[I8_DIRECT_MAX][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = vdupq_n_f32(0);
    for (int64_t k = 0; k < p->k_blocks; k++) {
        const int8_t *q = (const int8_t *)block;
        const float *scales = (const float *)(block + rows * I8_BLOCK);
        float32x4_t scale[2];
        i8_prefetch(ahead, I8_LANES * bytes);
        i8_scales(w, stride, mxfp4, scale);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            int8x16_t low[4], high[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const uint8_t *at = w + (4 * h + i) * stride;
                if (mxfp4) {
                    i8_unpack(vld1q_u8(at + 1), table, &low[i], &high[i]);
                } else {
                    low[i] = vld1q_s8((const int8_t *)at + 2);
                    high[i] = vld1q_s8((const int8_t *)at + 18);
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                int8x16_t x = vld1q_s8(q + r * I8_BLOCK), y = vld1q_s8(q + r * I8_BLOCK + 16);
                int32x4_t dot[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    dot[i] = vdotq_s32(vdotq_s32(start, low[i], x), high[i], y);
                int32x4_t all = vpaddq_s32(vpaddq_s32(dot[0], dot[1]), vpaddq_s32(dot[2], dot[3]));
                sum[r][h] = vfmaq_n_f32(sum[r][h], i8_scaled(all, scale[h]), scales[r]);
            }
        }
        w += bytes;
        ahead += I8_LANES * bytes;
        block += rows * I8_ROW_BYTES;
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) panel_store(panel, b->group, b->row + r, sum[r][0], sum[r][1]);
}

I8_INLINE void direct_rows(const struct product *p, const struct gemm_block *b,
                           const struct gemm_panel *panel, const bool mxfp4)
{
    if (b->rows == 1)
        direct_panel(p, b, panel, 1, mxfp4);
    else
        direct_panel(p, b, panel, 2, mxfp4);
}

static void direct_job(const struct product *p, const struct gemm_block *b, int64_t begin,
                       int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, I8_LANES);
        if (p->args->w.dtype == DTYPE_MXFP4)
            direct_rows(p, b, &panel, true);
        else
            direct_rows(p, b, &panel, false);
    }
}

/* ---- tiled ---- */

static void tiled_panel(const struct product *p, const struct gemm_block *b,
                        const struct gemm_panel *panel, struct worker *worker)
{
    const bool mxfp4 = p->args->w.dtype == DTYPE_MXFP4;
    int64_t n_tiles = gemm_div_up(b->rows, I8_TILE_ROWS);
    memset(worker->sums, 0, (size_t)n_tiles * I8_TILE_ROWS * I8_LANES * sizeof(float));
    for (int64_t c = 0; c < gemm_div_up(p->k_blocks, CHUNK); c++) {
        int64_t k0, n = gemm_tile_rows(p->k_blocks, CHUNK, c, &k0);
        int64_t bytes = i8_block_bytes(mxfp4), stride = panel->stride;
        p->tiles->stage(panel->w + k0 * bytes, stride, n, mxfp4,
                        panel->w + I8_LANES * (stride + k0 * bytes), worker->staged);
        for (int64_t i = 0; i < n_tiles; i++) {
            const uint8_t *tile = packed_block(p, b) + (i * p->k_blocks + k0) * I8_TILE_BYTES;
            p->tiles->multiply(tile, worker->staged, n,
                               gemm_min(b->rows - i * I8_TILE_ROWS, I8_TILE_ROWS),
                               worker->sums + i * I8_TILE_ROWS * I8_LANES);
        }
    }
    for (int64_t r = 0; r < b->rows; r++) {
        const float *sums = worker->sums + r * I8_LANES;
        panel_store(panel, b->group, b->row + r, vld1q_f32(sums), vld1q_f32(sums + 4));
    }
}

static void multiply_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct product *p = arg;
    for (int64_t j = begin; j < end; j++) {
        const struct gemm_block *b = gemm_block_of_job(&p->jobs, j);
        int64_t from = (j - b->first_job) * b->panels_per_job;
        int64_t to = gemm_min(from + b->panels_per_job, p->jobs.n_panels);
        if (b->rows <= p->tiles->direct_rows) {
            direct_job(p, b, from, to);
            continue;
        }
        for (int64_t i = from; i < to; i++) {
            struct gemm_panel panel = gemm_panel_at(&p->jobs, b->group, i, I8_LANES);
            tiled_panel(p, b, &panel, &p->workers[worker]);
        }
    }
}

void i8_run(const struct op_context *context, const struct gemm_args *args,
            const struct i8_tiles *tiles)
{
    uint8_t *space = context->workspace;
    struct product p = {
        .args = args,
        .tiles = tiles,
        .jobs.blocks = (struct gemm_block *)space,
        .packed = space + blocks_bytes(args),
        .workers = (struct worker *)(space + blocks_bytes(args) + packed_bytes(args)),
        .k_blocks = args->k / I8_BLOCK,
        .value_scale = args->w.dtype == DTYPE_MXFP4 ? 0.5f : 1.0f,
    };
    gemm_make_jobs(&p.jobs, context, args, I8_LANES, BLOCK_ROWS, FEW_ROWS);
    pool_for(context->pool, p.jobs.n_rows, 8, pack_rows, &p);
    pool_for(context->pool, p.jobs.n_jobs, 1, multiply_jobs, &p);
}

/* ---- tiles for sdot: 4 values of k in a lane ---- */

/* [4 rows][32] */
static void dotprod_pack(int8x16_t low, int8x16_t high, int64_t row, int8_t *block)
{
    vst1q_s8(block + row * I8_BLOCK, low);
    vst1q_s8(block + row * I8_BLOCK + 16, high);
}

/* Four rows of 16 bytes into out[i] = bytes 4i .. 4i+3 of each row. */
I8_INLINE void turn(const uint8_t *w, int64_t stride, uint8x16_t out[4])
{
    uint32x4_t r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) r[i] = vreinterpretq_u32_u8(vld1q_u8(w + i * stride));
    uint64x2_t a = vreinterpretq_u64_u32(vzip1q_u32(r[0], r[1]));
    uint64x2_t b = vreinterpretq_u64_u32(vzip1q_u32(r[2], r[3]));
    uint64x2_t c = vreinterpretq_u64_u32(vzip2q_u32(r[0], r[1]));
    uint64x2_t d = vreinterpretq_u64_u32(vzip2q_u32(r[2], r[3]));
    out[0] = vreinterpretq_u8_u64(vzip1q_u64(a, b));
    out[1] = vreinterpretq_u8_u64(vzip2q_u64(a, b));
    out[2] = vreinterpretq_u8_u64(vzip1q_u64(c, d));
    out[3] = vreinterpretq_u8_u64(vzip2q_u64(c, d));
}

/* [8 steps of 4 values][8 rows][4] */
I8_INLINE void dotprod_stage_as(const uint8_t *w, int64_t stride, int64_t n, const bool mxfp4,
                                const uint8_t *ahead, uint8_t *staged)
{
    const int64_t bytes = i8_block_bytes(mxfp4);
    const int8x16_t table = i8_e2m1_table();
    for (int64_t k = 0; k < n; k++, staged += I8_STAGED, w += bytes, ahead += I8_LANES * bytes) {
        float32x4_t scale[2];
        i8_prefetch(ahead, I8_LANES * bytes);
        i8_scales(w, stride, mxfp4, scale);
        vst1q_f32((float *)(staged + I8_SCALES_AT), scale[0]);
        vst1q_f32((float *)(staged + I8_SCALES_AT) + 4, scale[1]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const uint8_t *rows = w + 4 * h * stride;
            uint8x16_t v[8];
            turn(rows + (mxfp4 ? 1 : 2), stride, v);
            if (!mxfp4) turn(rows + 18, stride, v + 4);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                int8x16_t low = vreinterpretq_s8_u8(v[i]), high = vreinterpretq_s8_u8(v[i + 4]);
                if (mxfp4) i8_unpack(v[i], table, &low, &high);
                vst1q_s8((int8_t *)staged + i * 32 + h * 16, low);
                vst1q_s8((int8_t *)staged + (i + 4) * 32 + h * 16, high);
            }
        }
    }
}

static void dotprod_stage(const uint8_t *w, int64_t stride, int64_t n, bool mxfp4,
                          const uint8_t *ahead, uint8_t *staged)
{
    if (mxfp4)
        dotprod_stage_as(w, stride, n, true, ahead, staged);
    else
        dotprod_stage_as(w, stride, n, false, ahead, staged);
}

/* sum[r][h] += step i (of 8) of k, for all rows of the tile; x is the half of each row of A that
 * holds the step. vdotq_laneq_s32 wants its lane as a constant. */
#define STEP(i)                                                                                    \
    do {                                                                                           \
        int8x16_t w0 = vld1q_s8(values + (i)*32), w1 = vld1q_s8(values + (i)*32 + 16);             \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                     \
        {                                                                                          \
            dot[r][0] = vdotq_laneq_s32(dot[r][0], w0, x[r], (i) % 4);                             \
            dot[r][1] = vdotq_laneq_s32(dot[r][1], w1, x[r], (i) % 4);                             \
        }                                                                                          \
    } while (0)

I8_INLINE void dotprod_tile(const uint8_t *tile, const uint8_t *staged, int64_t n, const int rows,
                            float *sums)
{
    float32x4_t sum[I8_TILE_ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        sum[r][0] = vld1q_f32(sums + r * I8_LANES);
        sum[r][1] = vld1q_f32(sums + r * I8_LANES + 4);
    }
    for (int64_t k = 0; k < n; k++, tile += I8_TILE_BYTES, staged += I8_STAGED) {
        const int8_t *q = (const int8_t *)tile, *values = (const int8_t *)staged;
        const float *scales = (const float *)(staged + I8_SCALES_AT);
        int8x16_t x[I8_TILE_ROWS];
        int32x4_t dot[I8_TILE_ROWS][2];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            x[r] = vld1q_s8(q + r * I8_BLOCK);
            dot[r][0] = dot[r][1] = vdupq_n_s32(I8_MAGIC_BITS);
        }
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
        /* Keeps gcc from loading the second halves beside the first ones, for want of registers:
         * 10 accesses to the stack a block. */
        __asm__ volatile("" : : : "memory");
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) x[r] = vld1q_s8(q + r * I8_BLOCK + 16);
        STEP(4);
        STEP(5);
        STEP(6);
        STEP(7);
        float32x4_t s0 = vld1q_f32(scales), s1 = vld1q_f32(scales + 4);
        const float *row_scales = (const float *)(tile + I8_TILE_ROWS * I8_BLOCK);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            sum[r][0] = vfmaq_n_f32(sum[r][0], i8_scaled(dot[r][0], s0), row_scales[r]);
            sum[r][1] = vfmaq_n_f32(sum[r][1], i8_scaled(dot[r][1], s1), row_scales[r]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vst1q_f32(sums + r * I8_LANES, sum[r][0]);
        vst1q_f32(sums + r * I8_LANES + 4, sum[r][1]);
    }
}

static void dotprod_multiply(const uint8_t *tile, const uint8_t *staged, int64_t n, int64_t rows,
                             float *sums)
{
    switch (rows) {
    case 1:
        dotprod_tile(tile, staged, n, 1, sums);
        break;
    case 2:
        dotprod_tile(tile, staged, n, 2, sums);
        break;
    case 3:
        dotprod_tile(tile, staged, n, 3, sums);
        break;
    default:
        dotprod_tile(tile, staged, n, 4, sums);
        break;
    }
}

static void run(const struct op_context *context, const void *args)
{
    static const struct i8_tiles tiles = {DIRECT_ROWS, dotprod_pack, dotprod_stage,
                                          dotprod_multiply};
    i8_run(context, args, &tiles);
}

const struct op_variant gemm_i8_q_dotprod = {
    .name = "gemm_i8_q_dotprod",
    .summary = "int8 activations, mxfp4 or q8_0 weights; sdot, weights unpacked panel by panel",
    .numerics = NUMERICS_I8,
    .needs = CPU_NEON | CPU_DOTPROD,
    .can_run = i8_can_run,
    .workspace = i8_workspace,
    .run = run,
    .joins = gemm_joins,
};
