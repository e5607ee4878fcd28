/* The exact gemm and grouped_gemm of ops/vector/ for AVX2. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_TOKENS 2 /* 8 sums, 4 weights, 1 activation of 16 registers */
#define LANES       8
#define NEEDS       CPU_AVX2
#define NAMED(op)   op##_f32_avx2
#define NAME_OF(op) #op "_f32_avx2"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline float scale_of_f16(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

static inline vfloat vector_load_i8(const int8_t *p)
{
    return (vfloat)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Looked up as bytes, doubled to be whole numbers, and halved as floats. */
static inline vfloat halves_of(__m128i bytes)
{
    return (vfloat)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)) * 0.5f;
}

static inline void vector_decode_e2m1(const uint8_t nibbles[16], vfloat out[4])
{
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i low = _mm_set1_epi8(15);
    __m128i bytes = _mm_loadu_si128((const __m128i *)nibbles);
    __m128i first = _mm_shuffle_epi8(table, _mm_and_si128(bytes, low));
    __m128i second = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    out[0] = halves_of(first);
    out[1] = halves_of(_mm_srli_si128(first, 8));
    out[2] = halves_of(second);
    out[3] = halves_of(_mm_srli_si128(second, 8));
}

#include "ops/vector/gemm.h"
#include "ops/vector/grouped_gemm.h"
