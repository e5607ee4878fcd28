/* Attention of ops/vector/self_attention.h for AVX2. */
#include <immintrin.h>
#include <stdint.h>

#define TILE_ROWS    4
#define TILE_VECTORS 2
#define LANES        8
#define NEEDS        CPU_AVX2
#define NAMED(op)    op##_f32_avx2
#define NAME_OF(op)  #op "_f32_avx2"

#include "ops/vector/vector.h"

static inline int vector_any(vint mask)
{
    return _mm256_movemask_ps((__m256)mask) != 0;
}

#include "ops/vector/self_attention.h"
