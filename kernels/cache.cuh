/* Where a position lies in a layer's cache: the layout of src/ops/batch.h. A kernel looks the page up
 * (cache_page) once for what it takes at a time, which is a block of positions, or a page; then
 * cache_k_at and cache_v_at are arithmetic. What begins at a multiple of CACHE_BLOCK lies on one page
 * for CACHE_BLOCK positions, and contiguously; of CACHE_PAGE, for CACHE_PAGE positions where the cache
 * has pages. cache_k_index and cache_v_index do both. */
#ifndef KERNELS_CACHE_CUH
#define KERNELS_CACHE_CUH

#include "cache_args.h"

/* The page of position p; of a ring, the sequence. No kernel of a step writes the table, so that it may
 * be read before wait_for_input, and better is: a load of which others wait. Entries that no position
 * of the sequence has are anything. */
__device__ inline int32_t cache_page(const cache_args &c, int64_t sequence, int64_t p)
{
    if (!c.pages) return (int32_t)sequence;
    return __ldg(c.pages + sequence * c.row_pages + (uint32_t)p / CACHE_PAGE);
}

/* Where position p lies, in rows of head_dim elements. In 32 bits: a division in 64 is a call.
 * Positions and capacities are far below 2^31. */
__device__ inline int64_t cache_row(const cache_args &c, int32_t page, int64_t head, int64_t p)
{
    int64_t run = page * c.n_kv_heads + head;
    if (c.pages) return run * CACHE_PAGE + (uint32_t)p % CACHE_PAGE;
    return run * c.capacity + (uint32_t)p % (uint32_t)c.capacity;
}

__device__ inline int64_t cache_v_at(const cache_args &c, int32_t page, int64_t head, int64_t p)
{
    return cache_row(c, page, head, p) * c.head_dim;
}

/* Element d of the key is CACHE_BLOCK * d further. */
__device__ inline int64_t cache_k_at(const cache_args &c, int32_t page, int64_t head, int64_t p)
{
    int64_t row = cache_row(c, page, head, p);
    uint32_t in_block = (uint32_t)row % CACHE_BLOCK;
    return (row - in_block) * c.head_dim + in_block;
}

__device__ inline int64_t cache_v_index(const cache_args &c, int64_t sequence, int64_t head, int64_t p)
{
    return cache_v_at(c, cache_page(c, sequence, p), head, p);
}

__device__ inline int64_t cache_k_index(const cache_args &c, int64_t sequence, int64_t head, int64_t p)
{
    return cache_k_at(c, cache_page(c, sequence, p), head, p);
}

#endif
