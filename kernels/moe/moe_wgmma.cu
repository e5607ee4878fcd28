// spills: moe_wgmma_down_64 8
// spills: moe_wgmma_down_128 8
// spills: moe_wgmma_up_64 12
// spills: moe_wgmma_up_128 40
/* The experts' products of many rows with results in bf16: activations are what the second product
 * rounds them to anyway, and its results are added up in float32. */
#include "gemm/gemm_wgmma.cuh"

#define BF16_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares)            \
    WGMMA_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares, WGMMA_BF16)

WGMMA_MOE_KINDS_UP(BF16_KERNEL)
WGMMA_MOE_KINDS_DOWN(BF16_KERNEL)
