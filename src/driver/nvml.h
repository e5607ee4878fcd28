/* NVIDIA's management library as a table of functions: clocks, power, temperature of a GPU, and
 * what holds it back. */
#ifndef DRIVER_NVML_H
#define DRIVER_NVML_H

#include <stdbool.h>

enum { NVML_OK = 0 };
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_SENSOR_GPU = 0 };
enum { /* throttle: bits */
       NVML_THROTTLE_IDLE = 0x1,
       NVML_THROTTLE_SETTING = 0x2, /* clocks that somebody asked for */
       NVML_THROTTLE_POWER = 0x4,   /* at the power limit */
       NVML_THROTTLE_HARDWARE = 0x8,
       NVML_THROTTLE_SYNC = 0x10,
       NVML_THROTTLE_HEAT = 0x20,
       NVML_THROTTLE_HARDWARE_HEAT = 0x40,
       NVML_THROTTLE_BRAKE = 0x80, /* from the power supply */
       NVML_THROTTLE_DISPLAY = 0x100,
};

struct nvml_memory {
    unsigned long long total, free, used; /* bytes, of all programs together */
};

struct nvml_api {
#define NVML_FUNCTION(field, symbol, optional, parameters) int(*field) parameters;
#include "driver/nvml_functions.list"
#undef NVML_FUNCTION
};

/* Loaded and initialised once a process and kept; SOL_NVML names another file (tests). NULL where
 * it cannot be used: *why (may be NULL) says what is missing then. */
const struct nvml_api *nvml_load(const char **why);

#endif
