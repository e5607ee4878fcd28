/* Arguments of the kernel of own_experts, shared by host and device. */
#ifndef KERNELS_OWN_EXPERTS_OWN_EXPERTS_ARGS_H
#define KERNELS_OWN_EXPERTS_OWN_EXPERTS_ARGS_H

#include "types.h"

enum { OWN_EXPERTS_THREADS = 256 };

/* Of struct routing what the op reads and what it writes. */
struct own_experts_kernel_args {
    int64_t slots;        /* m * top_k */
    int32_t first, count; /* experts */
    const int32_t *expert, *group_offsets, *token_of_row, *row_of_slot;
    int32_t *own_expert, *own_offsets, *own_token, *own_row;
};
SOL_STATIC_ASSERT(sizeof(struct own_experts_kernel_args) == 80, "host and device agree");

#endif
