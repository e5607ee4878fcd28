#include "check/verdict.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/cache.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"
#include "gpu/kernel.h"
#include "ops/device_key.h"
#include "sol/sol.h"

enum { PATH_SIZE = 4096 };

/* Compute capabilities that every release is verified on. */
static const int trusted[] = {90};

static bool is_trusted(const struct gpu_info *info)
{
    for (size_t i = 0; i < sizeof trusted / sizeof *trusted; i++)
        if (10 * info->major + info->minor == trusted[i]) return true;
    return false;
}

/* One file for each key: what changes makes another name. */
static enum sol_status verdict_path(const struct gpu *gpu, char *path, size_t size)
{
    struct device_key key;
    char name[64], digest[DEVICE_KEY_DIGEST];
    SOL_TRY(device_key_of_gpu(gpu, &key));
    device_key_digest(&key, "", digest);
    snprintf(name, sizeof name, "verified-%s.json", digest);
    return cache_path(name, path, size);
}

/* What was kept, or NULL. */
static json_t *read_verdict(const char *path)
{
    struct mapped_file file;
    json_t *verdict = NULL;
    if (mapped_file_open(path, &file) != SOL_OK) return NULL; /* no such file: not verified */
    if (file.data) verdict = json_loadb(file.data, file.size, 0, NULL);
    mapped_file_close(&file);
    return verdict;
}

enum sol_status verdict_check(struct gpu *gpu)
{
    const struct gpu_info *info = gpu_info(gpu);
    char path[PATH_SIZE], arch[16];
    enum sol_status status = verdict_path(gpu, path, sizeof path);
    if (status != SOL_OK && is_trusted(info)) return SOL_OK;
    SOL_TRY(status);
    json_t *verdict = read_verdict(path);
    const json_t *passed = json_object_get(verdict, "passed");
    const char *proven = json_string_value(json_object_get(verdict, "proven"));
    bool known = json_is_boolean(passed), good = json_is_true(passed) || is_trusted(info);
    status = good ? gpu_set_proven(gpu, proven ? proven : "") : SOL_OK;
    json_decref(verdict);
    if (good) return status;
    gpu_architecture(info, arch);
    if (known)
        return status_set(
            SOL_E_UNSUPPORTED,
            "%s (sm_%s): sol verify found kernels that compute wrongly there; another "
            "driver or sol may do better, the CPU does it right (--backend cpu)",
            info->name, arch);
    return status_set(SOL_E_UNSUPPORTED,
                      "%s (sm_%s): the kernels were not verified on this GPU with this driver and "
                      "this sol; run 'sol verify --backend cuda:%d' once, then this again",
                      info->name, arch, info->ordinal);
}

enum sol_status verdict_keep(const struct gpu *gpu, int ran, int failed, const char *proven)
{
    const struct gpu_info *info = gpu_info(gpu);
    char path[PATH_SIZE], text[1024];
    SOL_TRY(cache_folder(path, sizeof path)); /* made, if it is not there */
    SOL_TRY(verdict_path(gpu, path, sizeof path));
    json_t *verdict = json_pack("{s:b, s:i, s:i, s:s, s:s, s:i, s:i, s:i, s:s}", "passed",
                                ran > 0 && failed == 0, "verified", ran, "failed", failed, "proven",
                                proven, "device", info->name, "major", info->major, "minor",
                                info->minor, "driver", info->driver_version, "sol", sol_version());
    size_t length = json_dumpb(verdict, text, sizeof text, JSON_INDENT(1));
    json_decref(verdict);
    if (length == 0 || length > sizeof text)
        return status_set(SOL_E_MEMORY, "no memory for the verdict");
    return output_file_text(path, text, length);
}
