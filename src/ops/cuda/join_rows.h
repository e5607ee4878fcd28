/* The weighted sums of few rows' experts, into the residual stream. */
#ifndef OPS_CUDA_JOIN_ROWS_H
#define OPS_CUDA_JOIN_ROWS_H

#include "gpu/kernel.h"
#include "ops/args.h"

#define JOIN_ROWS_IMAGE "moe_down/moe_down_rows.cu"

/* x[i] += sum_j weight[i][j] y[row_of_slot[i][j]] for m rows of n: a multiple of 4, and rows at
 * multiples of 16 bytes. y: [slots][n]. */
void join_rows_put(struct gpu_stream *stream, const struct routing *routing, int64_t m, int64_t n,
                   int64_t top_k, const float *y, float *x);

#endif
