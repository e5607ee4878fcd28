/* Arguments of the kernels that training's experts and biases need; shared by host and device. */
#ifndef KERNELS_TRAIN_EXPERTS_ARGS_H
#define KERNELS_TRAIN_EXPERTS_ARGS_H

#include "types.h"

enum {
    ROWS_WARPS = 8, /* of a block whose warps have a row each */
    BIAS_THREADS = 128,
    /* Of rows, in all groups together, for the gradient of biases: a thread has 128 of the 65,536
     * rows of a micro-batch of the built-in model. */
    BIAS_STRIPES = 512,
    BIAS_STRIPES_MIN = 4, /* of a group */
};

/* Rows that are taken from elsewhere, or added up. */
struct rows_kernel_args {
    int64_t m, n, top_k;
    const int32_t *rows; /* gather_rows: of x for each of y; else row of each slot */
    const float *weight; /* [m][top_k], or NULL: 1 */
    const void *x;       /* what is gathered; rows of experts */
    const void *d;       /* combine_backward: [m][n] */
    void *out;           /* add_rows: in place */
    float *dweight;      /* combine_backward: [m][top_k] */
};
SOL_STATIC_ASSERT(sizeof(struct rows_kernel_args) == 72, "host and device agree");

struct bias_kernel_args {
    int64_t m, n, groups;
    const int32_t *group_offsets; /* or NULL: one group */
    const float *bias;            /* [groups][n] */
    const void *dy;
    void *y;         /* in place */
    float *partials; /* [groups][n][stripes] */
    int64_t stripes; /* of a group */
};
SOL_STATIC_ASSERT(sizeof(struct bias_kernel_args) == 72, "host and device agree");

struct route_backward_kernel_args {
    int64_t m, n_experts, top_k;
    const float *scale, *dweight, *weight;
    const int32_t *expert, *group_offsets;
    const float *logits;
    float *dlogits;
    float balance;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct route_backward_kernel_args) == 88, "host and device agree");

struct round_kernel_args {
    int64_t blocks; /* of 32 numbers */
    const float *on, *from;
    void *to;
};
SOL_STATIC_ASSERT(sizeof(struct round_kernel_args) == 32, "host and device agree");

#endif
