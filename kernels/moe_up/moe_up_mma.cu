/* The gated product that is moe_up, for cards without a better kernel. */
#include "gemm/gemm_mma.cuh"

MMA_MOE_UP_KINDS(MMA_KERNEL)
