/* The projection of attn_out for few rows, shared by host and device. */
#ifndef KERNELS_ATTN_OUT_ATTN_OUT_ROWS_ARGS_H
#define KERNELS_ATTN_OUT_ATTN_OUT_ROWS_ARGS_H

#include "gemm/stream_rows_args.h"

/* The kernels: name, weights, rows at most, tiles of 16 features a pair of blocks, groups of 8
 * rows, steps of weights and of activations on their way, blocks an SM. */
#define ATTN_OUT_ROWS_BF16(KIND)                                                                   \
    KIND(attn_out_bf16_bf16_8, bf16_weights, 8, 2, 1, 4, 2, 2)                                     \
    KIND(attn_out_bf16_bf16_16, bf16_weights, 16, 2, 2, 2, 1, 2)                                   \
    KIND(attn_out_bf16_bf16_32, bf16_weights, 32, 4, 4, 2, 1, 1)
#define ATTN_OUT_ROWS_Q8_0(KIND)                                                                   \
    KIND(attn_out_bf16_q8_0_8, q8_0_weights, 8, 2, 1, 2, 1, 2)                                     \
    KIND(attn_out_bf16_q8_0_16, q8_0_weights, 16, 2, 2, 1, 1, 2)                                   \
    KIND(attn_out_bf16_q8_0_32, q8_0_weights, 32, 2, 4, 1, 1, 1)

#endif
