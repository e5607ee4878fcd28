/* matmul with sums in float64 (ops/vector/matmul_double.h) for avx512. */
#define LANES       16
#define NEEDS       CPU_AVX512
#define NAMED(op)   op##_f64_avx512
#define NAME_OF(op) #op "_f64_avx512"

#include "ops/vector/matmul_double.h"
