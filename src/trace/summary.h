/* What ran on the devices of a time line, how long, and what lay between. */
#ifndef TRACE_SUMMARY_H
#define TRACE_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "trace/category.h"
#include "trace/timeline.h"

struct kernel_row {
    uint32_t name; /* string of the time line */
    enum kernel_category category;
    uint64_t count;
    int64_t total, min, max; /* ns */
};

/* Copies of one direction and one pair of memory kinds; sets have from MEMORY_UNKNOWN. */
struct copy_row {
    uint32_t name;
    uint8_t from, to;
    uint16_t flags; /* of the first one */
    uint64_t count, bytes;
    int64_t total; /* ns */
};

/* Calls or waits of one name. */
struct host_row {
    uint32_t name;
    uint16_t kind; /* EVENT_API, EVENT_SYNC, EVENT_LOAD or EVENT_OVERHEAD */
    uint64_t count;
    int64_t total, max; /* ns; nested and parallel ones count fully */
};

struct trace_summary {
    struct kernel_row
        *kernels; /* longest total first; graphs, where traced whole, are among them */
    size_t n_kernels;
    struct copy_row *copies; /* longest total first */
    size_t n_copies;
    struct host_row *host; /* longest total first */
    size_t n_host;
    uint64_t kernel_count, graph_count;
    int64_t kernel_time; /* ns, sum over kernels and graphs; overlaps count twice */
    /* Per device that did any work, from its first start to its last end, then summed: */
    int64_t span;   /* ns */
    int64_t busy;   /* ns in which it worked at least at one thing */
    int64_t gap;    /* ns between; span = busy + gap + tracer */
    int64_t tracer; /* ns of gaps in which the tracer held up a thread that makes calls */
    uint64_t gap_count;
    int64_t gap_max; /* ns, the tracer's share included */
    size_t devices;  /* that did any work */
};

/* Events of `device` (TRACE_NO_DEVICE: of all) and of the host that start in [begin, end), ns since
 * the origin. The result is freed with trace_summary_free, also after an error. */
enum sol_status trace_summarize(const struct timeline *t, uint16_t device, int64_t begin,
                                int64_t end, struct trace_summary *out);
void trace_summary_free(struct trace_summary *s); /* takes a zeroed one */

#endif
