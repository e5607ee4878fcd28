/* Number formats. Every small float (fp16, the fp8s, e2m1) goes through one pair of functions that
 * take the widths of its exponent and mantissa, so that rounding and subnormals are right once.
 * Arithmetic on float32 subnormals is avoided on the way from small floats: a caller may run with
 * them flushed.
 *
 * What has no number in a format when encoding:
 *   fp16, bf16, e5m2   Inf stays Inf, too large becomes Inf, NaN stays a quiet NaN
 *   e4m3               Inf and too large become +-448, NaN stays NaN
 *   e2m1               Inf and too large become +-6, NaN becomes +0
 *   e8m0               nearest power of two (between two of them, the even code); zero becomes the
 *                      smallest, too large the largest, NaN, Inf and negative numbers NaN
 *   mxfp4, nvfp4, q8_0 a block that holds a NaN or Inf decodes to 32 NaNs
 *   nvfp4              a block beyond 6 * 448 saturates
 *   q8_0               a block beyond 127 * 65504 saturates; q rounds ties away from zero (ggml) */
#include "format/dtype.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value >> shift, to nearest, ties to even; shift 1..31. */
static inline uint32_t shift_round(uint32_t value, int shift)
{
    uint32_t half = 1u << (shift - 1);
    uint32_t odd = (value >> shift) & 1u;
    return (value + half - 1u + odd) >> shift;
}

/* Code (without sign) of the finite magnitude `bits`, in a format with `man` mantissa bits and
 * exponent bias `bias`. Rounding up may carry into the exponent, and codes beyond the format's last
 * one come out for what is too large: the caller decides what they mean. */
static inline uint32_t small_encode(uint32_t bits, int man, int bias)
{
    int exponent = (int)(bits >> 23) - 127;
    int shift = 23 - man;
    if (exponent >= 1 - bias) return shift_round(bits - ((uint32_t)(127 - bias) << 23), shift);
    shift += 1 - bias - exponent;
    if (shift > 24) return 0; /* below half of the smallest subnormal; so are float32 subnormals */
    return shift_round((bits & 0x7fffffu) | 0x800000u, shift);
}

/* The magnitude that `code` (without sign, finite) stands for. */
static inline float small_decode(uint32_t code, int man, int bias)
{
    if (code >> man) return f32_from_bits((code << (23 - man)) + ((uint32_t)(127 - bias) << 23));
    return (float)code * f32_from_bits((uint32_t)(127 + 1 - bias - man) << 23);
}

/* ---- single numbers ---- */

float bf16_to_f32(uint16_t bits)
{
    return f32_from_bits((uint32_t)bits << 16);
}

uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, code = bits & 0x7fffu;
    uint32_t magnitude =
        code >= 0x7c00u ? code << 13 | 0x7f800000u : f32_bits(small_decode(code, 10, 15));
    return f32_from_bits(sign | magnitude);
}

uint16_t f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    uint32_t code = magnitude >= 0x7f800000u ? 0x7c00u : small_encode(magnitude, 10, 15);
    return (uint16_t)(sign | (code > 0x7c00u ? 0x7c00u : code));
}

float fp8_e4m3_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24, code = bits & 0x7fu;
    uint32_t magnitude = code == 0x7fu ? 0x7fc00000u : f32_bits(small_decode(code, 3, 7));
    return f32_from_bits(sign | magnitude);
}

uint8_t fp8_e4m3_from_f32(float value)
{
    uint32_t bits = f32_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    uint32_t code = small_encode(magnitude, 3, 7);
    return (uint8_t)(sign | (code > 0x7eu ? 0x7eu : code));
}

float fp8_e5m2_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24, code = bits & 0x7fu;
    uint32_t magnitude =
        code >= 0x7cu ? code << 21 | 0x7f800000u : f32_bits(small_decode(code, 2, 15));
    return f32_from_bits(sign | magnitude);
}

uint8_t fp8_e5m2_from_f32(float value)
{
    uint32_t bits = f32_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7eu);
    uint32_t code = small_encode(magnitude, 2, 15);
    return (uint8_t)(sign | (code > 0x7cu ? 0x7cu : code));
}

float e8m0_to_f32(uint8_t bits)
{
    if (bits == 255) return f32_from_bits(0x7fc00000u);
    return f32_from_bits(bits == 0 ? 0x00400000u
                                   : (uint32_t)bits << 23); /* 0: 2^-127, a subnormal */
}

