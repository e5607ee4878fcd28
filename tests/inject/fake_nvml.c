/* An NVML with one device, the one that fake_app.c describes. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define FAKE(name, parameters, body)                                                               \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters                                                                     \
    {                                                                                              \
        body;                                                                                      \
        return 0;                                                                                  \
    }

FAKE(nvmlInit_v2, (void), )
FAKE(nvmlDeviceGetCount_v2, (unsigned *count), *count = 1)
FAKE(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **device),
     *device = &((char *)0)[index + 1])
FAKE(nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, void **device),
     *device = &((char *)0)[pci[0] ? 1 : 2])
FAKE(nvmlDeviceGetTotalEnergyConsumption, (void *device, unsigned long long *mj), (void)device;
     static unsigned long long joules; *mj = 1000 * ++joules)
FAKE(nvmlDeviceGetName, (void *device, char *name, unsigned size), (void)device;
     strncpy(name, "Fake H100", size))
FAKE(nvmlDeviceGetUUID, (void *device, char *uuid, unsigned size), (void)device;
     strncpy(uuid, "GPU-01020300-0000-0000-0000-000000000000", size))
FAKE(nvmlDeviceGetClockInfo, (void *device, unsigned type, unsigned *mhz), (void)device;
     *mhz = type == 1 ? 1755 : 2619)
FAKE(nvmlDeviceGetTemperature, (void *device, unsigned sensor, unsigned *c), (void)device;
     *c = 41 + sensor)
FAKE(nvmlDeviceGetPowerUsage, (void *device, unsigned *mw), (void)device; *mw = 123000)
FAKE(nvmlDeviceGetEnforcedPowerLimit, (void *device, unsigned *mw), (void)device; *mw = 700000)
FAKE(nvmlDeviceGetMemoryInfo, (void *device, unsigned long long *memory), (void)device;
     memory[0] = 80ull << 30; memory[2] = 3ull << 30; memory[1] = memory[0] - memory[2])
FAKE(nvmlDeviceGetCurrentClocksThrottleReasons, (void *device, unsigned long long *reasons),
     (void)device;
     *reasons = 4)
