/* Arguments of attn_in of few rows, shared by host and device. */
#ifndef KERNELS_ATTN_IN_ATTN_IN_ROWS_ARGS_H
#define KERNELS_ATTN_IN_ATTN_IN_ROWS_ARGS_H

#include "attn_in/attn_in_args.h"
#include "gemm/stream_rows_args.h"

struct attn_in_rows_args {
    struct attn_in_kernel_args all; /* of m rows */
    int64_t m;
};

/* The kernels: name, weights, rows at most, tiles of 8 pairs a block, groups of 8 rows, steps of
 * weights and of activations on their way, blocks an SM. H100, 80 heads of 64, 8 rows of
 * bf16: 160 blocks of two tiles 13.5 us, 80 of four 16.8; with more rows four, so that fewer blocks
 * read a row. */
#define ATTN_IN_ROWS_BF16(KIND)                                                                    \
    KIND(attn_in_bf16_bf16_8, bf16_weights, 8, 2, 1, 2, 2, 2)                                      \
    KIND(attn_in_bf16_bf16_16, bf16_weights, 16, 4, 2, 2, 2, 1)                                    \
    KIND(attn_in_bf16_bf16_32, bf16_weights, 32, 4, 4, 2, 1, 1)
#define ATTN_IN_ROWS_Q8_0(KIND)                                                                    \
    KIND(attn_in_bf16_q8_0_8, q8_0_weights, 8, 4, 1, 2, 1, 1)                                      \
    KIND(attn_in_bf16_q8_0_16, q8_0_weights, 16, 4, 2, 1, 1, 1)                                    \
    KIND(attn_in_bf16_q8_0_32, q8_0_weights, 32, 2, 4, 1, 1, 1)

#endif
