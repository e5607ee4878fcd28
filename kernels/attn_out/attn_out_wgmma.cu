/* The output projection of many rows, added to the residual stream. */
#include "gemm/gemm_wgmma.cuh"

#define ADDED_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares)           \
    WGMMA_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares, WGMMA_ADDED)

WGMMA_ATTN_OUT_KINDS(ADDED_KERNEL)
