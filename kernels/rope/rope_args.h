/* Arguments of the kernels of rope, shared by host and device. */
#ifndef KERNELS_ROPE_ROPE_ARGS_H
#define KERNELS_ROPE_ROPE_ARGS_H

#include "types.h"

enum { ROPE_THREADS = 256 }; /* of a block */

struct rope_kernel_args {
    int64_t n_heads, head_dim;
    const int32_t *position; /* [rows] */
    const float *inv_freq;   /* [head_dim / 2] */
    void *x;                 /* [rows][n_heads][head_dim] */
    float scale;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct rope_kernel_args) == 48, "host and device agree");

#endif
