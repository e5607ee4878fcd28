/* What a link between two GPUs takes at least. Bandwidth has the kernels of ceiling/memory.cu. */
#include "common.cuh"
#include "links/links_args.h"
#include "patience.cuh"
#include "peers.cuh"

/* Whether word number `round` came. */
INLINE bool wait_for(const link_ping_args &a, patience &p, uint64_t round)
{
    uint64_t low, high;
    do pair_take(a.own, &low, &high);
    while ((low != round || high != round) && !enough(p, a.failed, a.limit_ns, 0));
    return low == round && high == round;
}

KERNEL_OF(WARP, link_ping, link_ping_args)
{
    uint64_t begin = 0;
    if (threadIdx.x) return;
    for (int i = 1; i <= a.rounds; i++) {
        patience p = {0, 0};
        if (a.leads) pair_send(a.other, (uint64_t)i, (uint64_t)i);
        if (!wait_for(a, p, (uint64_t)i)) return;
        if (!a.leads) pair_send(a.other, (uint64_t)i, (uint64_t)i);
        if (i == a.first) begin = time_ns();
    }
    if (a.leads) *a.ns = time_ns() - begin;
}
