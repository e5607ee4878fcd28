/* Attention of ops/vector/attention.h for AVX-512. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_ROWS   8
#define LANES       16
#define NEEDS       CPU_AVX512
#define NAMED(op)   op##_f32_avx512
#define NAME_OF(op) #op "_f32_avx512"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline int vector_any(vint mask)
{
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}

#include "ops/vector/attention.h"
