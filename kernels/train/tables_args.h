/* Arguments of kernels of rows of tables that tokens choose; shared by host and device. */
#ifndef KERNELS_TRAIN_TABLES_ARGS_H
#define KERNELS_TRAIN_TABLES_ARGS_H

#include "types.h"

enum {
    TABLE_THREADS_MAX = 256, /* of a block; as many as a row has pieces */
    GATED_HEADS_MAX = 256,
    /* Of the backward op, whose warps have a row each: its pieces, whose products with dy are added
     * up by head; its heads; weights of gates of a thread, whose gradients it adds up. */
    GATED_WARPS = 8,
    GATED_PIECES_MAX = 512,
    GATED_SLOPES_MAX = 64,
    GATED_HELD_FEW = 4,
    GATED_HELD_MANY = 24,
    GATED_BLOCKS = 2048, /* as SMEAR_BLOCKS */
    /* Rows that a block adds up by token: a token's rows in one stretch of `order`. */
    STRETCH = 32,
    STRETCH_AHEAD = 4, /* rows that are on their way at once */
};

struct lookup_kernel_args {
    int64_t m, n;
    const int32_t *token;
    const void *table;
    void *x;
    int32_t narrow; /* the table is in bf16 */
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct lookup_kernel_args) == 48, "host and device agree");

struct gated_kernel_args {
    int64_t m, n, heads, channels, x_cols;
    const int32_t *token; /* or the token before; -1: the row stays */
    const float *lambda;  /* or NULL: 1 */
    const void *table, *table_scales, *gate;
    const void *x;
    void *y;
    int32_t table_type, gate_type; /* as weight_at wants them */
    float scale, eps;
    int32_t normed, padding;
};
SOL_STATIC_ASSERT(sizeof(struct gated_kernel_args) == 120, "host and device agree");

struct gated_backward_kernel_args {
    int64_t m, n, heads, channels, x_cols;
    const int32_t *token;
    const void *table;
    const float *gate;
    const void *x, *dy;
    void *dx;
    float *weights;  /* [m][heads] what dy counts in the table's gradient */
    float *partials; /* [heads * channels][blocks] of dgate */
    float scale;
    int32_t narrow; /* the table is in bf16 */
};
SOL_STATIC_ASSERT(sizeof(struct gated_backward_kernel_args) == 112, "host and device agree");

struct scatter_kernel_args {
    int64_t m, n, heads; /* heads 0: all rows count alike */
    const int32_t *token, *order;
    const void *d;
    const float *weights; /* [m][heads], or NULL */
    void *dtable;
    float
        *partials; /* [stretches][2][n]: of the token that began before, of the one that goes on */
};
SOL_STATIC_ASSERT(sizeof(struct scatter_kernel_args) == 72, "host and device agree");

#endif
