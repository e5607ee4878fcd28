/* A block a row: its keys, transposed within the cache's blocks, and values. */
#include "cache.cuh"
#include "common.cuh"
#include "kv_write/kv_write_args.h"

KERNEL_OF(KV_WRITE_THREADS, kv_write_any, kv_write_kernel_args)
{
    wait_for_input();
    let_next_start();
    const cache_args &cache = a.cache;
    int64_t i = blockIdx.x, width = cache.n_kv_heads * cache.head_dim;
    uint32_t dim = (uint32_t)cache.head_dim;
    int32_t position = a.position[i], page = cache_page(cache, a.sequence[i], position);
    for (uint32_t j = threadIdx.x; j < width; j += blockDim.x) {
        uint32_t head = j / dim, d = j % dim;
        int64_t at = cache_k_at(cache, page, head, position) + d * CACHE_BLOCK;
        cache_put(cache.type, cache.k, at, a.k[i * width + j]);
        at = cache_v_at(cache, page, head, position) + d;
        cache_put(cache.type, cache.v, at, a.v[i * width + j]);
    }
}
