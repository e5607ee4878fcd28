#include "ops/device_key.h"

#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/bytes_hash.h"
#include "base/cpu.h"
#include "gpu/kernel.h"
#include "sol/sol.h"

static void name_cpu(const struct op_device *device, struct device_key *out)
{
    snprintf(out->device, sizeof out->device, "%s, %d thread%s", cpu_info()->model, device->workers,
             device->workers == 1 ? "" : "s");
    for (unsigned bit = 1; bit && bit <= device->cpu_features; bit <<= 1) {
        size_t at = strlen(out->capability);
        if (device->cpu_features & bit)
            snprintf(out->capability + at, sizeof out->capability - at, "%s%s", at ? " " : "",
                     cpu_feature_name(bit));
    }
}

static void name_build(struct device_key *out)
{
    snprintf(out->build, sizeof out->build, "%s%s%s", sol_version(), *build_commit() ? " " : "",
             build_commit());
}

enum sol_status device_key_of_gpu(const struct gpu *gpu, struct device_key *out)
{
    const struct gpu_info *info = gpu_info(gpu);
    *out = (struct device_key){0};
    name_build(out);
    snprintf(out->device, sizeof out->device, "%s", info->name);
    snprintf(out->capability, sizeof out->capability, "%d.%d", info->major, info->minor);
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", info->driver_version / 1000,
             info->driver_version % 1000 / 10);
    SOL_TRY(gpu_sources_hash(gpu, "", out->kernels));
    return op_kernels_hash(gpu, &out->op_kernels);
}

enum sol_status device_key_of(const struct op_device *device, struct device_key *out)
{
    if (device->gpu) return device_key_of_gpu(device->gpu, out);
    *out = (struct device_key){0};
    name_build(out);
    name_cpu(device, out);
    return SOL_OK;
}

bool device_key_same_device(const struct device_key *a, const struct device_key *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->capability, b->capability) == 0;
}

bool device_key_same(const struct device_key *a, const struct device_key *b)
{
    return device_key_same_device(a, b) && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->build, b->build) == 0;
}

void device_key_digest(const struct device_key *key, const char *more, char out[DEVICE_KEY_DIGEST])
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%s|%s", key->device, key->capability,
                     key->driver, key->build, key->kernels, more);
    size_t length = n < (int)sizeof text ? (size_t)n : sizeof text - 1;
    snprintf(out, DEVICE_KEY_DIGEST, "%016llx", (unsigned long long)bytes_hash(text, length));
}
