/* quantise (ops/vector/quantise.h) for NEON. */
#define LANES       4
#define NEEDS       CPU_NEON
#define NAMED(op)   op##_f32_neon
#define NAME_OF(op) #op "_f32_neon"

#include "ops/vector/quantise.h"
