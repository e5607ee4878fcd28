/* Arguments of kernels of norms over rows and heads, and of smear; shared by host and device. */
#ifndef KERNELS_TRAIN_NORMS_ARGS_H
#define KERNELS_TRAIN_NORMS_ARGS_H

#include "types.h"

enum {
    NORM_WARPS = 4,           /* of a block whose warps have a row each */
    NORM_WARP_HELD = 8,       /* pieces of 8 numbers that a thread keeps in registers */
    NORM_BLOCK_THREADS = 256, /* of a block that has one row */
    NORM_BLOCK_HELD = 4,
    NORM_WARP_MAX = 8 * 32 * NORM_WARP_HELD, /* numbers of a row */
    NORM_BLOCK_MAX = 8 * NORM_BLOCK_THREADS * NORM_BLOCK_HELD,
    GAIN_STRIPES = 64, /* of rows, for the gradient of the gain */
    GAIN_THREADS = 128,
};

struct norm_kernel_args {
    int64_t m, n;
    const void *x;
    const int32_t *rows; /* of x for each row of y, or NULL */
    const float *gain;   /* [n], or NULL: 1 */
    void *y;
    float eps;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct norm_kernel_args) == 56, "host and device agree");

struct add_norm_kernel_args {
    int64_t m, n;
    const void *x, *add;
    const float *gain;    /* [n], or NULL: 1 */
    void *sum, *y, *copy; /* copy may be NULL */
    float eps;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct add_norm_kernel_args) == 72, "host and device agree");

struct norm_backward_kernel_args {
    int64_t m, n;
    const void *x, *dy;
    const float *gain; /* [n], or NULL: 1 */
    void *dx;
    float *rstd;     /* [m], or NULL: nobody wants the gain's gradient */
    float *partials; /* [n][GAIN_STRIPES] */
    float eps;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct norm_backward_kernel_args) == 72, "host and device agree");

enum {
    ROTARY_PIECE = 8,     /* pairs of a thread */
    ROTARY_DIM_MAX = 512, /* of a head, for threads that keep it in registers */
    ROTARY_ROWS_MAX = 8,  /* of a block */
    ROTARY_THREADS_MAX = 512,
    ROTARY_ANY_THREADS = 128,
};

struct rotary_kernel_args {
    int64_t m, n_heads, head_dim;
    const int32_t *position;
    const float *inv_freq;
    void *x;     /* backward: y */
    void *d;     /* backward: in place */
    float *rstd; /* written; backward: read */
    float scale, eps;
    int32_t rounded, rows; /* of a block */
};
SOL_STATIC_ASSERT(sizeof(struct rotary_kernel_args) == 80, "host and device agree");

enum {
    SMEAR_WARPS = 8,
    SMEAR_CHANNELS_MAX = 128, /* of the backward op, which keeps their sums in registers */
    SMEAR_BLOCKS = 2048,      /* four times what an H100 holds at once */
};

struct smear_kernel_args {
    int64_t sequences, length, n, channels;
    const float *lambda, *gate;
    const void *x, *dy;
    void *out;       /* y, or dx */
    float *partials; /* [1 + channels][blocks] of dlambda, dgate */
};
SOL_STATIC_ASSERT(sizeof(struct smear_kernel_args) == 80, "host and device agree");

#endif
