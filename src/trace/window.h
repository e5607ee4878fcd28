/* Finds the step that a trace repeats: one decode step, one training step, one prefill. */
#ifndef TRACE_WINDOW_H
#define TRACE_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "trace/timeline.h"

enum window_method {
    WINDOW_NONE,     /* nothing repeats three times */
    WINDOW_MARKER,   /* NVTX ranges of one name: what was launched within each */
    WINDOW_GRAPH,    /* from one run of a CUDA graph to the next */
    WINDOW_SEQUENCE, /* the sequence of device work has a period */
    WINDOW_METHOD_COUNT
};
const char *window_method_name(enum window_method method); /* "marker"; "?" out of range */

/* [begin, end) in ns since the origin, on the device's time. */
struct trace_window {
    int64_t begin, end;
    size_t works; /* kernels, copies, sets and graphs that start in it on the device looked at */
};

struct trace_window_set {
    enum window_method method;
    uint32_t name; /* string of the marker or graph; TRACE_NONE for a sequence */
    uint16_t device;
    struct trace_window *windows; /* in order, they do not overlap */
    size_t count;                 /* 0 or at least 3 */
    size_t typical;               /* index of the window of median duration */
};

/* On the device that did most, of ranks (communication.h) on the first. `marker`: only NVTX ranges
 * of this name count (SOL_E_ARGUMENT when none holds device work; then one range is enough), NULL
 * to choose. Linear in the events. Freed with trace_windows_free, also after an error. */
enum sol_status trace_windows_find(const struct timeline *t, const char *marker,
                                   struct trace_window_set *out);
void trace_windows_free(struct trace_window_set *set); /* takes a zeroed one */

/* The shortest period of the longest stretch of symbols[0, n) that repeats a sequence at least
 * three times: the stretch is [*start, *end). 0 when there is none. SOL_E_MEMORY. */
enum sol_status window_period(const uint32_t *symbols, size_t n, size_t *period, size_t *start,
                              size_t *end);

#endif
