/* A thread's buffer is half of its share of a cache level, and larger than the level below;
 * memory's is far larger than the last cache. */
#include "bench/device.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/json_value.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/sysinfo.h"
#include "bench/watch_sensors.h"
#include "stats/samples.h"

enum { WAKEUPS = 40 };
static const uint64_t arrival_limit_ns = 20000000;

/* ---- levels ---- */

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smallest(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The last cache is shared by threads; the others belong to a core. */
static void plan_levels(struct device_survey *s)
{
    const struct cpu_info *cpu = cpu_info();
    size_t threads = (size_t)s->threads, last = largest(cpu->l3, cpu->l2);
    size_t memory = smallest(largest((size_t)256 << 20, 4 * last), (size_t)2 << 30);
    size_t room = memory_available();
    if (room) memory = smallest(memory, room / 4);
    if (ceiling_is_brief()) memory = (size_t)32 << 20;
    const struct {
        const char *name;
        size_t capacity, each, alone;
    } plan[DEVICE_LEVELS] = {
        {"L1", cpu->l1d, cpu->l1d / 2, cpu->l1d / 2},
        {"L2", cpu->l2, cpu->l2 / 2, cpu->l2 / 2},
        {"L3", cpu->l3, cpu->l3 / 2 / threads, cpu->l3 / 2},
        {"memory", 0, memory / threads, memory},
    };
    for (int i = 0; i < DEVICE_LEVELS; i++)
        s->levels[i] = (struct device_level){.name = plan[i].name,
                                             .capacity = plan[i].capacity,
                                             .bytes_each = plan[i].each,
                                             .bytes_alone = plan[i].alone};
    /* A share of the last cache that would fit into the level below tells nothing. */
    if (s->levels[2].bytes_each < cpu->l2) s->levels[2].bytes_each = smallest(2 * cpu->l2, cpu->l3);
}

static enum sol_status measure_levels(struct device_survey *s, struct pool *one, struct pool *all,
                                      double seconds, struct progress *progress)
{
    for (int i = 0; i < DEVICE_LEVELS; i++) {
        struct device_level *level = &s->levels[i];
        for (int a = 0; a < CEILING_ACCESS_COUNT; a++) {
            enum ceiling_access access = (enum ceiling_access)a;
            SOL_TRY(
                ceiling_measure_access(one, access, level->bytes_alone, seconds, &level->alone[a]));
            SOL_TRY(
                ceiling_measure_access(all, access, level->bytes_each, seconds, &level->all[a]));
            progress_update(progress, (uint64_t)i * CEILING_ACCESS_COUNT + (uint64_t)a + 1);
        }
    }
    return SOL_OK;
}

/* ---- waking threads ---- */

struct arrival {
    atomic_int arrived;
    int wanted;
    uint64_t start;
    _Atomic uint64_t last;
};

/* Each item holds its thread until all have one, so that every thread must come. */
static void arrive(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)begin, (void)end, (void)worker;
    struct arrival *a = arg;
    if (atomic_fetch_add(&a->arrived, 1) + 1 == a->wanted) atomic_store(&a->last, clock_ns());
    while (atomic_load(&a->arrived) < a->wanted && clock_ns() - a->start < arrival_limit_ns)
        continue;
}

/* Nanoseconds until all work; 0 when one did not come in time. */
static double wake_once(struct pool *pool)
{
    struct arrival a = {.wanted = pool_size(pool), .start = clock_ns()};
    pool_for(pool, a.wanted, 1, arrive, &a);
    uint64_t last = atomic_load(&a.last);
    return last && last - a.start < arrival_limit_ns ? (double)(last - a.start) : 0;
}

static enum sol_status measure_wakeup(struct pool *pool, struct device_wakeup *out)
{
    double times[2][WAKEUPS];
    const struct timespec nap = {.tv_nsec = 2000000};
    *out = (struct device_wakeup){(double)NAN, (double)NAN, (double)NAN, (double)NAN, 0};
    for (int asleep = 0; asleep < 2; asleep++) {
        size_t n = 0;
        for (int i = 0; i < WAKEUPS; i++) {
            SOL_TRY(interrupt_check());
            if (asleep) nanosleep(&nap, NULL);
            double ns = wake_once(pool);
            if (ns > 0) times[asleep][n++] = ns;
            out->incomplete += ns <= 0;
        }
        if (n == 0) continue;
        samples_sort(times[asleep], n);
        double median = samples_percentile(times[asleep], n, 0.5);
        double p90 = samples_percentile(times[asleep], n, 0.9);
        if (asleep)
            out->asleep_median = median, out->asleep_p90 = p90;
        else
            out->warm_median = median, out->warm_p90 = p90;
    }
    return SOL_OK;
}

/* ---- all of it ---- */

static enum sol_status measure_all(struct device_survey *s, struct pool *one, struct pool *all,
                                   double seconds, struct progress *progress)
{
    double clock = 0;
    if (ceiling_is_brief() && seconds > 0.001) seconds = 0.001;
    SOL_TRY(measure_levels(s, one, all, seconds, progress));
    for (int n = 0; n < NUMERICS_RATES; n++) {
        SOL_TRY(ceiling_measure_numerics(one, (enum op_numerics)n, seconds, &s->alone[n]));
        SOL_TRY(ceiling_measure_numerics(all, (enum op_numerics)n, seconds, &s->all[n]));
        clock += sensors_clock_mhz() / NUMERICS_RATES;
        progress_update(progress, DEVICE_LEVELS * CEILING_ACCESS_COUNT + (uint64_t)n + 1);
    }
    s->clock_mhz = clock;
    return measure_wakeup(all, &s->wakeup);
}