static uint8_t e8m0_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if (bits == 0x80000000u) bits = 0;
    if (bits >= 0x7f800000u) return 255; /* NaN, Inf and everything with a sign */
    if (bits < 0x00800000u) return bits > 0x00600000u ? 1 : 0;
    uint32_t code = bits >> 23, rest = bits & 0x7fffffu;
    if (rest > 0x400000u || (rest == 0x400000u && (code & 1u))) code++;
    return (uint8_t)(code > 254u ? 254u : code);
}

static const float e2m1_values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float e2m1_to_f32(uint8_t nibble)
{
    return e2m1_values[nibble & 15u];
}

uint8_t e2m1_from_f32(float value)
{
    uint32_t bits = f32_bits(value), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0;
    uint32_t code = small_encode(magnitude, 1, 1);
    return (uint8_t)((bits >> 28 & 8u) | (code > 7u ? 7u : code));
}

/* ---- rows of plain formats ---- */

static void f32_decode_row(const void *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void f32_encode_row(const float *src, void *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *src);
}

#define DEFINE_ROW16(type)                                                                         \
    static void type##_decode_row(const void *src, float *dst, int64_t n)                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            uint16_t bits;                                                                         \
            memcpy(&bits, (const char *)src + 2 * i, sizeof bits);                                 \
            dst[i] = type##_to_f32(bits);                                                          \
        }                                                                                          \
    }                                                                                              \
    static void type##_encode_row(const float *src, void *dst, int64_t n)                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            uint16_t bits = type##_from_f32(src[i]);                                               \
            memcpy((char *)dst + 2 * i, &bits, sizeof bits);                                       \
        }                                                                                          \
    }

#define DEFINE_ROW8(type)                                                                          \
    static void type##_decode_row(const void *src, float *dst, int64_t n)                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) dst[i] = type##_to_f32(((const uint8_t *)src)[i]);         \
    }                                                                                              \
    static void type##_encode_row(const float *src, void *dst, int64_t n)                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = type##_from_f32(src[i]);             \
    }

DEFINE_ROW16(f16)
DEFINE_ROW16(bf16)
DEFINE_ROW8(fp8_e4m3)
DEFINE_ROW8(fp8_e5m2)
DEFINE_ROW8(e8m0)

/* ---- rows of blocked formats ---- */

/* Largest magnitude of n numbers; false when one is NaN or Inf. */
static bool largest_of(const float *src, int n, float *amax)
{
    uint32_t largest = 0;
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = f32_bits(src[i]) & 0x7fffffffu;
        if (magnitude > largest) largest = magnitude;
    }
    *amax = f32_from_bits(largest);
    return largest < 0x7f800000u;
}

static bool block_max(const float *src, float *amax)
{
    return largest_of(src, BLOCK, amax);
}

static void mxfp4_decode_row(const void *src, float *dst, int64_t n)
{
    const struct block_mxfp4 *block = src; /* bytes only, so any alignment is right */
    for (int64_t b = 0; b < n / BLOCK; b++, block++, dst += BLOCK) {
        float scale = e8m0_to_f32(block->scale);
        for (int j = 0; j < 16; j++) {
            dst[j] = e2m1_values[block->nibbles[j] & 15u] * scale;
            dst[j + 16] = e2m1_values[block->nibbles[j] >> 4] * scale;
        }
    }
}

/* The scale puts the largest magnitude into e2m1's top binade, 4 to 6 (OCP MX v1.0, 6.3). */
static void mxfp4_encode_row(const float *src, void *dst, int64_t n)
{
    struct block_mxfp4 *block = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, block++, src += BLOCK) {
        float amax;
        memset(block, 0, sizeof *block);
        if (!block_max(src, &amax)) {
            block->scale = 255;
            continue;
        }
        if (amax == 0.0f) continue;
        int exponent;
        frexpf(amax, &exponent); /* amax = m * 2^exponent, m in [0.5, 1) */
        int scale = exponent - 1 - 2 + 127;
        block->scale = (uint8_t)(scale < 0 ? 0 : scale);
        float inverse = e8m0_to_f32((uint8_t)(254 - block->scale));
        for (int j = 0; j < 16; j++) {
            block->nibbles[j] = (uint8_t)(e2m1_from_f32(src[j] * inverse) |
                                          e2m1_from_f32(src[j + 16] * inverse) << 4);
        }
    }
}

