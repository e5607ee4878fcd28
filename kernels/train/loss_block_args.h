/* Arguments of the kernels of cross_entropy_block and its gradient, shared by host and device. */
#ifndef KERNELS_TRAIN_LOSS_BLOCK_ARGS_H
#define KERNELS_TRAIN_LOSS_BLOCK_ARGS_H

#include "types.h"

enum {
    LOSS_BLOCK_THREADS = 256, /* of a row, at most */
    /* Up to which exponentials of capped logits are summed as they are, whatever the largest is. */
    LOSS_BLOCK_CAP_MAX = 40,
};

struct loss_block_kernel_args {
    int64_t vocab, cols, first; /* of the vocabulary, of the block, that it begins with */
    const int32_t *target;
    const float *scale; /* of the gradient */
    void *logits;
    float *top, *total, *own, *nll;
    float cap;
    uint32_t pad;
};
SOL_STATIC_ASSERT(sizeof(struct loss_block_kernel_args) == 88, "host and device agree");

#endif