enum sol_status device_measure(int threads, double seconds, struct device_survey *out)
{
    struct pool *one = NULL, *all = NULL;
    struct watch watch;
    struct progress progress;
    double range;
    *out = (struct device_survey){.threads = threads};
    plan_levels(out);
    SOL_TRY(pool_create(1, &one));
    enum sol_status status = pool_create(threads, &all);
    if (status != SOL_OK) goto done;
    progress_start(&progress, "measuring this machine", "limits",
                   DEVICE_LEVELS * CEILING_ACCESS_COUNT + NUMERICS_RATES);
    watch_start(&watch);
    status = measure_all(out, one, all, seconds, &progress);
    watch_stop(&watch, &out->watch);
    progress_end(&progress);
    out->watts = out->watch.energy_j / out->watch.seconds;
    sensors_energy(&range, &out->no_watts);
done:
    pool_destroy(one);
    pool_destroy(all);
    return status;
}

/* ---- JSON ---- */

static json_t *rate_json(const struct ceiling_rate *rate)
{
    if (rate->best <= 0) return json_null();
    return json_pack("{s:f, s:f, s:s}", "best", 1e-9 * rate->best, "median", 1e-9 * rate->median,
                     "loop", rate->kernel);
}

static json_t *accesses_json(const struct ceiling_rate rates[CEILING_ACCESS_COUNT])
{
    return json_pack("{s:o, s:o, s:o}", "read", rate_json(&rates[CEILING_READ]), "write",
                     rate_json(&rates[CEILING_WRITE]), "copy", rate_json(&rates[CEILING_COPY]));
}

static json_t *numerics_json(const struct ceiling_rate rates[NUMERICS_RATES])
{
    return json_pack("{s:o, s:o, s:o}", "f32", rate_json(&rates[NUMERICS_EXACT]), "bf16",
                     rate_json(&rates[NUMERICS_BF16]), "int8", rate_json(&rates[NUMERICS_I8]));
}

json_t *device_survey_json(const struct device_survey *s)
{
    json_t *levels = json_array();
    const struct device_wakeup *w = &s->wakeup;
    for (int i = 0; i < DEVICE_LEVELS; i++) {
        const struct device_level *l = &s->levels[i];
        json_array_append_new(
            levels, json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "level", l->name, "capacity",
                              (json_int_t)l->capacity, "buffer_alone", (json_int_t)l->bytes_alone,
                              "buffer_each", (json_int_t)l->bytes_each, "one_thread_gb_s",
                              accesses_json(l->alone), "all_threads_gb_s", accesses_json(l->all)));
    }
    return json_pack(
        "{s:i, s:o, s:{s:o, s:o}, s:{s:o, s:o, s:o, s:o, s:i}, s:o, s:o, s:s?, s:f, s:f, s:f, s:f}",
        "threads", s->threads, "levels", levels, "gflop_s", "one_thread", numerics_json(s->alone),
        "all_threads", numerics_json(s->all), "wakeup_ns", "warm_median",
        json_number(w->warm_median), "warm_p90", json_number(w->warm_p90), "asleep_median",
        json_number(w->asleep_median), "asleep_p90", json_number(w->asleep_p90), "incomplete",
        w->incomplete, "clock_mhz", json_number(s->clock_mhz), "watts", json_number(s->watts),
        "no_watts", s->no_watts, "seconds", s->watch.seconds, "other_cores", s->watch.other_cores,
        "stolen_cores", s->watch.stolen_cores, "throttled_share", s->watch.throttled_share);
}

json_t *device_machine_json(void)
{
    const struct cpu_info *cpu = cpu_info();
    char host[65] = "", governor[64], sensor[64];
    double range, joules, celsius = sensors_temperature(sensor, sizeof sensor);
    const char *no_energy;
    long long heat = sensors_throttle_count();
    gethostname(host, sizeof host - 1);
    sysinfo_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
                 sizeof governor);
    governor[strcspn(governor, "\n")] = '\0';
    joules = sensors_energy(&range, &no_energy);
    json_t *features = json_array();
    for (unsigned bit = 1; bit; bit <<= 1)
        if (cpu->features & bit)
            json_array_append_new(features, json_string(cpu_feature_name(bit)));
    return json_pack(
        "{s:s, s:s, s:i, s:o, s:{s:I, s:I, s:I}, s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:s?}", "host",
        host, "cpu", cpu->model, "cores", cpu->cores, "features", features, "caches", "l1d",
        (json_int_t)cpu->l1d, "l2", (json_int_t)cpu->l2, "l3", (json_int_t)cpu->l3,
        "memory_available", (json_int_t)memory_available(), "clock_mhz",
        json_number(sensors_clock_mhz()), "governor",
        *governor ? json_string(governor) : json_null(), "temperature_c", json_number(celsius),
        "temperature_sensor", *sensor ? json_string(sensor) : json_null(), "throttle_events",
        heat < 0 ? json_null() : json_integer(heat), "energy_counter", !isnan(joules),
        "no_energy_counter", no_energy);
}
