/* The copy engine between the blocks of a cluster. As copy_bulk.cuh, for few kernels; the file
 * compiles everywhere, the instruction from sm_90 on. */
#ifndef KERNELS_COPY_ACROSS_CUH
#define KERNELS_COPY_ACROSS_CUH

#include "types.h"

#if __CUDA_ARCH__ >= 900

/* Multiples of 16 bytes from this block's shared memory to block `rank` of the cluster, whose
 * barrier gets them; `to` and `barrier` are addresses as that block has them. What threads wrote
 * there before needs fence_for_copies and a sync. */
__device__ inline void copy_across(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier,
                                   uint32_t rank)
{
    asm volatile("{.reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %4;\n"
                 "mapa.shared::cluster.u32 its, %3, %4;\n"
                 "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
                 " [there], [%1], %2, [its];}" ::"r"(to),
                 "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
                 : "memory");
}

#endif
#endif
