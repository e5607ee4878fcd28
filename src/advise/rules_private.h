/* Shared by the rules; nothing else includes it. */
#ifndef ADVISE_RULES_PRIVATE_H
#define ADVISE_RULES_PRIVATE_H

#include "advise/rules.h"
#include "base/status.h"
#include "trace/category.h"

/* Totals over all steps that were looked at, ns unless said otherwise. */
struct step_facts {
    size_t steps;
    bool steady; /* a repeating step was found */
    int64_t window, busy;
    int64_t tracer, alloc, sync, host, launch, other; /* of the idle time */
    size_t host_gaps, launch_gaps, syncs, allocs;
    int64_t sync_blocked;      /* in waits that overlap the steps, idle or not */
    int64_t launch_calls_time; /* in the calls that started the steps' work */
    size_t launch_calls;
    size_t kernels, works;
    size_t outside_graphs; /* works that no graph started */
    int64_t graph_time;    /* of works that graphs started */
    int64_t kernel_time;
    uint32_t host_name, alloc_name, sync_name; /* strings: what most of each time was about */
    int64_t quantize, transpose;
    uint32_t quantize_name;
    int64_t unfused;
    size_t unfused_count;
    uint32_t unfused_name, unfused_before; /* the kernel, and the matrix product before it */
    int64_t pageable;
    size_t pageable_count;
    uint64_t pageable_bytes;
    size_t small; /* kernels that are shorter than 5 us or than the call that started them */
    int64_t small_time, small_saved; /* saved: were each run of neighbours as long as its longest */
    uint32_t small_name;
    double fastest_copy; /* bytes/s of large copies and sets on the device; 0: none */
    uint64_t fastest_bytes;
    double fastest_peak; /* bytes/s that it was compared with */
};

struct rules_run {
    struct rules_input *in; /* a copy of the caller's */
    struct store *store;
    struct rules_report *report;
    struct step_facts facts;
    size_t room;
    struct rules_communication communication; /* of the time line */
};

/* rules_facts.c. The thresholds of unfused and quant_transpose decide which kernels may still count
 * as small. */
enum sol_status rules_measure(struct rules_run *run);

/* Adds a finding; takes the reference to `evidence` (NULL: out of memory). `ceiling_ns` and
 * `window_ns` are of one step. */
enum sol_status rules_add(struct rules_run *run, const struct rule *rule, const char *subject,
                          enum rule_severity severity, double window_ns, double ceiling_ns,
                          json_t *evidence, const char *fmt, ...) SOL_PRINTF(8, 9);
bool rules_fired(const struct rules_run *run, const char *name);
double rule_limit(const char *name); /* of the table */
/* The collectives of this metric are judged by rule exposed. */
bool rules_exposes(const struct rules_run *run, const char *metric);

/* "12.3 us", in a unit that suits. Returns `text`. */
char *rules_time(double ns, char text[24]);

/* "bound by memory", "too small a grid": by the speed of light that compute and memory reach. */
const char *counters_class(const struct kernel_counters *k);

typedef enum sol_status rule_fn(struct rules_run *run, const struct rule *rule);
rule_fn rule_launch_bound, rule_gap_host, rule_gap_launch, rule_sync, rule_pageable, rule_alloc_jit,
    rule_tiny_kernels, rule_unfused, rule_quant_transpose, rule_impossible;
rule_fn rule_expected;
rule_fn rule_sol, rule_occupancy, rule_stall, rule_tail, rule_uncoalesced, rule_bank, rule_spill;
rule_fn rule_wakeup, rule_imbalance, rule_distance;
rule_fn rule_exposed;

#endif
