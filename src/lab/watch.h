/* What else happened on the machine while something was timed. */
#ifndef LAB_WATCH_H
#define LAB_WATCH_H

#include <stdint.h>

struct watch {
    uint64_t started_ns;
    double machine_s, own_s, steal_s, throttled_s; /* counters at the start */
};

struct watch_result {
    double seconds;
    double other_cores;     /* cores that other processes kept busy, on average */
    double stolen_cores;    /* cores that the hypervisor gave to somebody else */
    double throttled_share; /* of the time that the cgroup's CPU quota held us back */
};

void watch_start(struct watch *watch);
void watch_stop(const struct watch *watch, struct watch_result *out); /* zeros where unknown */

#endif
