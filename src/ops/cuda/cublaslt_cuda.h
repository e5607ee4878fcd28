/* What ops share whose products NVIDIA's library makes. */
#ifndef OPS_CUDA_CUBLASLT_CUDA_H
#define OPS_CUDA_CUBLASLT_CUDA_H

#include <stdio.h>

#include "gpu/matmul.h"
#include "ops/op.h"

static inline bool cublaslt_usable(char why[OP_REASON_MAX])
{
    const char *missing;
    if (gpu_matmul_usable(&missing)) return true;
    snprintf(why, OP_REASON_MAX, "%.*s", OP_REASON_MAX - 1, missing);
    return false;
}

/* Which of the algorithms that it offers. */
static const char *const cublaslt_names[GPU_MATMUL_CHOICES] = {"first", "second", "third",
                                                               "fourth"};
static const struct op_choices cublaslt_choices = {cublaslt_names, GPU_MATMUL_CHOICES, NULL, NULL};

#endif
