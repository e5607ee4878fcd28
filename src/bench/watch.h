/* What else happened on the machine while something was timed. */
#ifndef BENCH_WATCH_H
#define BENCH_WATCH_H

#include <stdint.h>

struct watch {
    uint64_t started_ns;
    double machine_s, own_s, steal_s, throttled_s; /* counters at the start */
    double energy_j, energy_range_j;               /* NaN where unreadable */
    long long heat;                                /* throttle events, -1 unknown */
};

struct watch_result {
    double seconds;
    double other_cores;     /* cores that other processes kept busy, on average */
    double stolen_cores;    /* cores that the hypervisor gave to somebody else */
    double throttled_share; /* of the time that the cgroup's CPU quota held us back */
    double energy_j;        /* of the whole processor; NaN where unreadable */
    long long heat;         /* times that heat held the processor back; -1 unknown */
};

void watch_start(struct watch *watch);
void watch_stop(const struct watch *watch, struct watch_result *out); /* zeros where unknown */

/* What from outside disturbed what was timed, in a few fixed words, or NULL. Times under 0.2 s are
 * too short to tell other programs, since the system counts in ticks of 10 ms. */
const char *watch_cause(const struct watch_result *result);

#endif
