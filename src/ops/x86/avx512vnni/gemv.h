/* One row of activations times MXFP4 or Q8_0 weights: what decoding one sequence spends its time
 * on.
 *
 * A lane is four steps along k, so weight rows are read as they lie. MXFP4 goes two blocks (34
 * bytes) at a time: 16 bytes of nibbles are copied into each half of a 256-bit register, the low
 * nibbles are looked up and multiplied by the first 16 activations of both blocks, the high ones by
 * the other 16, into the same four sums a block. Turning 16 rows around instead, as for more
 * activations, needs fewer scales but a transpose, and Zen 4 has few shuffles. 256-bit operations,
 * because 512-bit ones pass a pipe twice and cannot fill four pipes evenly. On two Zen 4 cores at
 * 70 GB/s: MXFP4 44.5 -> 49.5 GB/s, Q8_0 53.0 -> 57.2.
 **/
#ifndef OPS_X86_AVX512VNNI_GEMV_H
#define OPS_X86_AVX512VNNI_GEMV_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "format/dtype.h"
#include "ops/x86/quant_avx512.h"

enum {
    GEMV_MXFP4_BYTES = 2 * sizeof(struct block_mxfp4), /* of a step */
    GEMV_MXFP4_ROWS = 4, /* weight rows at once: enough independent work to hide latencies */
    GEMV_Q8_0_ROWS = 2,  /* twice as long: 4 rows are further apart than prefetching reaches */
    GEMV_ROWS_MAX = 4,
    GEMV_MXFP4_AHEAD = 4, /* rows that a line is asked for before it is used: 6 and 9 KB, */
    GEMV_Q8_0_AHEAD = 3,  /* which is 175 ns and more at 35 GB/s */
};

static inline float gemv_total(__m256 sum)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

/* ---- MXFP4 ---- */

/* Two blocks of activations. Lane l of correction and scale belongs to block l / 4. */
struct gemv_mxfp4_step {
    int8_t low[32], high[32]; /* values 0..15 of both blocks, values 16..31 of both */
    int32_t correction[8];    /* -12 * sum of the lane's activations: weights come with 12 added */
    float scale[8];           /* of the activations, halved: weights come doubled */
};

static inline int64_t gemv_mxfp4_steps(int64_t k_blocks)
{
    return (k_blocks + 1) / 2;
}

/* Packs one row; the missing second block of an odd row becomes zeros. */
static inline void gemv_mxfp4_pack(const float *x, int64_t k_blocks, struct gemv_mxfp4_step *steps)
{
    const __m256i twelve = _mm256_set1_epi8(12);
    for (int64_t i = 0; i < gemv_mxfp4_steps(k_blocks); i++) {
        struct gemv_mxfp4_step *s = &steps[i];
        memset(s, 0, sizeof *s);
        for (int64_t half = 0; half < 2 && 2 * i + half < k_blocks; half++) {
            int8_t q[32];
            float scale;
            quant_block_avx512(x + 32 * (2 * i + half), q, &scale);
            memcpy(s->low + 16 * half, q, 16);
            memcpy(s->high + 16 * half, q + 16, 16);
            _mm_storeu_ps(s->scale + 4 * half, _mm_set1_ps(0.5f * scale));
        }
        __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), twelve,
                                          _mm256_loadu_si256((const __m256i *)s->low));
        sum = _mm256_dpbusd_epi32(sum, twelve, _mm256_loadu_si256((const __m256i *)s->high));
        _mm256_storeu_si256((__m256i *)s->correction,
                            _mm256_sub_epi32(_mm256_setzero_si256(), sum));
    }
}

/* The nibbles of two blocks, one in each half; of one block in both halves when `pair` is false. */
static inline __attribute__((always_inline)) __m256i gemv_nibbles(const uint8_t *w, bool pair)
{
    const __m128i *second = (const __m128i *)(w + (pair ? sizeof(struct block_mxfp4) : 0) + 1);
    __m256i a = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 1)));
    return _mm256_blend_epi32(a, _mm256_broadcastsi128_si256(_mm_loadu_si128(second)), 0xf0);
}

