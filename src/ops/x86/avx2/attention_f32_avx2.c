/* Attention of ops/vector/attention.h for AVX2. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_ROWS   4
#define LANES       8
#define NEEDS       CPU_AVX2
#define NAMED(op)   op##_f32_avx2
#define NAME_OF(op) #op "_f32_avx2"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline int vector_any(vint mask)
{
    return _mm256_movemask_ps((__m256)mask) != 0;
}

#include "ops/vector/attention.h"
