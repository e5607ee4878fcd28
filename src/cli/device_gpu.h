/* sol device for a GPU: its limits as JSON, and as tables. */
#ifndef CLI_DEVICE_GPU_H
#define CLI_DEVICE_GPU_H

#include <jansson.h>

#include "base/table.h"
#include "gpu/device.h"

/* What measured limits are kept by: the device, its driver, and the loops that measure. */
enum sol_status gpu_limits_key(const struct gpu *gpu, char key[64]);
enum sol_status gpu_limits_measure(struct gpu *gpu, double seconds, json_t **out);

/* {"gpu", "ordinal", "pci", "architecture", ..., "now": clocks, power and temperature}. */
json_t *gpu_machine_json(const struct gpu *gpu);
/* The GPUs that the driver shows, [] where there is no driver. */
json_t *gpu_list_json(void);

enum sol_status gpu_limits_print(const json_t *machine, const json_t *limits,
                                 enum table_format format);

#endif
