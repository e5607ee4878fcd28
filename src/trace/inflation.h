/* What tracing itself costs, from a trace that holds steps with and without it. */
#ifndef TRACE_INFLATION_H
#define TRACE_INFLATION_H

#include <stddef.h>

#include "sol/status.h"
#include "trace/timeline.h"

/* At level `launch` the first runs of graphs are timed on the device and the others only counted:
 * a step, from one launch of a graph to the next on the host, with and without. */
struct trace_inflation {
    size_t timed, untimed;       /* steps; 0: not measured, all below is NAN then */
    double timed_ns, untimed_ns; /* medians */
    double share;                /* 0.04: timed steps are 4 % longer */
};
enum sol_status trace_inflation(const struct timeline *t, struct trace_inflation *out);

#endif
