/* Arguments of the kernels of rmsnorm, shared by host and device. */
#ifndef KERNELS_RMSNORM_RMSNORM_ARGS_H
#define KERNELS_RMSNORM_RMSNORM_ARGS_H

#include "types.h"

enum { RMSNORM_THREADS = 512 }; /* of a block */

struct rmsnorm_kernel_args {
    int64_t n;
    const float *x;
    const int32_t *rows; /* of x for each row of y, or NULL */
    const float *gain;   /* [n] */
    float *y;            /* [m][n] */
    float eps;
    int32_t padding;
};
SOL_STATIC_ASSERT(sizeof(struct rmsnorm_kernel_args) == 48, "host and device agree");

#endif
