/* Tensor cores and tensor memory of data-centre Blackwell: products of block-scaled operands in
 * shared memory, sums in tensor memory. One thread starts what a whole SM computes, or BLOCKS = 2
 * of them: a cluster of two blocks, of which the first one's thread starts it all. A barrier in
 * shared memory says when it is done. After "PTX ISA 9.0", 9.7.16. The file compiles everywhere,
 * the instructions for sm_100a alone.
 *
 * Tensor memory has 128 lanes and 512 columns of 32 bits. An address is lane << 16 | column. */
#ifndef KERNELS_TCGEN05_CUH
#define KERNELS_TCGEN05_CUH

#include "tcgen05_operands.cuh"

#ifdef __CUDA_ARCH_FEAT_SM100_ALL

/* ---- memory ---- */

/* By a whole warp, of each of BLOCKS. The address of `columns`, a power of two, is put to shared
 * memory at `to`; waits until so many are free. */
template <int BLOCKS> __device__ inline void tensor_alloc(uint32_t to, int columns)
{
    if (BLOCKS == 1)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                     "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(to),
                     "r"(columns)
                     : "memory");
    else
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;\n"
                     "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::"r"(to),
                     "r"(columns)
                     : "memory");
}

/* What tensor_alloc put to `at`. */
__device__ inline uint32_t tensor_address(uint32_t at)
{
    uint32_t address;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(address) : "r"(at) : "memory");
    return address;
}

/* By the warps that allocated it; everybody is done with it. */
template <int BLOCKS> __device__ inline void tensor_free(uint32_t address, int columns)
{
    if (BLOCKS == 1)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address),
                     "r"(columns)
                     : "memory");
    else
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address),
                     "r"(columns)
                     : "memory");
}

/* ---- by one thread ---- */

/* An atom of scales to four columns, for all four quarters of the lanes; of two blocks, each its
 * own atom. Products that are started later see it; those that were started before may too. */
template <int BLOCKS> __device__ inline void tensor_put_scales(uint32_t to, uint64_t atom)
{
    if (BLOCKS == 1)
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(atom)
                     : "memory");
    else
        asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(atom)
                     : "memory");
}

/* sums = a b^T or += where `add`, for 64 columns of k. a: 128 rows of each block, b: n rows, of two
 * blocks half of them in each; their scales are four columns for each 128 rows, as
 * tensor_put_scales leaves them, of b all in each block. A block gets the sums of its rows of a.
 * Products on the same sums run in order. */
template <int BLOCKS>
__device__ inline void tensor_multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t shape,
                                       uint32_t a_scales, uint32_t b_scales, bool add)
{
    if (BLOCKS == 1)
        asm volatile("{.reg .pred p; setp.ne.u32 p, %6, 0;\n"
                     "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
                     " [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(sums),
                     "l"(a), "l"(b), "r"(shape), "r"(a_scales), "r"(b_scales), "r"((uint32_t)add)
                     : "memory");
    else
        asm volatile("{.reg .pred p; setp.ne.u32 p, %6, 0;\n"
                     "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.scale_vec::4X"
                     " [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(sums),
                     "l"(a), "l"(b), "r"(shape), "r"(a_scales), "r"(b_scales), "r"((uint32_t)add)
                     : "memory");
}

/* Arrives at a barrier, of two blocks at that of each, once all that this thread started so far is
 * done. */
template <int BLOCKS> __device__ inline void tensor_arrive(uint32_t barrier)
{
    if (BLOCKS == 1)
        asm volatile(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                barrier)
            : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
                     ".multicast::cluster.b64 [%0], %1;" ::"r"(barrier),
                     "h"((uint16_t)3)
                     : "memory");
}

/* ---- order between threads ---- */

/* What this thread did with tensor memory comes before what it tells others next. */
__device__ inline void tensor_fence_before()
{
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

/* What this thread does with tensor memory comes after what it waited for. */
__device__ inline void tensor_fence_after()
{
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* ---- by warps ---- */

/* 16 columns of the lane of each thread; warp w of a block can read lanes 32 (w % 4) .. + 31, of
 * which `from` names the first. The values are there after tensor_wait_loads of them. */
__device__ inline void tensor_load_16(float (&v)[16], uint32_t from)
{
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,"
                 "%12,%13,%14,%15}, [%16];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]),
                   "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]),
                   "=f"(v[12]), "=f"(v[13]), "=f"(v[14]), "=f"(v[15])
                 : "r"(from)
                 : "memory");
}

__device__ inline void tensor_wait_loads(float (&v)[16])
{
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 16; i++) asm volatile("" : "+f"(v[i])::"memory"); /* not used before */
}

#endif
#endif
