/* Attention of ops/vector/self_attention.h for NEON. */
#include <arm_neon.h>
#include <stdint.h>

#define TILE_ROWS    4
#define TILE_VECTORS 4
#define LANES        4
#define NEEDS        CPU_NEON
#define NAMED(op)    op##_f32_neon
#define NAME_OF(op)  #op "_f32_neon"

#include "ops/vector/vector.h"

static inline int vector_any(vint mask)
{
    return vmaxvq_u32((uint32x4_t)mask) != 0;
}

#include "ops/vector/self_attention.h"
