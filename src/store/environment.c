#include "store/environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/build.h"
#include "base/cpu.h"
#include "base/sysinfo.h"
#include "gpu/kernel.h"
#include "sol/sol.h"
#include "store/git_state.h"
#include "store/store_json.h"

#ifndef SOL_BUILD
#define SOL_BUILD ""
#endif

const char *environment_build_commit(void)
{
    return build_commit();
}

static void add_git(json_t *json, const char *folder)
{
    struct git_state state;
    git_state_read(folder, &state);
    json_object_set_new(json, "commit", state.has_commit ? json_string(state.commit) : json_null());
    json_object_set_new(json, "dirty", state.has_dirty ? json_string(state.dirty) : json_null());
}

/* ---- machine ---- */

const struct environment_device *environment_of_gpu(const struct gpu *gpu,
                                                    struct environment_gpu *out)
{
    if (!gpu) return NULL;
    const struct gpu_info *info = gpu_info(gpu);
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", info->driver_version / 1000,
             info->driver_version % 1000 / 10);
    if (gpu_sources_hash(gpu, "", out->kernels) != SOL_OK) out->kernels[0] = '\0';
    out->device = (struct environment_device){info->name, out->driver, out->kernels};
    return &out->device;
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static json_t *line_of(const char *path)
{
    char text[256];
    sysinfo_read(path, text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    return text_or_null(text);
}

static json_t *os_name(void)
{
    char text[4096], *at;
    sysinfo_read("/etc/os-release", text, sizeof text);
    at = strstr(text, "PRETTY_NAME=");
    if (!at) return json_null();
    at += strlen("PRETTY_NAME=");
    if (*at == '"') at++;
    at[strcspn(at, "\"\n")] = '\0';
    return text_or_null(at);
}

static json_t *features_json(void)
{
    json_t *list = json_array();
    for (unsigned bit = 1; bit; bit <<= 1)
        if (cpu_info()->features & bit)
            json_array_append_new(list, json_string(cpu_feature_name(bit)));
    return list;
}

static json_t *machine_json(void)
{
    const struct cpu_info *cpu = cpu_info();
    char text[8192], host[65] = "";
    unsigned long long kib = 0, khz = 0;
    struct utsname name = {.machine = ""};
    uname(&name);
    gethostname(host, sizeof host - 1);
    if (sysinfo_read("/proc/meminfo", text, sizeof text)) sysinfo_field(text, "MemTotal:", &kib);
    if (sysinfo_read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", text, sizeof text))
        khz = strtoull(text, NULL, 10);
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:s}", "host", host, "machine",
                     name.machine, "cpu", cpu->model, "cores", cpu->cores, "memory_mib",
                     (json_int_t)(kib / 1024), "features", features_json(), "governor",
                     line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), "max_mhz",
                     khz ? json_integer((json_int_t)(khz / 1000)) : json_null(), "os", os_name(),
                     "kernel", name.release);
}

json_t *environment_json(const char *folder, const struct environment_device *device)
{
    static const struct environment_device none = {NULL, NULL, NULL};
    json_t *json = machine_json();
    if (!json) {
        status_set(SOL_E_MEMORY, "no memory for the description of the machine");
        return NULL;
    }
    if (!device) device = &none;
    json_object_set_new(json, "sol", json_string(sol_version()));
    json_object_set_new(json, "build", json_string(SOL_BUILD));
    json_object_set_new(json, "build_commit", text_or_null(build_commit()));
    add_git(json, folder);
    json_object_set_new(json, "device", text_or_null(device->name));
    json_object_set_new(json, "driver", text_or_null(device->driver));
    json_object_set_new(json, "kernel_source", text_or_null(device->kernel_source));
    return json;
}

void environment_machine_key(char out[STORE_HASH_SIZE])
{
    json_t *json = machine_json();
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    store_hash(text ? text : "", text ? strlen(text) : 0, out);
    free(text);
    json_decref(json);
}

/* ---- a run's beginning ---- */

static enum sol_status add_environment(struct store *store, const char *folder,
                                       const struct environment_device *device,
                                       char id[STORE_HASH_SIZE])
{
    json_t *json = environment_json(folder, device);
    char *text;
    if (!json) return SOL_E_MEMORY;
    enum sol_status status = store_json_text(json, &text);
    if (status == SOL_OK) status = store_environment_add(store, text, id);
    free(text);
    return status;
}

enum sol_status environment_run_begin(struct store *store, const struct store_run *run, int argc,
                                      char *const *argv, const struct environment_device *device,
                                      char id[STORE_ID_SIZE])
{
    char environment[STORE_HASH_SIZE], cwd[4096], *arguments;
    struct store_run whole = *run;
    json_t *list = json_array();
    id[0] = '\0';
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, "(unknown)");
    for (int i = 0; list && i < argc; i++) {
        json_array_append_new(list, store_json_string(argv[i]));
    }
    SOL_TRY(store_json_text(list, &arguments));
    enum sol_status status = add_environment(store, cwd, device, environment);
    whole.environment = environment;
    whole.argv_json = arguments;
    whole.cwd = cwd;
    if (status == SOL_OK) status = store_run_begin(store, &whole, id);
    free(arguments);
    return status;
}
