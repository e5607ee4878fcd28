/* The exact gemm and grouped_gemm of ops/vector/ for AVX-512. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_TOKENS 4 /* 16 sums, 4 weights, 1 activation of 32 registers */
#define LANES       16
#define NEEDS       CPU_AVX512
#define NAMED(op)   op##_f32_avx512
#define NAME_OF(op) #op "_f32_avx512"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline float scale_of_f16(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

static inline vfloat vector_load_i8(const int8_t *p)
{
    return (vfloat)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* A permutation looks at the low four bits of each lane only: the table is the format. */
static inline void vector_decode_e2m1(const uint8_t nibbles[16], vfloat out[2])
{
    const __m512 table =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)nibbles));
    out[0] = (vfloat)_mm512_permutexvar_ps(bytes, table);
    out[1] = (vfloat)_mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
}

#include "ops/vector/gemm.h"
#include "ops/vector/grouped_gemm.h"
