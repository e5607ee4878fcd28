/* Kernels that ran beside those that a program's plans call for: what it says of its ranges
 * (trace/ranges.h), counted. */
#ifndef TRACE_EXPECTED_H
#define TRACE_EXPECTED_H

#include <stdbool.h>

#include "sol/status.h"
#include "trace/timeline.h"

/* The ranges of one name of one process. Those whose graphs were traced as wholes do not count. */
struct trace_launched {
    uint32_t name;
    uint64_t planned;     /* kernels of each */
    size_t ranges, wrong; /* whose kernels are known; of those, with another number */
    size_t wholes;        /* whose are not */
    uint64_t least, most; /* kernels of a range */
    int64_t kernel_ns;    /* of all that were launched within, graphs too */
    int64_t preparing_ns; /* of that, kernels that quantise or transpose */
};

struct trace_launches {
    struct trace_launched *items;
    size_t count;
    bool lost; /* records were: then nothing is wrong for sure */
};

/* Freed with trace_launches_free, also after an error. */
enum sol_status trace_launches_count(const struct timeline *t, struct trace_launches *out);
void trace_launches_free(struct trace_launches *launches); /* takes a zeroed one */

/* The part of the kernels' time that quantises and transposes, of all ranges; NaN without any. */
double trace_launches_preparing(const struct trace_launches *launches);
/* Beyond this part a figure of training does not count. */
extern const double trace_preparing_most;
/* Why what was traced is not what the program planned, or does not count; NULL: it does. Returns
 * `text`. */
enum { TRACE_UNSOUND = 240 };
const char *trace_launches_unsound(const struct timeline *t, const struct trace_launches *launches,
                                   char text[TRACE_UNSOUND]);

#endif
