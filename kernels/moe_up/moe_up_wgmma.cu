// spills: moe_up_wgmma_mxfp4_64 8
// spills: moe_up_wgmma_mxfp4_256 16
/* Gate and up of the chosen experts with their activation, for many rows. */
#include "gemm/gemm_wgmma.cuh"

WGMMA_MOE_UP_KINDS(WGMMA_KERNEL)
