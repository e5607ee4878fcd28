/* Attention for every shape: a block for each row and key head, a warp for each of its query heads,
 * a lane for each of the 32 positions of a cache block, so that a score needs no sum across lanes.
 * The softmax runs along; it begins with the sink, or with nothing where there are none. */
#include "attention/attention_args.h"
#include "cache.cuh"
#include "common.cuh"

#define NOTHING (-1e30f) /* below every score */

enum { PER_LANE = ATTENTION_DIM_MAX / WARP };

/* Dynamic shared memory: the queries of the block's warps, [warps][head_dim]. */
KERNEL(attention_any, attention_kernel_args)
{
    extern __shared__ float queries[];
    wait_for_input();
    let_next_start();
    const cache_args &cache = a.cache;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t i = blockIdx.x, kv_head = blockIdx.y, dim = cache.head_dim;
    int64_t head = kv_head * ((uint32_t)a.n_heads / (uint32_t)cache.n_kv_heads) + warp;
    float *q = queries + warp * dim;
    for (int64_t d = lane; d < dim; d += WARP) q[d] = a.q[(i * a.n_heads + head) * dim + d] * a.scale;
    __syncwarp();

    int64_t end = (int64_t)a.position[i] + 1, sequence = a.sequence[i];
    int64_t begin = a.window && end > a.window ? end - a.window : 0;
    float top = a.sinks ? a.sinks[head] : NOTHING, total = a.sinks ? 1 : 0, sum[PER_LANE] = {0};
    for (int64_t base = begin / CACHE_BLOCK * CACHE_BLOCK; base < end; base += CACHE_BLOCK) {
        int64_t p = base + lane;
        bool visible = p >= begin && p < end;
        float score = 0;
        int32_t page = cache_page(cache, sequence, base);
        int64_t key = cache_k_at(cache, page, kv_head, base) + lane;
        for (int64_t d = 0; d < dim; d++)
            score += q[d] * cache_at(cache.type, cache.k, key + d * CACHE_BLOCK);
        float highest = warp_max(visible ? score : top);
        highest = fmaxf(highest, top);
        float shrink = expf(top - highest), weight = visible ? expf(score - highest) : 0;
        total = total * shrink + warp_sum(weight);
        top = highest;
        for (int n = 0; n < PER_LANE; n++) sum[n] *= shrink;
        int64_t value = cache_v_at(cache, page, kv_head, base) + lane;
        for (int s = 0; s < CACHE_BLOCK; s++, value += dim) {
            int64_t at = base + s;
            float w = __shfl_sync(FULL_MASK, weight, s);
            if (at < begin || at >= end) continue;
            for (int n = 0; n < PER_LANE; n++)
                if (lane + n * WARP < dim)
                    sum[n] += w * cache_at(cache.type, cache.v, value + n * WARP);
        }
    }
    for (int n = 0; n < PER_LANE; n++)
        if (lane + n * WARP < dim)
            ((float *)a.out)[(i * a.n_heads + head) * dim + lane + n * WARP] = sum[n] / total;
}
