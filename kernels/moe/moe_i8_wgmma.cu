/* The experts' products of many rows in int8, results in bf16. */
#include "gemm/gemm_wgmma.cuh"

#define I8_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares)              \
    WGMMA_KERNEL(name, type, gated, warpgroups, tokens, stages, out, cluster, shares, WGMMA_BF16, WGMMA_ROWS_I8)

WGMMA_I8_KINDS_UP(I8_KERNEL)
WGMMA_I8_KINDS_DOWN(I8_KERNEL)