void mxfp4_hf_decode(const uint8_t nibbles[16], uint8_t scale, float dst[32])
{
    float factor = e8m0_to_f32(scale);
    for (int j = 0; j < 16; j++) {
        dst[2 * j] = e2m1_values[nibbles[j] & 15u] * factor;
        dst[2 * j + 1] = e2m1_values[nibbles[j] >> 4] * factor;
    }
}

static void nvfp4_decode_row(const void *src, float *dst, int64_t n)
{
    const struct block_nvfp4 *block = src; /* bytes only, so any alignment is right */
    for (int64_t b = 0; b < n / BLOCK_NVFP4; b++, block++, dst += BLOCK_NVFP4) {
        float scale = fp8_e4m3_to_f32(block->scale);
        for (int j = 0; j < BLOCK_NVFP4; j++)
            dst[j] = e2m1_to_f32((uint8_t)(block->nibbles[j / 2] >> j % 2 * 4)) * scale;
    }
}

/* The scale takes the largest magnitude to 6, the largest code. One that is 0 makes all 0. */
static void nvfp4_encode_row(const float *src, void *dst, int64_t n)
{
    struct block_nvfp4 *block = dst;
    for (int64_t b = 0; b < n / BLOCK_NVFP4; b++, block++, src += BLOCK_NVFP4) {
        float amax;
        memset(block, 0, sizeof *block);
        if (!largest_of(src, BLOCK_NVFP4, &amax)) {
            block->scale = 0x7f;
            continue;
        }
        block->scale = fp8_e4m3_from_f32(amax / 6);
        float scale = fp8_e4m3_to_f32(block->scale);
        for (int j = 0; j < BLOCK_NVFP4 && scale > 0; j++)
            block->nibbles[j / 2] |= (uint8_t)(e2m1_from_f32(src[j] / scale) << j % 2 * 4);
    }
}

static void q8_0_decode_row(const void *src, float *dst, int64_t n)
{
    const unsigned char *block = src;
    for (int64_t b = 0; b < n / BLOCK; b++, block += sizeof(struct block_q8_0), dst += BLOCK) {
        uint16_t bits;
        memcpy(&bits, block, sizeof bits);
        float scale = f16_to_f32(bits);
        const int8_t *q = (const int8_t *)(block + sizeof bits);
        for (int j = 0; j < BLOCK; j++) dst[j] = (float)q[j] * scale;
    }
}

static void q8_0_encode_row(const float *src, void *dst, int64_t n)
{
    unsigned char *at = dst;
    for (int64_t b = 0; b < n / BLOCK; b++, at += sizeof(struct block_q8_0), src += BLOCK) {
        struct block_q8_0 block = {0};
        float amax;
        if (!block_max(src, &amax)) {
            block.scale = 0x7e00;
        } else {
            /* As ggml: q comes from the unrounded d. A d that is 0 in fp16 makes everything 0. */
            float d = fminf(amax / 127.0f, 65504.0f);
            block.scale = f16_from_f32(d);
            float inverse = block.scale ? 1.0f / d : 0.0f;
            for (int j = 0; j < BLOCK; j++) {
                block.q[j] = (int8_t)fmaxf(fminf(roundf(src[j] * inverse), 127.0f), -127.0f);
            }
        }
        memcpy(at, &block, sizeof block);
    }
}

/* ---- the table ---- */

enum { USE_NUMBERS, USE_WEIGHTS };

static const struct dtype_info infos[DTYPE_COUNT] = {
#define SOL_FORMAT(id, name, use, block, bits, scale, levels, layout, gguf)                        \
    {#name,       block, BLOCK_BYTES_##id,  USE_##use,                                             \
     levels == 2, gguf,  name##_decode_row, name##_encode_row},
#include "formats.list"
};

const struct dtype_info *dtype_info(enum dtype type)
{
    assert((unsigned)type < DTYPE_COUNT);
    return &infos[type];
}

bool dtype_from_name(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(infos[i].name, name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

bool dtype_from_gguf(uint32_t number, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (infos[i].gguf < 0 || (uint32_t)infos[i].gguf != number) continue;
        *out = (enum dtype)i;
        return true;
    }
    return false;
}

size_t dtype_row_bytes(enum dtype type, int64_t n)
{
    const struct dtype_info *info = dtype_info(type);
    assert(n >= 0 && n % info->block == 0);
    return (size_t)(n / info->block) * info->block_bytes;
}
