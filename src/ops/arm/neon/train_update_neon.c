/* The kernels of ops/vector/train_update.h for NEON. */
#include <arm_neon.h>

#define LANES       4
#define NEEDS       CPU_NEON
#define NAMED(op)   op##_f32_neon
#define NAME_OF(op) #op "_f32_neon"

#include "ops/vector/vector.h"

static inline vfloat vector_sqrt(vfloat x)
{
    return (vfloat)vsqrtq_f32((float32x4_t)x);
}

#include "ops/vector/train_update.h"
