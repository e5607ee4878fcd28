/* Arguments of the kernels of attn_in, shared by host and device. */
#ifndef KERNELS_ATTN_IN_ATTN_IN_ARGS_H
#define KERNELS_ATTN_IN_ATTN_IN_ARGS_H

#include "cache_args.h"

/* One row or two; weights by the kernel's name, as struct attn_in_args (src/ops/args.h). */
struct attn_in_kernel_args {
    struct cache_args cache;
    int64_t hidden, n_heads;
    const float *x, *norm;
    const void *wq, *wk, *wv;
    const void *scales[3]; /* of these, where they lie apart */
    const float *bq, *bk, *bv;
    const float *inv_freq;
    const int32_t *position, *sequence;
    float *q;
    float eps, rope_scale;
};
SOL_STATIC_ASSERT(sizeof(struct attn_in_kernel_args) == 208, "host and device agree");

#endif
