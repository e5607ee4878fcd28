/* Arguments of kernels that treat numbers one by one, and of sums over all of them; shared by host
 * and device. */
#ifndef KERNELS_TRAIN_MAP_ARGS_H
#define KERNELS_TRAIN_MAP_ARGS_H

#include "random_args.h"
#include "types.h"

enum {
    MAP_THREADS = 256, /* of a block */
    MAP_PIECES = 2,    /* pieces of 8 numbers of a thread: as many loads at once of each matrix */
    /* What adds up leaves a partial sum of each block. So many that the last ones to finish are a
     * small part of all: 10 times what an H100 holds at once. */
    SUM_BLOCKS = 8192,
    FINISH_THREADS = 128,
};

struct map_kernel_args {
    int64_t count;
    const void *x, *y; /* y may be NULL */
    void *out;
    const float *a, *b; /* one number, or NULL: 1 */
    float factor;
    float limit; /* of swiglu, whose alpha is factor */
};
SOL_STATIC_ASSERT(sizeof(struct map_kernel_args) == 56, "host and device agree");

struct add_axpby_kernel_args {
    int64_t count;
    const void *x, *first, *second, *y; /* y may be NULL: the sum */
    void *sum, *out;
    const float *a, *b; /* one number, or NULL: 1 */
    float factor;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct add_axpby_kernel_args) == 80, "host and device agree");

struct dropout_kernel_args {
    int64_t count;
    const void *x, *add; /* add may be NULL */
    void *out;
    const struct random_key *key;
    uint32_t stream, limit;
    float factor;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct dropout_kernel_args) == 56, "host and device agree");

struct swiglu_backward_kernel_args {
    int64_t count;
    const void *gate, *up;
    void *d, *dup; /* d in place */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct swiglu_backward_kernel_args) == 48, "host and device agree");

struct axpby_backward_kernel_args {
    int64_t count;
    const void *x, *y; /* NULL: their sum is not wanted */
    void *d, *dy;
    const float *a, *b; /* one number, or NULL: 1 */
    float *partials;    /* [2][blocks] of d x, d y */
    float factor;
    int32_t first;
};
SOL_STATIC_ASSERT(sizeof(struct axpby_backward_kernel_args) == 72, "host and device agree");

struct sum_kernel_args {
    int64_t count;
    const void *x;
    const float *scale; /* of weighted_sum */
    float *out;         /* partial sums, one a block; of weighted_sum the sum */
};
SOL_STATIC_ASSERT(sizeof(struct sum_kernel_args) == 32, "host and device agree");

/* A block a column: out += factor * the sum of its partial sums, in a fixed order. */
struct finish_kernel_args {
    const float *partials; /* [columns][parts] */
    int64_t parts, n_first;
    float *first, *second; /* of columns below n_first and of those behind; NULL: nobody wants it */
    float factor_first, factor_second;
};
SOL_STATIC_ASSERT(sizeof(struct finish_kernel_args) == 48, "host and device agree");

/* out = beta * add + the parts, from the first to the last. */
struct parts_kernel_args {
    int64_t count, parts;  /* count: numbers, a multiple of 8 */
    const float *partials; /* [parts][count] */
    const float *add;      /* [count], may be out; read where beta is not 0 */
    float *out;
    float beta;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct parts_kernel_args) == 48, "host and device agree");

struct clip_kernel_args {
    const float *sum;
    float *factor;
    float limit;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct clip_kernel_args) == 24, "host and device agree");

#endif
