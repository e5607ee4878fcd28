/* Attention of ops/vector/attention.h for NEON. */
#include <arm_neon.h>
#include <stdint.h>

/* 4 rows x 4 vectors: 8 loads feed 16 multiply-adds, where 4 x 2 would need 6 for 8, and 16 sums in
 * flight keep pipes of 4 cycles' latency busy. 4 divides the 8 queries that share a key in gpt-oss;
 * 6 x 4 would fill the registers better and work on 8 queries as 6 + 1 + 1. */
#define TILE_ROWS    4
#define TILE_VECTORS 4
#define LANES        4
#define NEEDS        CPU_NEON
#define NAMED(op)    op##_f32_neon
#define NAME_OF(op)  #op "_f32_neon"

#include "ops/vector/vector.h"

static inline vfloat vector_load_f16(const uint16_t *p)
{
    return (vfloat)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline int vector_any(vint mask)
{
    return vmaxvq_u32((uint32x4_t)mask) != 0;
}

#include "ops/vector/attention.h"
