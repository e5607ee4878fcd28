/* gemm with int8 activations and MXFP4 or Q8_0 weights by smmla, which multiplies 2 rows x 8 by
 * 8 x 2 weight rows: half the instructions of sdot. Everything but the tiles for two rows and more
 * is dotprod/gemm_i8_q_dotprod.c; one row waits for memory, whatever multiplies it. */
#include "base/cpu.h"
#include "ops/args.h"
#include "ops/arm/gemm_i8_q.h"
#include "ops/gemm_jobs.h"

/* Unpacking is 47 vector operations per 8 weight blocks, a tile of 2 rows 37 and one of 4 rows 70:
 * from 2 rows on less than the direct path's 119. */
enum { DIRECT_ROWS = 1 };

/* [4 steps of 8 values][4 rows][8] */
static void i8mm_pack(int8x16_t low, int8x16_t high, int64_t row, int8_t *block)
{
    int8_t *at = block + row * 8;
    vst1_s8(at, vget_low_s8(low));
    vst1_s8(at + 32, vget_high_s8(low));
    vst1_s8(at + 64, vget_low_s8(high));
    vst1_s8(at + 96, vget_high_s8(high));
}

I8_INLINE uint8x16_t zip_low(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

I8_INLINE uint8x16_t zip_high(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

/* [4 steps of 8 values][8 rows][8] */
I8_INLINE void i8mm_stage_as(const uint8_t *w, int64_t stride, int64_t n, const bool mxfp4,
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
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            const uint8_t *first = w + 2 * pair * stride, *second = first + stride;
            int8_t *at = (int8_t *)staged + pair * 16;
            if (mxfp4) {
                uint8x16_t a = vld1q_u8(first + 1), b = vld1q_u8(second + 1);
                int8x16_t v[4];
                i8_unpack(zip_low(a, b), table, &v[0], &v[2]);
                i8_unpack(zip_high(a, b), table, &v[1], &v[3]);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) vst1q_s8(at + i * 64, v[i]);
            } else {
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    uint8x16_t a = vld1q_u8(first + 2 + half * 16);
                    uint8x16_t b = vld1q_u8(second + 2 + half * 16);
                    vst1q_u8((uint8_t *)at + half * 128, zip_low(a, b));
                    vst1q_u8((uint8_t *)at + half * 128 + 64, zip_high(a, b));
                }
            }
        }
    }
}

static void i8mm_stage(const uint8_t *w, int64_t stride, int64_t n, bool mxfp4,
                       const uint8_t *ahead, uint8_t *staged)
{
    if (mxfp4)
        i8mm_stage_as(w, stride, n, true, ahead, staged);
    else
        i8mm_stage_as(w, stride, n, false, ahead, staged);
}

/* Two rows of four lanes as two squares of 2 x 2, and back: the same shuffle both ways. */
I8_INLINE void squares(float32x4_t *a, float32x4_t *b)
{
    float64x2_t x = vreinterpretq_f64_f32(*a), y = vreinterpretq_f64_f32(*b);
    *a = vreinterpretq_f32_f64(vzip1q_f64(x, y));
    *b = vreinterpretq_f32_f64(vzip2q_f64(x, y));
}

/* `pairs` pairs of rows of A times the 4 pairs of weight rows. sum[p][j] is the square of rows 2p,
 * 2p+1 and weight rows 2j, 2j+1. */
I8_INLINE void i8mm_tile(const uint8_t *tile, const uint8_t *staged, int64_t n, const int pairs,
                         float *sums)
{
    float32x4_t sum[2][4];
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        float *rows = sums + 2 * p * I8_LANES;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            sum[p][2 * h] = vld1q_f32(rows + 4 * h);
            sum[p][2 * h + 1] = vld1q_f32(rows + I8_LANES + 4 * h);
            squares(&sum[p][2 * h], &sum[p][2 * h + 1]);
        }
    }
    for (int64_t k = 0; k < n; k++, tile += I8_TILE_BYTES, staged += I8_STAGED) {
        int32x4_t dot[2][4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) dot[0][j] = dot[1][j] = vdupq_n_s32(I8_MAGIC_BITS);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            int8x16_t x[2];
#pragma GCC unroll 2
            for (int p = 0; p < pairs; p++) x[p] = vld1q_s8((const int8_t *)tile + i * 32 + p * 16);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                int8x16_t w = vld1q_s8((const int8_t *)staged + i * 64 + j * 16);
#pragma GCC unroll 2
                for (int p = 0; p < pairs; p++) dot[p][j] = vmmlaq_s32(dot[p][j], x[p], w);
            }
        }
        float32x4_t scales = vld1q_f32((const float *)(tile + I8_TILE_ROWS * I8_BLOCK)), scale[2];
        scale[0] = vzip1q_f32(scales, scales);
        scale[1] = vzip2q_f32(scales, scales);
        const double *w_scales = (const double *)(staged + I8_SCALES_AT);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            float32x4_t two = vreinterpretq_f32_f64(vld1q_dup_f64(w_scales + j));
#pragma GCC unroll 2
            for (int p = 0; p < pairs; p++)
                sum[p][j] = vfmaq_f32(sum[p][j], i8_scaled(dot[p][j], two), scale[p]);
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        float *rows = sums + 2 * p * I8_LANES;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            squares(&sum[p][2 * h], &sum[p][2 * h + 1]);
            vst1q_f32(rows + 4 * h, sum[p][2 * h]);
            vst1q_f32(rows + I8_LANES + 4 * h, sum[p][2 * h + 1]);
        }
    }
}

static void i8mm_multiply(const uint8_t *tile, const uint8_t *staged, int64_t n, int64_t rows,
                          float *sums)
{
    if (rows <= 2)
        i8mm_tile(tile, staged, n, 1, sums);
    else
        i8mm_tile(tile, staged, n, 2, sums);
}

static void run(const struct op_context *context, const void *args)
{
    static const struct i8_tiles tiles = {DIRECT_ROWS, i8mm_pack, i8mm_stage, i8mm_multiply};
    i8_run(context, args, &tiles);
}

const struct op_variant gemm_i8_q_i8mm = {
    .name = "gemm_i8_q_i8mm",
    .summary = "int8 activations, mxfp4 or q8_0 weights; smmla for many rows, sdot for few",
    .numerics = NUMERICS_I8,
    .needs = CPU_NEON | CPU_DOTPROD | CPU_I8MM,
    .can_run = i8_can_run,
    .workspace = i8_workspace,
    .run = run,
    .joins = gemm_joins,
};
