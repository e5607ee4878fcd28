/* What a GPU says about itself while it works, through NVML. */
#ifndef BENCH_GPU_SENSORS_H
#define BENCH_GPU_SENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/device.h"

struct gpu_reading {
    double sm_mhz, memory_mhz, temperature_c; /* NaN where unreadable, like the others */
    double watts, watts_limit;
    double joules;     /* since some start */
    unsigned throttle; /* NVML's bits (driver/nvml.h), 0 where unreadable */
};

/* Of the device that `info` describes. False when there is nothing to read; *why (may be NULL) says
 * so then. About a tenth of a millisecond. */
bool gpu_sensors_read(const struct gpu_info *info, struct gpu_reading *out, const char **why);

/* Bytes of the device's memory that are taken, by all programs together; 0 where unreadable. */
size_t gpu_sensors_memory(const struct gpu_info *info);

/* Whether the clocks are held back by something that does not belong to the work: heat or a failing
 * supply. The power limit does belong to it. */
bool gpu_throttle_is_external(unsigned throttle);
/* "power limit, heat"; "" for none, and for idleness alone. Returns `text`. */
char *gpu_throttle_text(unsigned throttle, char text[160]);

/* {"sm_mhz", "memory_mhz", "temperature_c", "watts", "watts_limit", "throttle": "power limit"}. */
json_t *gpu_reading_json(const struct gpu_reading *reading);

#endif
