/* The exact gemm and grouped_gemm of ops/vector/ for NEON. */
#include <arm_neon.h>
#include <stdint.h>

/* 16 sums, 4 weights, 1 activation of 32 registers. 6 would fit, but what is left over when rows
 * are no multiple of the tile is done row by row. */
#define TILE_TOKENS 4
#define LANES       4
#define NEEDS       CPU_NEON
#define NAMED(op)   op##_f32_neon
#define NAME_OF(op) #op "_f32_neon"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline float scale_of_f16(uint16_t bits)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

static inline vfloat vector_load_i8(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t halves = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return (vfloat)vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)));
}

/* The upper two bytes of each float, looked up apart; the lower two are zero. No conversion: those
 * run on half of the vector pipes of Arm's large cores (see arm/gemm_i8_q.h), shuffles on all. */
static inline void bytes_to_floats(uint8x16_t first, uint8x16_t second, vfloat out[4])
{
    const uint16x8_t zero = vdupq_n_u16(0);
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(second, first));
    uint16x8_t high = vreinterpretq_u16_u8(vzip2q_u8(second, first));
    out[0] = (vfloat)vzip1q_u16(zero, low);
    out[1] = (vfloat)vzip2q_u16(zero, low);
    out[2] = (vfloat)vzip1q_u16(zero, high);
    out[3] = (vfloat)vzip2q_u16(zero, high);
}

static inline void vector_decode_e2m1(const uint8_t nibbles[16], vfloat out[8])
{
    static const uint8_t tops[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    static const uint8_t seconds[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                        0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    uint8x16_t first = vld1q_u8(tops), second = vld1q_u8(seconds), bytes = vld1q_u8(nibbles);
    uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15)), high = vshrq_n_u8(bytes, 4);
    bytes_to_floats(vqtbl1q_u8(first, low), vqtbl1q_u8(second, low), out);
    bytes_to_floats(vqtbl1q_u8(first, high), vqtbl1q_u8(second, high), out + 4);
}

#include "ops/vector/gemm.h"
#include "ops/vector/grouped_gemm.h"
