/* What follows the output projection of attn_out, for the variants that share it: norm, router and
 * choice by a cluster of blocks a row (kernels/attn_out/attn_out.cu), from sm_90 on. */
#ifndef OPS_CUDA_ATTN_OUT_CUDA_H
#define OPS_CUDA_ATTN_OUT_CUDA_H

#include "ops/args.h"
#include "ops/op.h"

bool attn_out_adds(const struct attn_out_args *a, char why[OP_REASON_MAX]); /* its addresses */
bool attn_out_routes(const struct attn_out_args *a, char why[OP_REASON_MAX]);
/* Behind the kernel that has written a->x: all of it; or without the choice, whose logits are the
 * sums of `halves` [m][n_experts][2] then. */
void attn_out_route(const struct op_context *context, const struct attn_out_args *a);
void attn_out_logits(const struct op_context *context, const struct attn_out_args *a,
                     float *halves);

/* What comes before, of one row or two: the projection into the residual stream. serves: both. */
bool attn_out_row_serves(const struct attn_out_args *a, char why[OP_REASON_MAX]);
void attn_out_project(const struct op_context *context, const void *args);

extern const struct op_variant attn_out_many_cuda; /* where it runs, it takes over from them */

#endif
