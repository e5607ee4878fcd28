/* What kernels of grouped products share that compute a tile a block: which group a tile belongs
 * to, and what becomes of sums. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_TILES_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_TILES_CUH

#include "common.cuh"
#include "grouped_gemm/grouped_tiles_args.h"

__device__ inline const grouped_tiles_group &group_of(const grouped_tiles_args &a, uint32_t tile)
{
    int i = 0;
    while (i + 1 < a.n_groups && a.groups[i + 1].first_tile <= tile) i++;
    return a.groups[i];
}

/* A sum of products as a number of C. */
__device__ inline float finish(float sum, const float *factor, const float *bias, int64_t column)
{
    return fmaf(sum, factor ? *factor : 1.0f, bias ? bias[column] : 0.0f);
}

#endif
