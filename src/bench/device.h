/* What a machine can do at best: measured for the processor, as published for known GPUs. */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include <jansson.h>

#include "bench/ceiling.h"

enum { DEVICE_LEVELS = 4 }; /* L1, L2, L3, memory */

struct device_level {
    const char *name;  /* "L1" */
    size_t capacity;   /* bytes of that cache; 0 for memory, or where it is not known */
    size_t bytes_each; /* buffer of a thread, with all threads; alone it is the first one's */
    size_t bytes_alone;
    struct ceiling_rate alone[CEILING_ACCESS_COUNT], all[CEILING_ACCESS_COUNT]; /* bytes/s */
};

/* From the call of a parallel loop until all threads of the pool work in it, ns. */
struct device_wakeup {
    double warm_median, warm_p90;     /* loops right behind each other: workers still spin */
    double asleep_median, asleep_p90; /* after 2 ms of nothing: workers sleep */
    int incomplete;                   /* trials in which a thread did not arrive within 20 ms */
};

struct device_survey {
    int threads;
    struct device_level levels[DEVICE_LEVELS];
    struct ceiling_rate alone[NUMERICS_RATES], all[NUMERICS_RATES]; /* flops/s */
    struct device_wakeup wakeup;
    double clock_mhz;     /* mean while measuring; NaN unknown */
    double watts;         /* of the processor, mean while measuring; NaN unknown */
    const char *no_watts; /* why; NULL where known */
    struct watch_result watch;
};

/* `seconds` for each loop and place (0.05 is usual; about 150 times that in all). Interruptible. */
enum sol_status device_measure(int threads, double seconds, struct device_survey *out);
json_t *device_survey_json(const struct device_survey *survey); /* a new reference or NULL */

/* {"host", "cpu", "cores", "caches", "clock_mhz", "temperature_c", "throttle_events",
 * "energy_counter"...}: as it is now; what cannot be read is null, with the reason beside it. */
json_t *device_machine_json(void);

/* ---- GPUs by their published figures ---- */

/* Descriptions as a JSON array of {"name", "match", "architecture", "memory_gib", "memory_gb_s",
 * "sms", "l2_mib", "watts", "tflops": {"f32", "bf16", "fp8", "fp4", "int8"}, "origin", "source"}:
 * dense rates, null where nothing is published; "match" is looked for in a device's name. A new
 * reference. */
json_t *device_datasheets(void);
/* Those of a user's file, checked. */
enum sol_status device_descriptions_read(const char *path, json_t **out);

#endif
