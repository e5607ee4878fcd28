/* Arguments of the kernels of moe_up, shared by host and device. */
#ifndef KERNELS_MOE_UP_MOE_UP_ARGS_H
#define KERNELS_MOE_UP_MOE_UP_ARGS_H

#include "types.h"

/* A block: pairs of tiles of gate and up, threads, values of a row that they hold. */
enum { MOE_UP_PAIRS = 3, MOE_UP_THREADS = 384, MOE_UP_HIDDEN_MAX = 8 * MOE_UP_THREADS };

/* One row; weights in MXFP4 tiles, as struct moe_up_args (src/ops/args.h). */
struct moe_up_kernel_args {
    int64_t hidden, intermediate;
    const float *normed; /* [hidden] */
    const void *gate, *gate_scales, *up, *up_scales;
    const float *gate_bias, *up_bias;    /* [n_experts][intermediate] */
    const int32_t *expert, *row_of_slot; /* [top_k] */
    float *act;                          /* [top_k][intermediate] */
    float alpha, limit;
};
SOL_STATIC_ASSERT(sizeof(struct moe_up_kernel_args) == 104, "host and device agree");

#endif
