/* The projection of attn_out for few rows, shared by host and device. */
#ifndef KERNELS_ATTN_OUT_ATTN_OUT_ROWS_ARGS_H
#define KERNELS_ATTN_OUT_ATTN_OUT_ROWS_ARGS_H

#include "gemm/stream_rows_args.h"

/* The kernels: name, weights, rows at most, tiles of 16 features a block, groups of 8 columns,
 * parts, steps of weights and of activations on their way, blocks an SM. H100, 2880 features, 8
 * rows of bf16, with the router: 90 blocks of two tiles 17.7 us, 180 of one 18.4. */
#define ATTN_OUT_ROWS_BF16(KIND)                                                                   \
    KIND(attn_out_f32_bf16_2, bf16_weights, 2, 2, 1, 3, 4, 2, 1)                                   \
    KIND(attn_out_bf16_bf16_8, bf16_weights, 8, 2, 1, 1, 4, 2, 1)                                  \
    KIND(attn_out_bf16_bf16_16, bf16_weights, 16, 2, 2, 1, 4, 2, 1)                                \
    KIND(attn_out_bf16_bf16_32, bf16_weights, 32, 2, 4, 1, 4, 1, 1)
#define ATTN_OUT_ROWS_Q8_0(KIND)                                                                   \
    KIND(attn_out_f32_q8_0_2, q8_0_weights, 2, 1, 1, 3, 2, 1, 2)                                   \
    KIND(attn_out_bf16_q8_0_8, q8_0_weights, 8, 1, 1, 1, 2, 1, 2)                                  \
    KIND(attn_out_bf16_q8_0_16, q8_0_weights, 16, 2, 2, 1, 2, 1, 1)                                \
    KIND(attn_out_bf16_q8_0_32, q8_0_weights, 32, 2, 4, 1, 1, 1, 1)

#endif
