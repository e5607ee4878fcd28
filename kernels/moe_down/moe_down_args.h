/* Arguments of the kernels of moe_down, shared by host and device. */
#ifndef KERNELS_MOE_DOWN_MOE_DOWN_ARGS_H
#define KERNELS_MOE_DOWN_MOE_DOWN_ARGS_H

#include "types.h"

enum {
    MOE_DOWN_SLOTS = 4, /* experts of a row at most: a block's, or half of them each of a pair's */
    MOE_DOWN_INNER_MAX = 3072,
};

/* One row; weights in MXFP4 tiles, as struct moe_down_args (src/ops/args.h). */
struct moe_down_kernel_args {
    int64_t hidden, intermediate, top_k;
    const float *act; /* [top_k][intermediate] */
    const void *down, *down_scales;
    const float *down_bias; /* [n_experts][hidden] */
    const float *weight;    /* [top_k] */
    const int32_t *expert, *row_of_slot;
    float *x; /* [hidden], in place */
};
SOL_STATIC_ASSERT(sizeof(struct moe_down_kernel_args) == 88, "host and device agree");

#endif
