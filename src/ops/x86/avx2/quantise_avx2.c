/* quantise (ops/vector/quantise.h) for AVX2. */
#define LANES       8
#define NEEDS       CPU_AVX2
#define NAMED(op)   op##_f32_avx2
#define NAME_OF(op) #op "_f32_avx2"

#include "ops/vector/quantise.h"