/* 2^(e - 127) of both blocks, in the four lanes of each, from a table of all 256: loads have ports
 * to spare that shuffles and shifts have not, and the ends of the range (subnormal, NaN) cost
 * nothing. */
static inline __attribute__((always_inline)) __m256 gemv_scales(const uint8_t *w, bool pair,
                                                                const float *e8m0)
{
    __m256 first = _mm256_broadcast_ss(e8m0 + w[0]);
    if (!pair) return first;
    return _mm256_blend_ps(first, _mm256_broadcast_ss(e8m0 + w[sizeof(struct block_mxfp4)]), 0xf0);
}

/* The integer sums of a weight row's step, in eight lanes. */
static inline __attribute__((always_inline)) __m256i
gemv_dot(const uint8_t *w, bool pair, __m256i low, __m256i high, __m256i correction)
{
    /* vpermb takes five bits of each byte and the table repeats: no masking of nibbles. */
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m256i nibbles = gemv_nibbles(w, pair);
    __m256i shifted = _mm256_srli_epi16(nibbles, 4);
    __m256i dot = _mm256_dpbusd_epi32(correction, _mm256_permutexvar_epi8(nibbles, table), low);
    return _mm256_dpbusd_epi32(dot, _mm256_permutexvar_epi8(shifted, table), high);
}

/* Rows in work. What the newest step adds to `sum` is not there yet: it is added beside the dots of
 * the step that follows. At once, the operations that wait for each other are so many that Zen 4's
 * schedulers do not hold two steps: 26.7 instead of 29.5 GB/s a core from L2. The factors are read
 * with the nibbles: read a step later, the prefetchers sometimes lost the rows (17 GB/s). */
struct gemv_mxfp4_rows {
    const uint8_t *ahead; /* what the next step asks for */
    int64_t stride;
    const float *e8m0;
    __m256 scale; /* of the newest step's activations */
    __m256i dot[GEMV_MXFP4_ROWS];
    __m256 factor[GEMV_MXFP4_ROWS];
    __m256 sum[GEMV_MXFP4_ROWS];
};

static inline __attribute__((always_inline)) void gemv_mxfp4_add(struct gemv_mxfp4_rows *v, int r)
{
    v->sum[r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(v->dot[r]), v->scale),
                                v->factor[r], v->sum[r]);
}

/* w: the first row's blocks of this step, two where `pair` says so. */
static inline __attribute__((always_inline)) void
gemv_mxfp4_take(struct gemv_mxfp4_rows *v, const uint8_t *w, const struct gemv_mxfp4_step *step,
                bool first, bool pair)
{
    __m256i low = _mm256_load_si256((const __m256i *)step->low);
    __m256i high = _mm256_load_si256((const __m256i *)step->high);
    __m256i correction = _mm256_load_si256((const __m256i *)step->correction);
    /* Kept in registers for all rows: as memory operands they would take the loads' ports. */
    __asm__("" : "+x"(low), "+x"(high), "+x"(correction));
    for (int64_t b = 0; b < GEMV_MXFP4_ROWS * GEMV_MXFP4_BYTES; b += 64)
        _mm_prefetch((const char *)(v->ahead + b), _MM_HINT_T0);
    v->ahead += GEMV_MXFP4_ROWS * GEMV_MXFP4_BYTES;
#pragma GCC unroll 4
    for (int r = 0; r < GEMV_MXFP4_ROWS; r++) {
        if (!first) gemv_mxfp4_add(v, r);
        /* Opaque, or the compiler puts them into another order. */
        __asm__ volatile("" : "+x"(v->sum[r]));
        v->dot[r] = gemv_dot(w + r * v->stride, pair, low, high, correction);
        v->factor[r] = gemv_scales(w + r * v->stride, pair, v->e8m0);
        __asm__ volatile("" : "+x"(v->dot[r]), "+x"(v->factor[r]));
    }
    v->scale = _mm256_load_ps(step->scale);
}

