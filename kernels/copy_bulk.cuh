/* The copy engine: boxes of tensors and runs of bytes into shared memory, which a barrier there
 * counts. The file compiles everywhere, the instructions from sm_90 on. */
#ifndef KERNELS_COPY_BULK_CUH
#define KERNELS_COPY_BULK_CUH

#include "barriers.cuh"
#include "tensor_map_args.h"

#if __CUDA_ARCH__ >= 900

__device__ inline void prefetch_map(const struct tensor_map &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* A box of a tensor to shared memory; `barrier` gets its bytes, those outside the tensor too (as
 * 0). */
__device__ inline void copy_box_2d(uint32_t to, const struct tensor_map &map, int x, int y,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

/* Multiples of 16 bytes, from and to such addresses. */
__device__ inline void copy_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/* To the same place in each of two blocks of a cluster, and to their barriers. */
__device__ inline void copy_bytes_to_two(uint32_t to, const void *from, uint32_t bytes,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* At the same barrier of block `rank` of the cluster; what this thread wrote or saw before, who
 * waits there (barrier_wait_cluster) sees too. */
__device__ inline void barrier_tell(uint32_t barrier, uint32_t rank)
{
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

__device__ inline void store_shared_4(uint32_t to, uint32_t value)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

/* What this thread wrote to shared memory before is seen by the copy engine and by tensor cores
 * afterwards. */
__device__ inline void fence_for_copies()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
#endif
