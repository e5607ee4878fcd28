/* q, k and v of many rows in one launch, with their rotation and the cache's new entries. */
// spills: attn_in_wgmma_bf16_256 8
// spills: attn_in_wgmma_q8_0_256 32
#include "gemm/gemm_wgmma.cuh"

#define HEADS_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares)           \
    WGMMA_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares, WGMMA_HEADS)

WGMMA_ATTN_IN_KINDS(HEADS_KERNEL)
