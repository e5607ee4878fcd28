/* matmul of ops/vector/train_matmul.h for NEON. */
#define MATMUL_ROWS    8 /* 24 sums, 3 vectors and 2 of the other factor of 32 registers */
#define MATMUL_VECTORS 3
#define LANES          4
#define NEEDS          CPU_NEON
#define NAMED(op)      op##_f32_neon
#define NAME_OF(op)    #op "_f32_neon"

#include "ops/vector/train_matmul.h"
