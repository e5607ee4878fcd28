/* A layer's cache as kernels get it. */
#ifndef OPS_CUDA_CACHE_CUDA_H
#define OPS_CUDA_CACHE_CUDA_H

#include "cache_args.h"
#include "ops/batch.h"

_Static_assert((int)CACHE_BLOCK == (int)KV_BLOCK && (int)CACHE_PAGE == (int)KV_PAGE, "one layout");

static inline struct cache_args cache_for_kernel(const struct kv_layer *kv)
{
    return (struct cache_args){.k = kv->k,
                               .v = kv->v,
                               .pages = kv->pages,
                               .n_sequences = kv->n_sequences,
                               .n_kv_heads = kv->n_kv_heads,
                               .capacity = kv->capacity,
                               .head_dim = kv->head_dim,
                               .type = (int32_t)kv->dtype,
                               .row_pages = (int32_t)(kv->capacity / KV_PAGE)};
}

#endif
