/* Arguments of attn_out_many.cu, shared by host and device. */
#ifndef KERNELS_ATTN_OUT_ATTN_OUT_MANY_ARGS_H
#define KERNELS_ATTN_OUT_ATTN_OUT_MANY_ARGS_H

#include "attn_out/attn_out_args.h"

enum {
    ROUTE_ROWS = 8,         /* of a block, a warp each */
    ROUTE_PAD = 4,          /* floats behind a row in shared memory, against bank conflicts */
    ATTN_OUT_MANY_FEW = 32, /* experts, of kernels for few of them and for many */
    ATTN_OUT_MANY_MAX = 128,
};

/* What follows the projection, for many rows: tables of routing but for the sort. */
struct attn_out_many_args {
    struct attn_out_kernel_args row; /* hidden: a multiple of 32 */
    int32_t m;
    int32_t narrow; /* row.normed is bf16 */
};
SOL_STATIC_ASSERT(sizeof(struct attn_out_many_args) == 128, "host and device agree");

#endif
