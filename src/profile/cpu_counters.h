/* The processor's own counters for this process and the threads that it starts afterwards. */
#ifndef PROFILE_CPU_COUNTERS_H
#define PROFILE_CPU_COUNTERS_H

enum profile_counter {
    COUNTER_CYCLES,
    COUNTER_INSTRUCTIONS,
    COUNTER_CACHE_MISSES,
    COUNTER_BRANCH_MISSES,
    PROFILE_COUNTERS
};
const char *profile_counter_name(enum profile_counter counter); /* "cycles" */

struct profile_counters {
    int files[PROFILE_COUNTERS]; /* -1: not available */
    char why[160];               /* why none or not all are; "" when all are */
};

/* Never fails: what cannot be counted has a reason. Open before the threads are started. */
void profile_counters_open(struct profile_counters *counters);
void profile_counters_close(struct profile_counters *counters);
void profile_counters_start(const struct profile_counters *counters);
/* Adds what was counted since the start; NaN where not available. Values are scaled up where the
 * processor had to share its counters. */
void profile_counters_stop(const struct profile_counters *counters, double sums[PROFILE_COUNTERS]);

#endif
