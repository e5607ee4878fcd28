/* One layer's keys and values, as struct kv_layer (src/ops/batch.h). */
#ifndef KERNELS_CACHE_ARGS_H
#define KERNELS_CACHE_ARGS_H

#include "types.h"

enum { CACHE_BLOCK = 32, CACHE_PAGE = 128 };

struct cache_args {
    void *k, *v;
    const int32_t *pages; /* [n_sequences][row_pages]; NULL: a ring */
    int64_t n_sequences, n_kv_heads, capacity, head_dim;
    int32_t type, row_pages; /* DTYPE_F32, _F16 or _BF16; capacity / CACHE_PAGE */
};
SOL_STATIC_ASSERT(sizeof(struct cache_args) == 64, "host and device agree");

#endif
