/* Numbers to other blocks of a cluster, by address. As barriers.cuh, for few kernels; the file compiles
 * everywhere, the instruction from sm_90 on. */
#ifndef KERNELS_PUT_ACROSS_CUH
#define KERNELS_PUT_ACROSS_CUH

#include "types.h"

#if __CUDA_ARCH__ >= 900

/* To shared memory of block `rank` of the cluster, whose barrier gets four bytes; both addresses are as
 * that block has them. The block runs, and has made its barrier. */
__device__ inline void put_across(uint32_t to, float value, uint32_t barrier, uint32_t rank)
{
    asm volatile("{.reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %3;\n"
                 "mapa.shared::cluster.u32 its, %2, %3;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [its];}" ::"r"(to),
                 "r"(__float_as_uint(value)), "r"(barrier), "r"(rank)
                 : "memory");
}

/* Four to a multiple of 16 bytes; the barrier gets 16. */
__device__ inline void put_four_across(uint32_t to, const float *four, uint32_t barrier, uint32_t rank)
{
    asm volatile("{.reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %6;\n"
                 "mapa.shared::cluster.u32 its, %5, %6;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%1, %2, %3, %4}, [its];}"
                 ::"r"(to), "r"(__float_as_uint(four[0])), "r"(__float_as_uint(four[1])),
                 "r"(__float_as_uint(four[2])), "r"(__float_as_uint(four[3])), "r"(barrier), "r"(rank)
                 : "memory");
}

#endif
#endif
