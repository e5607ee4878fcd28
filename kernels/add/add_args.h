/* Arguments of the kernels of add, shared by host and device. */
#ifndef KERNELS_ADD_ADD_ARGS_H
#define KERNELS_ADD_ADD_ARGS_H

#include "types.h"

enum { ADD_THREADS = 256 }; /* of a block */

struct add_kernel_args {
    int64_t count;
    const float *y;
    float *x; /* in place */
};
SOL_STATIC_ASSERT(sizeof(struct add_kernel_args) == 24, "host and device agree");

#endif
