/* Arguments of the kernels of gemm, shared by host and device. */
#ifndef KERNELS_GEMM_GEMM_ARGS_H
#define KERNELS_GEMM_GEMM_ARGS_H

#include "types.h"

/* A block of gemm_f32.cu: features, a warp each, by rows. */
enum { GEMM_ANY_FEATURES = 8, GEMM_ANY_ROWS = 8, GEMM_ANY_THREADS = 32 * GEMM_ANY_FEATURES };

/* C = A W^T + bias, as struct gemm_args (src/ops/args.h). */
struct gemm_kernel_args {
    int64_t m, n, k, groups;
    const float *a;
    const int32_t *a_rows; /* or NULL */
    const void *w;
    const float *bias;            /* or NULL */
    const int32_t *group_offsets; /* or NULL: one group */
    float *c;
    const void *scales; /* of w, where they lie apart */
    const float *gain;  /* gemv_*_normed: the row goes through rmsnorm first */
    float eps;
    int32_t type; /* of w */
};
SOL_STATIC_ASSERT(sizeof(struct gemm_kernel_args) == 104, "host and device agree");

#endif
