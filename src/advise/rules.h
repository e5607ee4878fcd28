/* What a profile says about where time can be won: rules with fixed thresholds over a time line,
 * hardware counters, the kernels of a stored run, and gates. Each finding carries its evidence in
 * numbers and the most it can save; no two counted findings touch the same time, so that the sum of
 * their ceilings can be had at most once.
 *
 *   busy    at least one kernel, copy, set or graph runs on the device; overlaps count once
 *   idle    the rest of a step: the tracer's own time, allocation, synchronisation, waiting for the
 *           host, latency between kernels, other, in this order of claim
 *   likely  ceiling x how much of this rule's predictions came true before (store_rule_factor) */
#ifndef ADVISE_RULES_H
#define ADVISE_RULES_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "advise/counters.h"
#include "store/store.h"
#include "trace/communication_figure.h"
#include "trace/timeline.h"
#include "trace/window.h"

enum rule_source {
    RULE_TIMELINE,
    RULE_COUNTERS,
    RULE_KERNELS,
    RULE_GATES,
    RULE_RANKS,
    RULE_SOURCE_COUNT
};
const char *rule_source_name(enum rule_source source); /* "time line" */

enum rule_severity {
    RULE_GAIN, /* time can be won */
    RULE_WARNING,
    RULE_INVALID /* the run's figures do not mean what they seem to */
};

struct rules_run; /* private */

struct rule {
    const char *name; /* "gap.host" */
    enum rule_source source;
    double limit, second;     /* its thresholds; `fires` says of what */
    const char *fires, *gain; /* for people */
    const char *next;         /* what to do about it, an imperative sentence */
    enum sol_status (*find)(struct rules_run *run, const struct rule *rule);
};
extern const struct rule rule_table[]; /* first come, first served with the time they claim */
extern const size_t rule_count;
const struct rule *rule_find(const char *name); /* NULL when there is none */

/* Something that must not be: made by advise/manifest.h. */
struct rules_violation {
    const char *subject, *text;
};

/* How rows were spread over experts, in the steps of one metric (NULL: all). */
struct rules_experts {
    const char *metric;
    double even, busiest; /* rows of an expert */
};

/* What ranks cost each other in the steps of one metric. */
struct rules_communication {
    const char *metric; /* "step" */
    struct communication_figure figure;
};

/* Measured peaks of the device; 0: not known. */
struct rules_peaks {
    double bytes_per_s, flops_per_s;
};

/* Every source is optional. Borrowed for the call. */
struct rules_input {
    const struct timeline *timeline;
    const struct trace_window_set *windows; /* of the time line; without any the whole is one step,
                                               and what needs a steady state is not judged */
    double inflation;    /* 0.03: the traced program took 3 % longer; NaN: not measured */
    int64_t null_gap_ns; /* between two empty kernels; 0: 1000 */
    const struct counters *counters;
    double counters_window_ns; /* the time that the counted calls are part of; 0: their sum */
    const struct store_kernel *kernels;
    size_t n_kernels;
    double wakeup_ns; /* to start a loop on the thread pool; 0: unknown or one thread */
    const struct rules_experts *experts;
    size_t n_experts;
    /* Of a stored run; of a time line it is worked out here. */
    const struct rules_communication *communication;
    size_t n_communication;
    struct rules_peaks peaks;
    const struct rules_violation *violations;
    size_t n_violations;
};

struct finding {
    const struct rule *rule;
    char *subject, *text;
    json_t *evidence; /* "todo": what to do, where the rule's own words do not fit */
    enum rule_severity severity;
    double window_ns, ceiling_ns, likely_ns;
    bool counted;           /* in the sum: no other counted finding touches this time */
    const char *covered_by; /* rule that counted that time instead; NULL when counted */
};

/* The device did nothing for `ns` between two pieces of work. Names are the time line's; "" where
 * the name was lost. */
struct rules_gap {
    double ns;
    const char *after, *before; /* the work that ended, and the one that began */
    const char *cause;          /* what took most of it */
};
enum { RULES_GAPS_MAX = 12 };

struct rules_report {
    struct finding *findings; /* invalid ones first, then by likely gain */
    size_t count;
    size_t steps;                       /* windows that were looked at; 0: no time line */
    size_t warmups;                     /* and windows before them that were left out */
    double window_ns, busy_ns, idle_ns; /* of one step, mean; NaN without a time line */
    double idle_tracer, idle_alloc, idle_sync, idle_host, idle_launch, idle_other; /* ns of idle */
    struct rules_gap gaps[RULES_GAPS_MAX]; /* the longest of all steps, longest first */
    size_t n_gaps;
    const char *withheld;         /* why gap rules were not judged; NULL when they were */
    const char *caveat;           /* what the reader should know about the figures; NULL */
    double ceiling_ns, likely_ns; /* sums over counted findings */
    bool invalid;
    char todo[400]; /* the one thing to do about it, in words */
};

/* `store` may be NULL (factors are 0.5). Linear in the events. */
enum sol_status rules_run(const struct rules_input *input, struct store *store,
                          struct rules_report *out);
void rules_report_free(struct rules_report *report); /* takes a zeroed one */

#endif
