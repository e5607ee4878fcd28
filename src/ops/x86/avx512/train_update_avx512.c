/* The kernels of ops/vector/train_update.h for AVX-512. */
#include <immintrin.h>

#define LANES       16
#define NEEDS       CPU_AVX512
#define NAMED(op)   op##_f32_avx512
#define NAME_OF(op) #op "_f32_avx512"

#include "ops/vector/vector.h"

static inline vfloat vector_sqrt(vfloat x)
{
    return (vfloat)_mm512_sqrt_ps((__m512)x);
}

#include "ops/vector/train_update.h"
