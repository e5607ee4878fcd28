/* The kernels of ops/vector/train_update.h for AVX2. */
#include <immintrin.h>

#define LANES       8
#define NEEDS       CPU_AVX2
#define NAMED(op)   op##_f32_avx2
#define NAME_OF(op) #op "_f32_avx2"

#include "ops/vector/vector.h"

static inline vfloat vector_sqrt(vfloat x)
{
    return (vfloat)_mm256_sqrt_ps((__m256)x);
}

#include "ops/vector/train_update.h"
