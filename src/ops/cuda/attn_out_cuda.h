/* What follows the output projection of attn_out, for the variants that share it: norm, router and
 * choice by a cluster of blocks a row (kernels/attn_out/attn_out.cu), from sm_90 on. */
#ifndef OPS_CUDA_ATTN_OUT_CUDA_H
#define OPS_CUDA_ATTN_OUT_CUDA_H

#include "ops/args.h"
#include "ops/op.h"

bool attn_out_adds(const struct attn_out_args *a, char why[OP_REASON_MAX]); /* its addresses */
bool attn_out_routes(const struct attn_out_args *a, char why[OP_REASON_MAX]);
/* Behind the kernel that has written a->x. */
void attn_out_route(const struct op_context *context, const struct attn_out_args *a);

extern const struct op_variant attn_out_many_cuda; /* where it runs, it takes over from them */

#endif
