/* matmul with sums in float64 (ops/vector/matmul_double.h) for neon. */
#define LANES       4
#define NEEDS       CPU_NEON
#define NAMED(op)   op##_f64_neon
#define NAME_OF(op) #op "_f64_neon"

#include "ops/vector/matmul_double.h"
