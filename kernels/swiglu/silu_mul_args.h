/* Arguments of the kernel of silu_mul, shared by host and device. */
#ifndef KERNELS_SWIGLU_SILU_MUL_ARGS_H
#define KERNELS_SWIGLU_SILU_MUL_ARGS_H

#include "types.h"

enum { SILU_MUL_THREADS = 256 }; /* of a block */

struct silu_mul_kernel_args {
    int64_t count;
    const float *up;
    float *gate; /* in place */
};
SOL_STATIC_ASSERT(sizeof(struct silu_mul_kernel_args) == 24, "host and device agree");

#endif
