/* Quantisation of activations to int8 with one float scale per 32 values, for the int8 products. */
#ifndef OPS_X86_QUANT_AVX512_H
#define OPS_X86_QUANT_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* q = round(x / scale), |q| <= 127. Returns sum(q). A block that holds NaN or Inf gets scale NaN
 * and q 0: whatever it is multiplied by becomes NaN. */
static inline int32_t quant_block_avx512(const float *x, int8_t *q, float *scale)
{
    __m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
    /* As integers, magnitudes order like the floats, with Inf and NaN on top. */
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    uint32_t bits = _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(lo), magnitude),
                         _mm512_and_si512(_mm512_castps_si512(hi), magnitude)));
    float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits))), up = 1;
    if (bits >= 0x7f800000u || bits == 0) {
        *scale = bits ? __builtin_nanf("") : 0;
        _mm256_storeu_si256((__m256i *)q, _mm256_setzero_si256());
        return 0;
    }
    if (max < 0x1p-100f) up = 0x1p100f; /* keeps 127 / max finite */
    *scale = max / 127.0f;
    __m512 factor = _mm512_set1_ps(127.0f / (max * up)), raise = _mm512_set1_ps(up);
    __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(lo, raise), factor));
    __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_mul_ps(hi, raise), factor));
    _mm_storeu_si128((__m128i *)q, _mm512_cvtsepi32_epi8(a));
    _mm_storeu_si128((__m128i *)(q + 16), _mm512_cvtsepi32_epi8(b));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

#endif
