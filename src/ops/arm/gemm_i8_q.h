/* What the two int8 gemms of Arm share: dotprod/gemm_i8_q_dotprod.c holds the driver and the path
 * for few rows, and each of dotprod and i8mm brings its own kernels for tiles (struct i8_tiles).
 *
 * Weights are unpacked into signed int8 (e2m1 doubled), so no offset has to be taken back.
 *
 * Sums of a block are begun at the integer whose bits are the float I8_MAGIC. The sum's bits, read
 * as a float, are then I8_MAGIC + sum, exactly: |sum| <= 32 * 128 * 127 < 2^22. One subtraction,
 * which every vector pipe does, takes the place of a conversion, which on Arm's large cores only
 * half of the pipes do: 24 cycles a block of a tile instead of 26 with sdot, 17.6 instead of 19.7
 * with smmla (llvm-mca 19 for Cortex-X925, which it models as a Neoverse V2; not measured). */
#ifndef OPS_ARM_GEMM_I8_Q_H
#define OPS_ARM_GEMM_I8_Q_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

#include "ops/args.h"
#include "ops/op.h"

#define I8_INLINE static inline __attribute__((always_inline))

enum {
    I8_LANES = 8,  /* weight rows of a panel */
    I8_BLOCK = 32, /* values that share a scale */
    /* 4 rows x 8 weight rows: 8 int32 and 8 float32 sums; dotprod holds 8 operands of A, 2 of W and
     * 4 scales beside them: 30 of 32 registers. */
    I8_TILE_ROWS = 4,
    I8_DIRECT_MAX = 2,
    I8_ROW_BYTES = I8_BLOCK + 4,                    /* a packed block of a row of A */
    I8_TILE_BYTES = I8_TILE_ROWS * I8_ROW_BYTES,    /* and of a tile of rows */
    I8_STAGED = I8_BLOCK * I8_LANES + I8_LANES * 4, /* an unpacked block of a panel */
    I8_SCALES_AT = I8_BLOCK * I8_LANES,             /* where its scales begin */
    I8_MAGIC_BITS = 0x4b400000,                     /* I8_MAGIC */
};
#define I8_MAGIC 12582912.0f /* 1.5 * 2^23 */

/* Kernels for many rows. A tile of A is [k blocks]{4 rows x 32 values in the kernel's order, 4
 * scales}; a staged panel is [k blocks]{8 rows x 32 values in the kernel's order, 8 scales}. */
struct i8_tiles {
    /* Blocks of up to this many rows (0..I8_DIRECT_MAX) of A take the direct path instead. */
    int64_t direct_rows;
    /* One block of 32 values of row `row` (0..3) into a tile's block. */
    void (*pack)(int8x16_t low, int8x16_t high, int64_t row, int8_t *block);
    /* n blocks of a panel: 8 rows from `w` on, `stride` bytes apart. As many bytes at `ahead` will
     * be wanted next. */
    void (*stage)(const uint8_t *w, int64_t stride, int64_t n, bool mxfp4, const uint8_t *ahead,
                  uint8_t *staged);
    /* sums [4][8] += tile * panel, over n blocks. Rows from `rows` on hold anything; what becomes
     * of their sums is up to the kernel. */
    void (*multiply)(const uint8_t *tile, const uint8_t *staged, int64_t n, int64_t rows,
                     float *sums);
};

bool i8_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX]);
size_t i8_workspace(const void *args, int workers);
void i8_run(const struct op_context *context, const struct gemm_args *args,
            const struct i8_tiles *tiles);

/* A block of the next panel, into L2: hardware prefetchers lose track of 8 short rows (seen on x86:
 * ops/vector/gemm.h). */
I8_INLINE void i8_prefetch(const uint8_t *w, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + i, 0, 2);
}

I8_INLINE int64_t i8_block_bytes(bool mxfp4)
{
    return mxfp4 ? (int64_t)sizeof(struct block_mxfp4) : (int64_t)sizeof(struct block_q8_0);
}

/* Scales of a block of 8 rows. They are collected in scalar registers, whose pipes have nothing
 * else to do; loads of single lanes would each take a vector pipe too. */
I8_INLINE void i8_scales(const uint8_t *w, int64_t stride, bool mxfp4, float32x4_t out[2])
{
    if (!mxfp4) {
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            uint64_t bits = 0;
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                uint16_t scale;
                __builtin_memcpy(&scale, w + (4 * h + r) * stride, 2);
                bits |= (uint64_t)scale << (16 * r);
            }
            out[h] = vcvt_f32_f16(vcreate_f16(bits));
        }
        return;
    }
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (int r = 0; r < I8_LANES; r++) bits |= (uint64_t)w[r * stride] << (8 * r);
    /* The upper halves of 2^(e-127): the exponent in place; 0 becomes the subnormal 2^-127, and 255
     * would be Inf but means NaN: one more in the mantissa. */
    uint16x8_t upper = vmaxq_u16(vshll_n_u8(vcreate_u8(bits), 7), vdupq_n_u16(0x40));
    upper = vsubq_u16(upper, vceqq_u16(upper, vdupq_n_u16(0x7f80)));
    out[0] = vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), upper));
    out[1] = vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), upper));
}

/* e2m1 times 2. */
I8_INLINE int8x16_t i8_e2m1_table(void)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return vld1q_s8(values);
}

/* Low nibbles are values 0..15 of a block, high ones 16..31. */
I8_INLINE void i8_unpack(uint8x16_t nibbles, int8x16_t table, int8x16_t *low, int8x16_t *high)
{
    *low = vqtbl1q_s8(table, vandq_u8(nibbles, vdupq_n_u8(15)));
    *high = vqtbl1q_s8(table, vshrq_n_u8(nibbles, 4));
}

/* sum + (bits of a sum begun at I8_MAGIC, as a number) * scale */
I8_INLINE float32x4_t i8_scaled(int32x4_t bits, float32x4_t scale)
{
    return vmulq_f32(vsubq_f32(vreinterpretq_f32_s32(bits), vdupq_n_f32(I8_MAGIC)), scale);
}

#endif
