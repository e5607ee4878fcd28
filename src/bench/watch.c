#include "bench/watch.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sysinfo.h"
#include "bench/watch_sensors.h"

static double timeval_seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* The first line of /proc/stat: user nice system idle iowait irq softirq steal, in ticks. */
static void read_machine(struct watch *w)
{
    char text[512];
    unsigned long long user, nice, kernel, idle, wait, irq, soft, steal;
    if (!sysinfo_read("/proc/stat", text, sizeof text) ||
        sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &kernel, &idle,
               &wait, &irq, &soft, &steal) != 8)
        return;
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    w->machine_s = (double)(user + nice + kernel + irq + soft) * tick;
    w->steal_s = (double)steal * tick;
}

static void add_throttled(void *arg, const char *folder)
{
    char path[8192], text[4096];
    unsigned long long us;
    snprintf(path, sizeof path, "%s/cpu.stat", folder);
    if (sysinfo_read(path, text, sizeof text) && sysinfo_field(text, "throttled_usec ", &us))
        *(double *)arg += 1e-6 * (double)us;
}

static void read_counters(struct watch *w)
{
    struct rusage usage;
    memset(w, 0, sizeof *w);
    w->started_ns = clock_ns();
    read_machine(w);
    sysinfo_cgroups(add_throttled, &w->throttled_s);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        w->own_s = timeval_seconds(usage.ru_utime) + timeval_seconds(usage.ru_stime);
    w->energy_j = sensors_energy(&w->energy_range_j, NULL);
    w->heat = sensors_throttle_count();
}

void watch_start(struct watch *watch)
{
    read_counters(watch);
}

static double positive(double value)
{
    return value > 0 ? value : 0; /* ticks are coarse */
}

void watch_stop(const struct watch *watch, struct watch_result *out)
{
    struct watch now;
    read_counters(&now);
    *out = (struct watch_result){.seconds = (double)(now.started_ns - watch->started_ns) * 1e-9};
    out->energy_j = sensors_energy_between(watch->energy_j, now.energy_j, now.energy_range_j);
    out->heat = now.heat < 0 ? -1 : now.heat - watch->heat;
    if (out->seconds <= 0) return;
    double others = now.machine_s - watch->machine_s - (now.own_s - watch->own_s);
    out->other_cores = positive(others / out->seconds);
    out->stolen_cores = positive((now.steal_s - watch->steal_s) / out->seconds);
    out->throttled_share = positive((now.throttled_s - watch->throttled_s) / out->seconds);
}

const char *watch_cause(const struct watch_result *r)
{
    if (r->heat > 0) return "throttled by heat";
    if (r->throttled_share > 0.05) return "throttled by the CPU quota";
    if (r->seconds < 0.2) return NULL;
    if (r->stolen_cores > 0.1) return "cores were given to another guest";
    return r->other_cores > 0.5 ? "other programs were busy" : NULL;
}
