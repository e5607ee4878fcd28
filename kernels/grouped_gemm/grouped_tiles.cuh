/* What kernels of grouped products share that compute a tile a block: which group a tile belongs
 * to, and what becomes of sums. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_TILES_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_TILES_CUH

#include "common.cuh"
#include "grouped_gemm/grouped_tiles_args.h"
#include "swiglu/swiglu.cuh"

__device__ inline const grouped_tiles_group &group_of(const grouped_tiles_args &a, uint32_t tile)
{
    int i = 0;
    while (i + 1 < a.n_groups && a.groups[i + 1].first_tile <= tile) i++;
    return a.groups[i];
}

__device__ inline float finish(float sum, const float *factor, const float *bias, int64_t column)
{
    return fmaf(sum, factor ? *factor : 1.0f, bias ? bias[column] : 0.0f);
}

/* A sum of products, or where GATED that of the gate's and that of up's, as a number of C. */
template <bool GATED>
__device__ inline float result_of(const grouped_tiles_args &a, const grouped_tiles_group &g,
                                  float sum, float up, int64_t column)
{
    float value = finish(sum, g.factor, g.bias, column);
    if (GATED) value = swiglu(value, finish(up, g.up_factor, g.up_bias, column), a.alpha, a.limit);
    return value;
}

#endif
