/* What the kernels of attn_in for few rows share: those of one row or two
 * (kernels/attn_in/attn_in.cu) and of several (attn_in_rows.cu). */
#ifndef OPS_CUDA_ATTN_IN_CUDA_H
#define OPS_CUDA_ATTN_IN_CUDA_H

#include "attn_in/attn_in_args.h"
#include "ops/args.h"
#include "ops/op.h"

/* Whether they read q, k and v in these formats, heads of this size and rows at these addresses. */
bool attn_in_reads(const struct attn_in_args *a, char why[OP_REASON_MAX]);
struct attn_in_kernel_args attn_in_for_kernel(const struct attn_in_args *a);
/* Tiles of FEW_ROWS_FEATURES features, half of them rotated with the other half. */
int64_t attn_in_tiles(const struct attn_in_args *a);

extern const struct op_variant attn_in_many_cuda; /* where it runs, it takes over from them */

#endif
