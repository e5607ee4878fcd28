/* What a profile of a time line keeps beside metrics and kernels: busy and idle time, the longest
 * gaps and the clock, all of the steady part (the steps, or everything where none were found). */
#ifndef PROFILE_PAYLOAD_H
#define PROFILE_PAYLOAD_H

#include "advise/rules.h"
#include "trace/timeline.h"
#include "trace/window.h"

/* {"device_time": {"span_ns", "busy_ns", "gap_ns", "tracer_ns", "gaps", "gap_max_ns"},
 *  "gap_list": [{"ns", "after", "before", "cause"}],
 *  "steady": {"metric": "step" or "span", "steps", "tokens": of a step, "kernel_ns", "copy_ns",
 *             "clock": {"mean_mhz", "min_mhz", "max_mhz", "samples"} or null}}
 * kernel_ns and copy_ns count what overlaps twice, busy_ns once. The clock is that of the streaming
 * multiprocessors: samples within the steady part, else the nearest one. `report`: of the same
 * time line. *out is freed by the caller. */
enum sol_status profile_payload(const struct timeline *t, const struct trace_window_set *windows,
                                double tokens_per_step, const struct rules_report *report,
                                char **out);

/* The mean over [begin, end] on `device`; the nearest sample where none lies within. 0: unknown. */
struct profile_clock {
    double mean, min, max; /* MHz */
    size_t samples;
};
struct profile_clock profile_clock(const struct timeline *t, uint16_t device, int64_t begin,
                                   int64_t end);

#endif
