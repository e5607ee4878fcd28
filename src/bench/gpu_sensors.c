#include "bench/gpu_sensors.h"

#include "base/json_value.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "driver/nvml.h"

/* Looking a device up takes longer than reading it. NULL: NVML does not know it. */
static void *device_of(const struct nvml_api *nvml, const char *pci)
{
    static _Thread_local char found_pci[sizeof((struct gpu_info *)0)->pci];
    static _Thread_local void *found;
    if (!pci[0] || !nvml->device_by_pci) return NULL;
    if (found && strcmp(found_pci, pci) == 0) return found;
    if (nvml->device_by_pci(pci, &found) != NVML_OK) found = NULL;
    snprintf(found_pci, sizeof found_pci, "%s", pci);
    return found;
}

bool gpu_sensors_read(const struct gpu_info *info, struct gpu_reading *out, const char **why)
{
    unsigned value;
    unsigned long long wide;
    const double none = (double)NAN;
    *out = (struct gpu_reading){none, none, none, none, none, none, 0};
    const struct nvml_api *nvml = nvml_load(why);
    if (!nvml) return false;
    void *device = device_of(nvml, info->pci);
    if (!device && why) *why = "NVML does not know this GPU";
    if (!device) return false;
    if (nvml->clock(device, NVML_CLOCK_SM, &value) == NVML_OK) out->sm_mhz = value;
    if (nvml->clock(device, NVML_CLOCK_MEMORY, &value) == NVML_OK) out->memory_mhz = value;
    if (nvml->temperature(device, NVML_SENSOR_GPU, &value) == NVML_OK) out->temperature_c = value;
    if (nvml->power(device, &value) == NVML_OK) out->watts = 1e-3 * value;
    if (nvml->power_limit(device, &value) == NVML_OK) out->watts_limit = 1e-3 * value;
    if (nvml->energy && nvml->energy(device, &wide) == NVML_OK) out->joules = 1e-3 * (double)wide;
    if (nvml->throttle(device, &wide) == NVML_OK) out->throttle = (unsigned)wide;
    return true;
}

size_t gpu_sensors_memory(const struct gpu_info *info)
{
    struct nvml_memory memory = {.used = 0};
    const struct nvml_api *nvml = nvml_load(NULL);
    void *device = nvml && nvml->memory ? device_of(nvml, info->pci) : NULL;
    return device && nvml->memory(device, &memory) == NVML_OK ? (size_t)memory.used : 0;
}

bool gpu_throttle_is_external(unsigned throttle)
{
    return throttle & (NVML_THROTTLE_HARDWARE | NVML_THROTTLE_HEAT | NVML_THROTTLE_HARDWARE_HEAT |
                       NVML_THROTTLE_BRAKE);
}

char *gpu_throttle_text(unsigned throttle, char text[160])
{
    static const struct {
        unsigned bits;
        const char *name;
    } names[] = {
        {NVML_THROTTLE_SETTING, "clocks set by hand"},
        {NVML_THROTTLE_POWER, "power limit"},
        {NVML_THROTTLE_HARDWARE, "hardware slowdown"},
        {NVML_THROTTLE_SYNC, "sync boost"},
        {NVML_THROTTLE_HEAT | NVML_THROTTLE_HARDWARE_HEAT, "heat"},
        {NVML_THROTTLE_BRAKE, "power brake"},
        {NVML_THROTTLE_DISPLAY, "display clocks"},
    };
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (throttle & names[i].bits)
            at += (size_t)snprintf(text + at, 160 - at, "%s%s", at ? ", " : "", names[i].name);
    return text;
}

json_t *gpu_reading_json(const struct gpu_reading *r)
{
    char text[160];
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s}", "sm_mhz", json_number(r->sm_mhz),
                     "memory_mhz", json_number(r->memory_mhz), "temperature_c",
                     json_number(r->temperature_c), "watts", json_number(r->watts), "watts_limit",
                     json_number(r->watts_limit), "throttle", gpu_throttle_text(r->throttle, text));
}
