/* Arguments of the kernel that measures how long a word takes from one GPU to another, shared by
 * host and device. */
#ifndef KERNELS_LINKS_LINKS_ARGS_H
#define KERNELS_LINKS_LINKS_ARGS_H

#include "types.h"

/* Two GPUs, one of which leads, send each other a word in turn, `rounds` times. */
struct link_ping_args {
    void *own, *other; /* 16 bytes each, 0 before: where this one gets words, and the other one */
    uint32_t *failed;  /* in the host's memory: not 0 where it was waited for too long */
    uint64_t *ns;      /* in the host's memory, the leader's: of the rounds behind `first` */
    uint64_t limit_ns;
    int32_t rounds, first;
    int32_t leads, pad;
};
SOL_STATIC_ASSERT(sizeof(struct link_ping_args) == 56, "host and device agree");

#endif
