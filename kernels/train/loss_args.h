/* Arguments of the kernels of cross_entropy, shared by host and device. */
#ifndef KERNELS_TRAIN_LOSS_ARGS_H
#define KERNELS_TRAIN_LOSS_ARGS_H

#include "types.h"

enum {
    LOSS_HELD = 8, /* pieces of 8 logits that a thread keeps in registers */
    LOSS_THREADS =
        512, /* of a block, so that two of them fit an SM: one reads while one computes */
    LOSS_THREADS_LONG = 1024,
    LOSS_MAX = 8 * LOSS_HELD * LOSS_THREADS, /* logits of a row */
    LOSS_MAX_LONG = 8 * LOSS_HELD * LOSS_THREADS_LONG,
    LOSS_CAP_MAX = 40, /* up to which no maximum is needed: exp(cap) times a row is a float32 */
};

struct loss_kernel_args {
    int64_t vocab, cols;
    const int32_t *target;
    const float *scale;
    void *logits;
    float *nll;
    float cap;
    int32_t gradient;
};
SOL_STATIC_ASSERT(sizeof(struct loss_kernel_args) == 56, "host and device agree");

#endif
