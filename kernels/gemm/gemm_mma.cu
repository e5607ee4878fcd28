/* The products of many rows that are gemm, for cards without a better kernel. Sizes:
 * gemm_mma_args.h. */
#include "gemm/gemm_mma.cuh"

MMA_DENSE_KINDS(MMA_KERNEL)
MMA_NARROW_KINDS(MMA_KERNEL)
MMA_MXFP4_KINDS(MMA_KERNEL)
