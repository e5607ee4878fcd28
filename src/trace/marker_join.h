/* Which range of a marker launched each work of a device: the work itself is on another clock
 * track, so the call that put it there decides. */
#ifndef TRACE_MARKER_JOIN_H
#define TRACE_MARKER_JOIN_H

#include "sol/status.h"
#include "trace/timeline.h"

struct marker_join {
    const struct timeline *t;
    struct marker_call *calls;
    uint32_t *ranges; /* events, by their start */
    size_t n_calls, n_ranges;
};

/* `name`: of the ranges. Freed with marker_join_free, also after an error. */
enum sol_status marker_join_make(const struct timeline *t, uint32_t name, struct marker_join *out);
/* NULL: none of them. */
const struct trace_event *marker_join_range(const struct marker_join *join,
                                            const struct trace_event *work);
void marker_join_free(struct marker_join *join); /* takes a zeroed one */

/* Of a call and what it started: process and correlation. */
static inline uint64_t timeline_event_key(const struct trace_event *e)
{
    return (uint64_t)e->process << 32 | e->correlation;
}

#endif
