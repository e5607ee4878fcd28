/* matmul and its grouped forms, of ops/vector/grouped_matmul.h for AVX2. */
#define MATMUL_ROWS    6 /* 12 sums, 2 vectors and the other factor of 16 registers */
#define MATMUL_VECTORS 2
#define LANES          8
#define NEEDS          CPU_AVX2
#define NAMED(op)      op##_f32_avx2
#define NAME_OF(op)    #op "_f32_avx2"

#include "ops/vector/grouped_matmul.h"
