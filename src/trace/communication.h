/* What ranks cost each other. A rank is a device that runs collectives (kernels of
 * CATEGORY_COMMUNICATION): each GPU of a program that shares its work among several.
 *
 *   exposed  the part of its collectives' time in which the rank's device did nothing else: what a
 *            step would be shorter without them. It has two parts:
 *   waiting  until the last rank had come to the same collective, which its start there says: other
 *            ranks were slower;
 *   moving   from then on: bytes travel.
 *
 * Whoever shows one of these figures has it from here. Graphs that were traced as wholes hide their
 * collectives. */
#ifndef TRACE_COMMUNICATION_H
#define TRACE_COMMUNICATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "trace/timeline.h"
#include "trace/window.h"

struct trace_rank {
    uint16_t device;
    size_t collectives; /* that start in the steps */
    /* ns in all steps; what overlaps counts once */
    int64_t total;   /* at least one collective runs */
    int64_t exposed; /* of it nothing else does */
    int64_t waiting; /* of that; 0 where it is not told */
};

struct trace_collective {
    uint32_t event; /* of the time line */
    int64_t
        arrived; /* ns since the origin: start of the last rank's; its own where that is not told */
};

struct trace_communication {
    struct trace_rank *ranks; /* by device; none: the trace shows no collectives */
    size_t n_ranks;
    struct trace_collective *collectives; /* by event; of the whole time line */
    size_t n_collectives;
    bool told;      /* several ranks, each with the same collectives: waiting is known */
    size_t steps;   /* that the times are of, at least 1 */
    int64_t window; /* ns of them together; without steps of the whole time line */
};

/* In the steps of `windows`; in all of the time line where there are none (or it is NULL). Freed
 * with trace_communication_free, also after an error. SOL_E_MEMORY. */
enum sol_status trace_communicate(const struct timeline *t, const struct trace_window_set *windows,
                                  struct trace_communication *out);
void trace_communication_free(struct trace_communication *c); /* takes a zeroed one */

/* The first of several devices that run collectives, TRACE_NO_DEVICE where there are not several:
 * steps, kernels and advice are of that one, as all do its like. */
uint16_t trace_first_rank(const struct timeline *t);
/* NULL: the device is no rank. */
const struct trace_rank *trace_rank_of(const struct trace_communication *c, uint16_t device);
/* The event's; NULL: it is no collective. */
const struct trace_collective *trace_collective_of(const struct trace_communication *c,
                                                   size_t event);

#endif