/* out[r] = GEMV_MXFP4_ROWS weight rows, `stride` bytes apart, times the packed row. */
static inline __attribute__((always_inline)) void
gemv_mxfp4_rows(const uint8_t *w, int64_t stride, const struct gemv_mxfp4_step *steps,
                int64_t k_blocks, const float e8m0[256], float out[GEMV_MXFP4_ROWS])
{
    const int64_t pairs = k_blocks / 2;
    struct gemv_mxfp4_rows v = {
        .ahead = w + GEMV_MXFP4_AHEAD * stride, .stride = stride, .e8m0 = e8m0};
#pragma GCC unroll 4
    for (int r = 0; r < GEMV_MXFP4_ROWS; r++) v.sum[r] = _mm256_setzero_ps();
    if (pairs)
        gemv_mxfp4_take(&v, w, steps, true, true);
    else
        gemv_mxfp4_take(&v, w, steps, true, false);
    for (int64_t i = 1; i < pairs; i++)
        gemv_mxfp4_take(&v, w + i * GEMV_MXFP4_BYTES, steps + i, false, true);
    if (pairs && k_blocks % 2)
        gemv_mxfp4_take(&v, w + pairs * GEMV_MXFP4_BYTES, steps + pairs, false, false);
#pragma GCC unroll 4
    for (int r = 0; r < GEMV_MXFP4_ROWS; r++) {
        gemv_mxfp4_add(&v, r);
        out[r] = gemv_total(v.sum[r]);
    }
}

/* ---- Q8_0 ---- */

/* A block of activations. */
struct gemv_q8_0_step {
    int8_t q[32];
    int32_t correction[8]; /* -128 * sum of the lane's activations: weights come with 128 added */
    float scale;
    int32_t unused[7]; /* keeps q aligned */
};

static inline void gemv_q8_0_pack(const float *x, int64_t k_blocks, struct gemv_q8_0_step *steps)
{
    const __m256i offset = _mm256_set1_epi8(-128);
    for (int64_t k = 0; k < k_blocks; k++) {
        struct gemv_q8_0_step *s = &steps[k];
        quant_block_avx512(x + 32 * k, s->q, &s->scale);
        __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), offset,
                                          _mm256_loadu_si256((const __m256i *)s->q));
        _mm256_storeu_si256((__m256i *)s->correction,
                            _mm256_sub_epi32(_mm256_setzero_si256(), sum));
    }
}

/* out[r] = GEMV_Q8_0_ROWS weight rows, `stride` bytes apart, times the packed row. */
static inline void gemv_q8_0_rows(const uint8_t *w, int64_t stride,
                                  const struct gemv_q8_0_step *steps, int64_t k_blocks,
                                  float out[GEMV_Q8_0_ROWS])
{
    const int64_t bytes = (int64_t)sizeof(struct block_q8_0);
    const __m256i flip = _mm256_set1_epi8(-128);
    const uint8_t *ahead = w + GEMV_Q8_0_AHEAD * stride;
    __m256 sum[GEMV_Q8_0_ROWS] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t k = 0; k < k_blocks; k++, w += bytes, ahead += GEMV_Q8_0_ROWS * bytes) {
        __m256i q = _mm256_load_si256((const __m256i *)steps[k].q);
        __m256i correction = _mm256_load_si256((const __m256i *)steps[k].correction);
        __m256 scale = _mm256_set1_ps(steps[k].scale);
        __asm__("" : "+x"(q), "+x"(correction), "+x"(scale));
        for (int64_t b = 0; b < GEMV_Q8_0_ROWS * bytes; b += 64)
            _mm_prefetch((const char *)(ahead + b), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int r = 0; r < GEMV_Q8_0_ROWS; r++) {
            const uint8_t *row = w + r * stride;
            int16_t d;
            memcpy(&d, row, sizeof d);
            __m256i values = _mm256_loadu_si256((const __m256i *)(row + 2));
            __m256i dot = _mm256_dpbusd_epi32(correction, _mm256_xor_si256(values, flip), q);
            __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), scale);
            sum[r] = _mm256_fmadd_ps(scaled, _mm256_cvtph_ps(_mm_set1_epi16(d)), sum[r]);
        }
    }
    for (int r = 0; r < GEMV_Q8_0_ROWS; r++) out[r] = gemv_total(sum[r]);
}

#endif
