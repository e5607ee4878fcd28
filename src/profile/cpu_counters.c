#include "profile/cpu_counters.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

#include "base/sysinfo.h"

const char *profile_counter_name(enum profile_counter counter)
{
    static const char *const names[PROFILE_COUNTERS] = {"cycles", "instructions", "cache misses",
                                                        "branch misses"};
    return (unsigned)counter < PROFILE_COUNTERS ? names[counter] : "?";
}

#ifdef __linux__
static int open_counter(enum profile_counter counter)
{
    static const uint64_t configs[PROFILE_COUNTERS] = {
        PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CACHE_MISSES,
        PERF_COUNT_HW_BRANCH_MISSES};
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_HARDWARE;
    attr.config = configs[counter];
    attr.disabled = 1;
    attr.inherit = 1;
    attr.exclude_kernel = 1; /* what an unprivileged user may count */
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void explain(struct profile_counters *c, int error)
{
    char level[32] = "?";
    if (sysinfo_read("/proc/sys/kernel/perf_event_paranoid", level, sizeof level))
        level[strcspn(level, "\n")] = '\0';
    if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(c->why, sizeof c->why,
                 "this machine shows no hardware counters (virtual machines often hide them)");
    else if (error == EACCES || error == EPERM)
        snprintf(c->why, sizeof c->why,
                 "not allowed: kernel.perf_event_paranoid is %s, and 2 or less, without a "
                 "container's filter, is needed",
                 level);
    else
        snprintf(c->why, sizeof c->why, "perf_event_open: %s", strerror(error));
}

void profile_counters_open(struct profile_counters *c)
{
    c->why[0] = '\0';
    for (int i = 0; i < PROFILE_COUNTERS; i++) {
        c->files[i] = open_counter((enum profile_counter)i);
        if (c->files[i] < 0 && !c->why[0]) explain(c, errno);
    }
}

void profile_counters_start(const struct profile_counters *c)
{
    for (int i = 0; i < PROFILE_COUNTERS; i++)
        if (c->files[i] >= 0) {
            ioctl(c->files[i], PERF_EVENT_IOC_RESET, 0);
            ioctl(c->files[i], PERF_EVENT_IOC_ENABLE, 0);
        }
}

static double read_counter(int file)
{
    struct {
        uint64_t value, enabled, running;
    } counted;
    if (read(file, &counted, sizeof counted) != (ssize_t)sizeof counted || counted.running == 0)
        return (double)NAN;
    return (double)counted.value * (double)counted.enabled / (double)counted.running;
}

void profile_counters_stop(const struct profile_counters *c, double sums[PROFILE_COUNTERS])
{
    for (int i = 0; i < PROFILE_COUNTERS; i++) {
        if (c->files[i] < 0) {
            sums[i] = (double)NAN;
            continue;
        }
        ioctl(c->files[i], PERF_EVENT_IOC_DISABLE, 0);
        sums[i] += read_counter(c->files[i]);
    }
}
#else
void profile_counters_open(struct profile_counters *c)
{
    for (int i = 0; i < PROFILE_COUNTERS; i++) c->files[i] = -1;
    snprintf(c->why, sizeof c->why, "only Linux has perf_event_open");
}

void profile_counters_start(const struct profile_counters *c)
{
    (void)c;
}

void profile_counters_stop(const struct profile_counters *c, double sums[PROFILE_COUNTERS])
{
    (void)c;
    for (int i = 0; i < PROFILE_COUNTERS; i++) sums[i] = (double)NAN;
}
#endif

void profile_counters_close(struct profile_counters *c)
{
    for (int i = 0; i < PROFILE_COUNTERS; i++) {
        if (c->files[i] >= 0) close(c->files[i]);
        c->files[i] = -1;
    }
}
