/* Stages in shared memory that one role of a block fills while others read them, each with two
 * barriers: it is full, it is empty. The kind K of a kernel says how many STAGES of STAGE_BYTES
 * there are from `base` on, where their barriers are (BARRIERS_AT), and how many blocks share what
 * is copied (CLUSTER). */
#ifndef KERNELS_WGMMA_RING_CUH
#define KERNELS_WGMMA_RING_CUH

#include "common.cuh"
#include "inline.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Place in the ring of stages. */
template <class K> struct wgmma_ring {
    uint32_t base; /* shared address */
    int stage, phase;

    INLINE void step()
    {
        if (++stage == K::STAGES) stage = 0, phase ^= 1;
    }
    INLINE uint32_t at() const { return base + stage * K::STAGE_BYTES; }
    /* The same, and the compiler knows that all lanes have it: operands are made in uniform registers. */
    INLINE uint32_t uniform_at() const { return __reduce_max_sync(FULL_MASK, at()); }
    INLINE uint32_t full(int which) const { return base + K::BARRIERS_AT + 8 * which; }
    INLINE uint32_t empty(int which) const { return full(K::STAGES + which); }
    /* A warp is done with a stage; of a cluster all blocks write to it. */
    INLINE void release(int which) const
    {
        if (threadIdx.x % WARP) return;
        if (K::CLUSTER == 1)
            barrier_arrive(empty(which));
        else
            for (int r = 0; r < K::CLUSTER; r++) barrier_arrive_at(empty(which), r);
    }
};

#endif
#endif
