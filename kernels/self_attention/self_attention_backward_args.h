/* Arguments of self_attention_backward_wgmma.cu and self_attention_rows.cu, shared by host and
 * device. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_BACKWARD_ARGS_H
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_BACKWARD_ARGS_H

#include "tensor_map_args.h"

/* A block has 128 keys of a sequence, 64 for each of two warpgroups, and goes through tiles of
 * queries: 64 of 128 dimensions, 128 of 64. */
enum {
    BACK_KEYS = 128,
    BACK_TILE = 64 * 128, /* numbers of a tile of queries */
    BACK_THREADS = 384,
    BACK_Q_STAGES = 3, /* in shared memory: of queries, of gradients of results */
    BACK_D_STAGES = 2,
    BACK_BARRIERS = 1024,
    BACK_ROWS_THREADS = 256,
    BACK_SINK_THREADS = 512,
};
#define BACK_ROWS(dim)   (BACK_TILE / (dim))
#define BACK_STATS(dim)  (2 * BACK_ROWS(dim)) /* numbers of a tile: lse as a power of two, delta */
#define BACK_SCORES(dim) (BACK_KEYS * BACK_ROWS(dim) * 2)
/* Keys and values; stages of queries, gradients and their numbers; scores twice; dq. */
#define BACK_SHARED(dim)                                                                           \
    (1024 + BACK_BARRIERS + 2 * BACK_KEYS * (dim)*2 +                                              \
     BACK_Q_STAGES * (BACK_TILE * 2 + BACK_STATS(dim) * 4) + BACK_D_STAGES * BACK_TILE * 2 +       \
     2 * BACK_SCORES(dim) + BACK_TILE * 4)

struct self_attention_backward_wgmma_args {
    struct tensor_map q, k, v,
        dout; /* [64 dimensions][rows of a sequence][halves of heads][sequences] */
    const uint16_t *out, *dout_rows;
    const float *lse, *sinks; /* sinks, dsinks: or NULL */
    uint16_t *dq, *dk, *dv;
    float *dsinks;
    float *stats;    /* [pairs][q_tiles][2][rows of a tile] */
    float *sums;     /* [pairs][q_tiles][BACK_TILE] dq, as the threads have it */
    uint32_t *turns; /* [pairs][q_tiles][2]: how many blocks have added */
    int32_t length, n_heads, group,
        window; /* group: query heads of a key head; window: up to length */
    int32_t sequences, q_tiles, k_tiles;
    int32_t ordered; /* sums of dq are made in the order of keys */
    float scale;
    /* Blocks write dq of the key head that lies so many before theirs, whose blocks have ended as a
     * rule; 0: none. What is left, from tile finish_first on, has a kernel. */
    int32_t lag, finish_first;
    int32_t padding[15];
};
SOL_STATIC_ASSERT(sizeof(struct self_attention_backward_wgmma_args) == 704,
                  "host and device agree");

#endif
