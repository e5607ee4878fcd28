/* Products of one row or two with many features in bf16 (kernels/gemm/gemv_wide.cu): alone, and
 * with the norm of a head before them. */
#ifndef OPS_CUDA_GEMV_WIDE_CUDA_H
#define OPS_CUDA_GEMV_WIDE_CUDA_H

#include "gemm/gemm_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/few_rows_operands.h"

#define GEMV_WIDE_IMAGE "gemm/gemv_wide.cu"

bool gemv_wide_serves(int64_t m, const struct tensor *w, const struct op_device *device,
                      char why[OP_REASON_MAX]);
/* Of k->m rows; normed: by k->gain, of at most GEMV_WIDE_HELD_MAX columns. */
void gemv_wide_put(const struct op_context *context, const struct gemm_kernel_args *k, bool normed);

#endif
