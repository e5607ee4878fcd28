// spills: gemm_wgmma_mxfp4_64 8
// spills: gemm_wgmma_mxfp4_256 16
/* The products of many rows that are gemm. Each kernel's sizes: gemm_wgmma_args.h. */
#include "gemm/gemm_wgmma.cuh"

WGMMA_DENSE_KINDS(WGMMA_KERNEL)
WGMMA_MXFP4_KINDS(WGMMA_KERNEL)
WGMMA_Q8_0_KINDS(WGMMA_KERNEL)
