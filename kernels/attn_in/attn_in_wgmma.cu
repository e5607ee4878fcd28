/* q, k and v of many rows in one launch, with their rotation and the cache's new entries. */
#include "gemm/gemm_wgmma.cuh"

#define HEADS_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster)                   \
    WGMMA_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, WGMMA_HEADS)

WGMMA_ATTN_IN_KINDS(HEADS_KERNEL)
