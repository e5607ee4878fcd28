/* Barriers in shared memory (8 bytes each), those of whole warps by number, and clusters of blocks. The file
 * compiles everywhere, the instructions from sm_90 on. */
#ifndef KERNELS_BARRIERS_CUH
#define KERNELS_BARRIERS_CUH

#include "types.h"

#if __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* What barrier_init wrote is seen by copies and by the other blocks of the cluster, after a sync.
 */
__device__ inline void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives when all copies of this thread are there (copy_async.cuh); barrier_init counts it. */
__device__ inline void barrier_arrive_copied(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* The same barrier of block `rank` of the cluster. It orders nothing but what matrix instructions have
 * read (release at the scope of the cluster would flush caches, and cost two thirds of the speed). */
__device__ inline void barrier_arrive_at(uint32_t barrier, uint32_t rank)
{
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
                 "r"(rank)
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

/* Arrives and says how many bytes copies will bring in this phase. */
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}

/* For what other blocks of the cluster have put. */
__device__ inline void barrier_wait_cluster(uint32_t barrier, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}

/* Of `threads` threads, whole warps, by number 1..15. */
__device__ inline void named_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Whether one of them says so. */
__device__ inline bool named_any(int number, bool mine)
{
    uint32_t any;
    asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred q, %2, 128, p;\n"
                 "selp.u32 %0, 1, 0, q;}"
                 : "=r"(any)
                 : "r"((uint32_t)mine), "r"(number)
                 : "memory");
    return any;
}

__device__ inline void named_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ inline uint32_t cluster_rank()
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* For what needs no order but that all blocks have come so far. */
__device__ inline void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ inline void cluster_wait()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

__device__ inline void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

#endif
#endif
