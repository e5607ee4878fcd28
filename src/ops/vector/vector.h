/* Vectors of floats in the compiler's own extension (gcc and clang agree on it), so that one source
 * serves every instruction set. The file that includes this sets, of these, what its kernels need:
 *   LANES              float32 lanes of a register: 8 for AVX2, 16 for AVX-512, 4 for NEON
 *   vector_decode_e2m1 16 bytes of e2m1 pairs as 32 floats: the low nibbles, then the high ones
 *   vector_any         whether any lane of a comparison is true
 *   vector_load_f16    loads LANES fp16 as float32 (an instruction where there is one)
 *   vector_load_i8     loads LANES int8 as float32
 *   scale_of_f16       one fp16, given as bits, as float
 * and is compiled with that instruction set and with contraction of a * b + c to fma allowed. */
#ifndef OPS_VECTOR_VECTOR_H
#define OPS_VECTOR_VECTOR_H

#include <stdint.h>
#include <string.h>

typedef float vfloat __attribute__((vector_size(4 * LANES)));
typedef int32_t vint __attribute__((vector_size(4 * LANES)));

static inline vfloat vector_load(const float *p)
{
    vfloat x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void vector_store(float *p, vfloat x)
{
    memcpy(p, &x, sizeof x);
}

/* The first n lanes; the others are zero. For tails. */
static inline vfloat vector_load_some(const float *p, int64_t n)
{
    vfloat x = {0};
    memcpy(&x, p, sizeof(float) * (size_t)n);
    return x;
}

static inline void vector_store_some(float *p, vfloat x, int64_t n)
{
    memcpy(p, &x, sizeof(float) * (size_t)n);
}

/* Calls step(..., at, LANES) over whole vectors of begin..end, then step(..., at, rest): a step
 * that is inlined loads whole ones with one instruction. */
#define VECTOR_STEPS(step, begin, end, ...)                                                        \
    do {                                                                                           \
        int64_t at_ = (begin);                                                                     \
        for (; at_ + LANES <= (end); at_ += LANES) step(__VA_ARGS__, at_, LANES);                  \
        if (at_ < (end)) step(__VA_ARGS__, at_, (end)-at_);                                        \
    } while (0)
#define VECTOR_STEP static inline __attribute__((always_inline)) void

static inline vfloat vector_set(float value)
{
    return value - (vfloat){0};
}

/* mask ? a : b, lane by lane; masks are all ones or zero, as comparisons give them. */
static inline vfloat vector_select(vint mask, vfloat a, vfloat b)
{
    return (vfloat)((mask & (vint)a) | (~mask & (vint)b));
}

/* A NaN in x passes through both. */
static inline vfloat vector_at_most(vfloat x, float limit)
{
    return vector_select(x > vector_set(limit), vector_set(limit), x);
}

static inline vfloat vector_at_least(vfloat x, float limit)
{
    return vector_select(x < vector_set(limit), vector_set(limit), x);
}

static inline float vector_sum(vfloat x)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* e^x within 2 ulp for -87 <= x <= 88, clamped outside; NaN stays NaN. x = n ln 2 + r with |r| <=
 * ln 2 / 2, the polynomial is the Taylor series to r^7 (its next term is below 2^-26), ln 2 is
 * split so that n * high is exact. */
static inline vfloat vector_exp(vfloat x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = vector_at_least(vector_at_most(x, 88.0f), -87.0f);
    vfloat shifted = x * 1.44269504f + magic;
    vfloat n = shifted - magic;
    vfloat r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vfloat p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    vint exponent = ((vint)shifted - (vint)vector_set(magic)) << 23;
    vfloat scaled = (vfloat)((vint)p + exponent);
    return vector_select(x == x, scaled, x); /* NOLINT: not so of NaN */
}

static inline vfloat vector_load_bf16(const uint16_t *p)
{
    vint x;
    for (int i = 0; i < LANES; i++) x[i] = (int32_t)((uint32_t)p[i] << 16);
    return (vfloat)x;
}

#endif
