/* Arguments of the kernels of combine, shared by host and device. */
#ifndef KERNELS_COMBINE_COMBINE_ARGS_H
#define KERNELS_COMBINE_COMBINE_ARGS_H

#include "types.h"

enum { COMBINE_THREADS = 256, COMBINE_BF16_THREADS = 384 }; /* of a block */

struct combine_kernel_args {
    int64_t n, top_k;
    const void *y;              /* [rows of experts][n] float32 or bf16 by the kernel's name */
    const float *weight;        /* [m][top_k] */
    const int32_t *row_of_slot; /* [m * top_k] */
    float *x;                   /* [m][n], in place */
};
SOL_STATIC_ASSERT(sizeof(struct combine_kernel_args) == 48, "host and device agree");

#endif
