/* Arguments of the kernels of send, shared by host and device. */
#ifndef KERNELS_SEND_SEND_ARGS_H
#define KERNELS_SEND_SEND_ARGS_H

#include "types.h"

enum { SEND_FEW = 28, SEND_MANY = 188, SEND_THREADS = 128 };

/* What is sent is the argument itself. */
struct send_few_args {
    uint32_t *to;
    int64_t n; /* words */
    uint32_t words[SEND_FEW];
};
struct send_many_args {
    uint32_t *to;
    int64_t n;
    uint32_t words[SEND_MANY];
};
SOL_STATIC_ASSERT(sizeof(struct send_few_args) == 128, "host and device agree");
SOL_STATIC_ASSERT(sizeof(struct send_many_args) == 768, "host and device agree");

#endif
