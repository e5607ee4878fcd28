/* Where a position lies in a layer's cache: the layout of src/ops/batch.h. */
#ifndef KERNELS_CACHE_CUH
#define KERNELS_CACHE_CUH

#include "cache_args.h"

/* In 32 bits: a division in 64 is a call. Positions and capacities are far below 2^31. */
__device__ inline uint32_t cache_slot(const cache_args &c, int64_t p)
{
    return (uint32_t)p % (uint32_t)c.capacity;
}

__device__ inline int64_t cache_v_index(const cache_args &c, int64_t sequence, int64_t head, int64_t p)
{
    return ((sequence * c.n_kv_heads + head) * c.capacity + cache_slot(c, p)) * c.head_dim;
}

/* Element d of the key is CACHE_BLOCK * d further. */
__device__ inline int64_t cache_k_index(const cache_args &c, int64_t sequence, int64_t head, int64_t p)
{
    uint32_t slot = cache_slot(c, p);
    return ((sequence * c.n_kv_heads + head) * c.capacity + slot / CACHE_BLOCK * CACHE_BLOCK) *
               c.head_dim +
           slot % CACHE_BLOCK;
}

#endif
