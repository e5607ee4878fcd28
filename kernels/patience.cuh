/* Waiting for another GPU, not for ever. Device code only. */
#ifndef KERNELS_PATIENCE_CUH
#define KERNELS_PATIENCE_CUH

#include "inline.cuh"
#include "peers.cuh"

enum { TAKES = 256 }; /* after so many in vain a thread looks at the clock, and for the host's word */

/* How long a thread has waited. */
struct patience {
    uint32_t takes;
    uint64_t end; /* 0: not that long yet */
};

/* After a take in vain: whether to go on without rank `of`. Whoever finds that out tells the host by
 * *failed, a word of its memory, and so all threads: 1 + the rank. */
INLINE bool enough(patience &p, uint32_t *failed, uint64_t limit_ns, int of)
{
    if (++p.takes % TAKES) return false;
    if (word_of_host(failed)) return true;
    const uint64_t now = time_ns();
    if (!p.end) p.end = now + limit_ns;
    if (now < p.end) return false;
    word_to_host(failed, 1 + (uint32_t)of);
    return true;
}

#endif
