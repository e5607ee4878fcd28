/* Runs a schedule again with works that take another time, to see how long a step is then. Nothing
 * is added up: a kernel that gets shorter shows what waited behind it, be it the next kernel or the
 * host. A replay without changes gives the measured times, to the nanosecond. */
#ifndef TRACE_REPLAY_H
#define TRACE_REPLAY_H

#include "trace/schedule.h"

struct replay_change {
    double *times;     /* [n_works] ns of each work's own time; what a fused work takes is its own,
                          what went into it is gone */
    bool *gone;        /* [n_works]: neither it nor its launch exists; may be NULL */
    uint32_t *beside;  /* [n_works]: the work together with which it starts; TRACE_NONE; NULL */
    double host_gaps;  /* of the idle time in which the device waited for the host, 1: all */
    double other_gaps; /* of the rest of the idle time */
};

/* The median step, ns. */
enum sol_status replay_run(const struct schedule *s, const struct replay_change *change,
                           double *step_ns);
/* The median step as it was measured, ns; from and to the same places. */
enum sol_status replay_measured(const struct schedule *s, double *step_ns);

#endif
