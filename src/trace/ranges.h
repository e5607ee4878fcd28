/* What a program of sol's own says to who traces it (sol profile): which stretches of its time are
 * steps, and how many kernels the plan of each has. They are markers of the trace, as NVTX ranges
 * are. Where nobody traces, nothing happens. One thread at a time. */
#ifndef TRACE_RANGES_H
#define TRACE_RANGES_H

#include <stdint.h>

struct trace_ranges;

/* NULL: nobody traces, or there is no memory or no room on the disk for it. All functions take
 * NULL. Names are constants, at most RANGES_NAMES different ones; ranges nest. */
enum { RANGES_NAMES = 8, RANGES_DEPTH = 8 };
struct trace_ranges *trace_ranges_open(void);
void trace_ranges_close(struct trace_ranges *ranges);

/* That each range of this name launches so many kernels; may be said at any time. */
void trace_ranges_expect(struct trace_ranges *ranges, const char *name, int64_t kernels);
void trace_ranges_begin(struct trace_ranges *ranges, const char *name);
/* The one that began last. What is outermost is written then, whole. */
void trace_ranges_end(struct trace_ranges *ranges);

#endif
