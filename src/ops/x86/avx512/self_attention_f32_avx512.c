/* Attention of ops/vector/self_attention.h for AVX-512. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_ROWS    8
#define TILE_VECTORS 2
#define LANES        16
#define NEEDS        CPU_AVX512
#define NAMED(op)    op##_f32_avx512
#define NAME_OF(op)  #op "_f32_avx512"

#include "ops/vector/vector.h"

static inline int vector_any(vint mask)
{
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
}

#include "ops/vector/self_attention.h"
