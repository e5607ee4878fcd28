/* Stretches of time: disjoint, ascending, in ns. */
#ifndef TRACE_SPANS_H
#define TRACE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct span {
    int64_t start, end;
    uint32_t name; /* string of a time line; TRACE_NONE */
};

struct spans {
    struct span *items; /* owned: free(items) */
    size_t count, room, at;
};

/* Appended in order of start; what overlaps the last one makes it longer, and the longer one's name
 * stays. Nothing where end <= start. */
enum sol_status spans_add(struct spans *s, int64_t start, int64_t end, uint32_t name);
/* Takes `other` out of `s`. */
enum sol_status spans_subtract(struct spans *s, const struct spans *other);
/* How much of [start, end) they cover; `start` never goes back from one call to the next. `times`
 * (may be NULL) gets the part of each name, *count (may be NULL) how many lie in it. */
int64_t spans_overlap(struct spans *s, int64_t start, int64_t end, int64_t *times, size_t *count);

#endif
