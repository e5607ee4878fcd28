/* Arguments of self_attention_wgmma.cu, shared by host and device. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_WGMMA_ARGS_H
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_WGMMA_ARGS_H

#include "tensor_map_args.h"

/* A tile is 128 neighbouring rows of a sequence with one head, 64 for each of two warpgroups; a
 * step is 128 keys. The ring has boxes of keys and of values by turns. */
enum {
    SELF_ROWS = 128,
    SELF_KEYS = 128,
    SELF_THREADS = 384,
    SELF_BARRIERS = 1024, /* bytes of shared memory before the boxes */
};
#define SELF_SLOTS(dim)  ((dim) == 128 ? 5 : 8)
#define SELF_SHARED(dim) (1024 + SELF_BARRIERS + (2 + SELF_SLOTS(dim)) * SELF_KEYS * (dim)*2)

struct self_attention_wgmma_args {
    struct tensor_map q, k, v; /* [64 dimensions][rows of a sequence][halves of heads][sequences] */
    const float *sinks;        /* [n_heads], or NULL */
    uint16_t *out;
    float *lse;
    uint32_t *counter; /* of tiles that are given out; 0 before and after */
    int32_t length, n_heads, group,
        window; /* group: query heads of a key head; window: up to length */
    int32_t tiles, pairs,
        section; /* tiles of a pair of sequence and head; pairs that go together */
    float scale; /* of scores, as powers of two */
};
SOL_STATIC_ASSERT(sizeof(struct self_attention_wgmma_args) == 448, "host and device agree");

#endif
