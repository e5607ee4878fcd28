/* Arguments of the kernel of swiglu_f16.cu, shared by host and device. */
#ifndef KERNELS_SWIGLU_SWIGLU_F16_ARGS_H
#define KERNELS_SWIGLU_SWIGLU_F16_ARGS_H

#include "types.h"

enum { SWIGLU_F16_THREADS = 256, SWIGLU_F16_UNIT = 8 /* halves of a thread */ };

struct swiglu_f16_args {
    int64_t units;
    const void *up;
    void *gate; /* in place; both begin at multiples of 16 bytes */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct swiglu_f16_args) == 32, "host and device agree");

#endif
