/* Arguments of self_attention_any.cu, shared by host and device. */
#ifndef KERNELS_SELF_ATTENTION_SELF_ATTENTION_ANY_ARGS_H
#define KERNELS_SELF_ATTENTION_SELF_ATTENTION_ANY_ARGS_H

#include "types.h"

/* A block: tiles of so many queries or keys, and so many dimensions of its results. */
enum { SELF_ANY_TILE = 64, SELF_ANY_DIMS = 128, SELF_ANY_THREADS = 256 };

/* Which matrices are bf16; all others are float32. */
enum {
    SELF_Q = 1,
    SELF_K = 2,
    SELF_V = 4,
    SELF_OUT = 8,
    SELF_DOUT = 16,
    SELF_DQ = 32,
    SELF_DK = 64,
    SELF_DV = 128
};

/* As struct self_attention_args and struct self_attention_backward_args (src/ops/train_args.h). */
struct self_attention_any_args {
    const void *q, *k, *v, *dout;
    const void *out_rows; /* of the forward op, for its gradients */
    void *out, *dq, *dk, *dv;
    const float *sinks; /* or NULL */
    const float *lse_rows;
    float *lse;
    float *delta; /* [n_heads][sequences * length] sums of dout * out */
    float *dsinks;
    int64_t tokens;                                   /* of all sequences */
    int32_t length, n_heads, group, head_dim, window; /* window: up to length */
    int32_t tiles, chunks;                            /* of a sequence; of a head's dimensions */
    float scale;
    uint32_t bf16; /* SELF_Q.. */
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct self_attention_any_args) == 160, "host and device agree");

#endif
