/* Arguments of the kernels of route, shared by host and device. */
#ifndef KERNELS_ROUTE_ROUTE_ARGS_H
#define KERNELS_ROUTE_ROUTE_ARGS_H

#include "types.h"

enum {
    ROUTE_EXPERTS_MAX = 128,
    ROUTE_TOP_K_MAX = 8,
    ROUTE_THREADS = 128,       /* of a block; a token a warp where experts are chosen */
    ROUTE_COUNT_THREADS = 512, /* of a block that sorts; as many slots */
};

struct route_kernel_args {
    int64_t m, n_experts, top_k;
    const float *logits; /* [m][n_experts] */
    float *weight;       /* [m][top_k] */
    int32_t *expert, *group_offsets, *token_of_row, *row_of_slot;
};
SOL_STATIC_ASSERT(sizeof(struct route_kernel_args) == 72, "host and device agree");

#endif
