/* matmul and its grouped forms, of ops/vector/grouped_matmul.h for AVX-512. */
#define MATMUL_ROWS                                                                                \
    12 /* 24 sums and 2 vectors of 32 registers; the other factor comes from memory */
#define MATMUL_VECTORS 2
#define LANES          16
#define NEEDS          CPU_AVX512
#define NAMED(op)      op##_f32_avx512
#define NAME_OF(op)    #op "_f32_avx512"

#include "ops/vector/grouped_matmul.h"
