/* matmul and its grouped forms, of ops/vector/grouped_matmul.h for NEON. */
#include <arm_neon.h>

#define MATMUL_ROWS    8 /* 24 sums, 3 vectors and 2 of the other factor of 32 registers */
#define MATMUL_VECTORS 3
#define LANES          4
#define NEEDS          CPU_NEON
#define NAMED(op)      op##_f32_neon
#define NAME_OF(op)    #op "_f32_neon"
#define MATMUL_STEP    matmul_step_lanes

#include "ops/vector/vector.h"

/* Factors are loaded as vectors and used lane by lane. gcc 12 would load each of them into a
 * register of its own, and have none left for some of the sums. */
static inline __attribute__((always_inline)) void
matmul_step_lanes(vfloat sum[MATMUL_ROWS][MATMUL_VECTORS], const float *left,
                  const vfloat x[MATMUL_VECTORS])
{
#pragma GCC unroll 2
    for (int r = 0; r < MATMUL_ROWS; r += 4) {
        const float32x4_t l = vld1q_f32(left + r);
#pragma GCC unroll 3
        for (int v = 0; v < MATMUL_VECTORS; v++) {
            sum[r][v] = (vfloat)vfmaq_laneq_f32((float32x4_t)sum[r][v], (float32x4_t)x[v], l, 0);
            sum[r + 1][v] =
                (vfloat)vfmaq_laneq_f32((float32x4_t)sum[r + 1][v], (float32x4_t)x[v], l, 1);
            sum[r + 2][v] =
                (vfloat)vfmaq_laneq_f32((float32x4_t)sum[r + 2][v], (float32x4_t)x[v], l, 2);
            sum[r + 3][v] =
                (vfloat)vfmaq_laneq_f32((float32x4_t)sum[r + 3][v], (float32x4_t)x[v], l, 3);
        }
    }
}

#include "ops/vector/grouped_matmul.h"
