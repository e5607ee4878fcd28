/* Arguments of the kernels of swiglu, shared by host and device. */
#ifndef KERNELS_SWIGLU_SWIGLU_ARGS_H
#define KERNELS_SWIGLU_SWIGLU_ARGS_H

#include "types.h"

enum { SWIGLU_THREADS = 256 }; /* of a block */

struct swiglu_kernel_args {
    int64_t count;
    const float *up;
    float *gate; /* in place */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct swiglu_kernel_args) == 32, "host and device agree");

#endif
