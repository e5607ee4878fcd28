/* quantise (ops/vector/quantise.h) for AVX-512. */
#define LANES       16
#define NEEDS       CPU_AVX512
#define NAMED(op)   op##_f32_avx512
#define NAME_OF(op) #op "_f32_avx512"

#include "ops/vector/quantise.h"
