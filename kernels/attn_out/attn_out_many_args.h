/* Arguments of attn_out_many.cu, shared by host and device. */
#ifndef KERNELS_ATTN_OUT_ATTN_OUT_MANY_ARGS_H
#define KERNELS_ATTN_OUT_ATTN_OUT_MANY_ARGS_H

#include "attn_out/attn_out_args.h"

enum {
    ROUTE_MANY_BLOCKS = 8, /* of a cluster */
    ROUTE_MANY_THREADS = 256,
    ROUTE_MANY_STEP = 32,     /* columns that are multiplied together */
    ROUTE_MANY_LAID = 64,     /* rows from which on sums lie where the rows were */
    ROUTE_MANY_HIDDEN = 4096, /* at most: two pieces of 8 columns a lane */
    ATTN_OUT_MANY_FEW = 32,   /* experts, of kernels for few of them and for many */
    ATTN_OUT_MANY_MAX = 128,
};

/* Rows of a cluster. */
#define ROUTE_MANY_ROWS(KIND) KIND(8) KIND(32) KIND(64)

/* Shared memory: barriers, biases, scales and squares; a block's part of the rows, each with 16
 * bytes behind it against bank conflicts; the sums of those rows for which the block chooses. */
#define ROUTE_MANY_HEAD(rows)                                                                      \
    ((16 + 4 * ATTN_OUT_MANY_MAX + 4 * (ROUTE_MANY_BLOCKS + 1) * (rows) + 127) / 128 * 128)
#define ROUTE_MANY_ROW_BYTES(hidden)                                                               \
    (((hidden) / ROUTE_MANY_STEP + ROUTE_MANY_BLOCKS - 1) / ROUTE_MANY_BLOCKS * 4 *                \
         ROUTE_MANY_STEP +                                                                         \
     16)
#define ROUTE_MANY_SUMS(rows) (4 * ATTN_OUT_MANY_MAX * (rows))

/* What follows the projection, for many rows: tables of routing but for the sort. */
struct attn_out_many_args {
    struct attn_out_kernel_args row; /* hidden: a multiple of 32 */
    int32_t m;
    int32_t narrow; /* row.normed is bf16 */
};
SOL_STATIC_ASSERT(sizeof(struct attn_out_many_args) == 136, "host and device agree");

#endif
