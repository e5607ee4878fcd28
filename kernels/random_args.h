/* What random bits depend on, shared by host and device. */
#ifndef KERNELS_RANDOM_ARGS_H
#define KERNELS_RANDOM_ARGS_H

#include "types.h"

/* Of a micro-batch; besides it they depend on an op's `stream` and on where a number is. */
struct random_key {
    uint32_t seed[2];
    uint32_t step, micro_batch;
};
SOL_STATIC_ASSERT(sizeof(struct random_key) == 16, "host and device agree");

#endif
