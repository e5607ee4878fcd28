/* matmul with sums in float64 (ops/vector/matmul_double.h) for avx2. */
#define LANES       8
#define NEEDS       CPU_AVX2
#define NAMED(op)   op##_f64_avx2
#define NAME_OF(op) #op "_f64_avx2"

#include "ops/vector/matmul_double.h"
