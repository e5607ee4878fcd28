/* What the works of a time line's steps waited for: the schedule that a replay follows.
 *
 * A trace says when things ran, not why. What a work waited for is inferred, in this order:
 *   stream   works of one stream follow each other. One that begins before its predecessor ends and
 *            ends after it (programmatic dependent launch) is taken to have waited within: its own
 *            time begins where the predecessor's ends. One that lies within another's time ran
 *            beside it (branches of a graph) and waits for what ended before both.
 *   host     the call that started it came so late that the device had nothing to do until then.
 *   other    what is left between the later of both and the work's start, where a work of another
 *            stream ended in between: that one was waited for (an event).
 * The remaining distance, the lag, is kept as it was. Calls of a thread follow each other with the
 * distance they had; one that waited for the device (synchronisation, a copy that does not return
 * before it is done) ends as long after the work as it did. */
#ifndef TRACE_SCHEDULE_H
#define TRACE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "trace/timeline.h"
#include "trace/window.h"

enum schedule_bound {
    BOUND_NOTHING, /* the first ones */
    BOUND_STREAM,
    BOUND_HOST,
    BOUND_OTHER
};

struct schedule_work {
    uint32_t event;   /* of the time line */
    uint32_t stream;  /* number within the schedule */
    uint32_t call;    /* host call that started it; TRACE_NONE: unknown, or it plays no part */
    uint32_t other;   /* work of another stream that it waited for; TRACE_NONE */
    int64_t start;    /* ns; of its own time */
    int64_t end;      /* ns */
    int64_t lag;      /* ns behind its stream */
    int64_t call_lag; /* ns behind the start of `call` */
    int64_t other_lag;
    enum schedule_bound bound;
    bool overlaps; /* waited within for its predecessor */
    bool alone;    /* nothing of its stream came before */
};

struct schedule_call {
    int64_t start, end;
    uint32_t before;  /* call of the same thread; TRACE_NONE */
    uint32_t awaited; /* work whose end it waited for; TRACE_NONE */
    uint32_t started; /* works */
};

/* What happens, in order of the time at which it did. */
struct schedule_point {
    int64_t time;
    uint32_t index; /* of a work or call */
    enum { POINT_CALL, POINT_WORK, POINT_RETURN } kind;
};

struct schedule_step {
    uint32_t first, last; /* works [first, last) */
    bool closed;          /* it lasts until work `last` starts; else until its last work ends */
};

struct schedule {
    struct schedule_work *works; /* in order of the events */
    size_t n_works;
    struct schedule_call *calls;
    size_t n_calls;
    struct schedule_point *points;
    size_t n_points;
    struct schedule_step *steps;
    size_t n_steps;
    size_t n_streams;
    uint32_t *by_end; /* [n_works]: works in order of their ends */
};

/* Of at most 200 steps around the typical one; of everything, as one step, where `windows` holds
 * none (or is NULL). All devices. SOL_E_ARGUMENT where nothing ran. */
enum sol_status schedule_create(const struct timeline *t, const struct trace_window_set *windows,
                                struct schedule **out);
void schedule_destroy(struct schedule *s); /* takes NULL */

#endif
