/* One layer's keys and values, as struct kv_layer (src/ops/batch.h). */
#ifndef KERNELS_CACHE_ARGS_H
#define KERNELS_CACHE_ARGS_H

#include "types.h"

enum { CACHE_BLOCK = 32 };

struct cache_args {
    void *k, *v;
    int64_t n_sequences, n_kv_heads, capacity, head_dim;
    int32_t type, padding; /* WEIGHT_F32, _F16 or _BF16 */
};
SOL_STATIC_ASSERT(sizeof(struct cache_args) == 56, "host and device agree");

#endif
