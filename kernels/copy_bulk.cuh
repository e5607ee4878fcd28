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

__device__ inline void copy_box_3d(uint32_t to, const struct tensor_map &map, int x, int y, int z,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ inline void copy_box_5d(uint32_t to, const struct tensor_map &map, int x, int v,
                                   uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %4, %4, %5}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(0), "r"(v)
                 : "memory");
}

/* To the same place in every block of the cluster that `blocks` has a bit for, and to their
 * barriers. */
__device__ inline void copy_box_2d_to(uint32_t to, const struct tensor_map &map, int x, int y,
                                      uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
                 : "memory");
}

__device__ inline void copy_box_3d_to(uint32_t to, const struct tensor_map &map, int x, int y,
                                      int z, uint32_t barrier, uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
                 : "memory");
}

/* Global to shared memory, multiples of 16 bytes, which `barrier` gets. */
__device__ inline void copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The same to each of two blocks of a cluster, and to their barriers. */
__device__ inline void copy_in_two(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

/* Shared to global memory, multiples of 16 bytes; what threads wrote there before needs
 * fence_for_copies and a sync. */
__device__ inline void copy_out(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/* The same, added to what is there: float32. */
__device__ inline void add_out(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
}

__device__ inline void copy_out_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until the copies of this thread have read shared memory. */
__device__ inline void copy_out_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
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

/* The same for copies between any memories: what threads wrote and others of the GPU will copy. */
__device__ inline void fence_for_bulk_copies()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

#endif
#endif
