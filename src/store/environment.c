#include "store/environment.h"

#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/build.h"
#include "base/cpu.h"
#include "base/sysinfo.h"
#include "gpu/kernel.h"
#include "sol/sol.h"
#include "store/store_json.h"

#ifndef SOL_BUILD
#define SOL_BUILD ""
#endif

extern char **environ;

const char *environment_build_commit(void)
{
    return build_commit();
}

/* ---- git ---- */

/* What a command wrote: its first bytes, and a hash of all. */
struct output {
    char head[64];
    uint64_t hash;
    size_t size;
};

static void take_output(int from, struct output *out)
{
    char buffer[8192];
    ssize_t count;
    while ((count = read(from, buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < count; i++) {
            if (out->size + 1 < sizeof out->head) out->head[out->size] = buffer[i];
            out->hash = (out->hash ^ (unsigned char)buffer[i]) * UINT64_C(0x100000001b3);
            out->size++;
        }
    }
}

/* Runs git without a shell. False when there is none, or it fails. */
static bool run_git(const char *folder, const char *const *arguments, struct output *out)
{
    const char *argv[16] = {"git", "--no-optional-locks", "-C", folder};
    size_t n = 4;
    int ends[2], exit_status = 1;
    pid_t pid;
    memset(out, 0, sizeof *out);
    while (*arguments && n + 1 < sizeof argv / sizeof *argv) argv[n++] = *arguments++;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int failed = posix_spawnp(&pid, "git", &actions, NULL, (char **)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (!failed) take_output(ends[0], out);
    close(ends[0]);
    return !failed && waitpid(pid, &exit_status, 0) == pid && exit_status == 0;
}

/* The names of files that git does not know count too, since they may be part of a build. */
static void add_git(json_t *json, const char *folder)
{
    static const char *const head[] = {"rev-parse", "HEAD", NULL};
    static const char *const diff[] = {"diff", "HEAD", "--binary", "--no-ext-diff", NULL};
    static const char *const others[] = {"ls-files", "-o", "--exclude-standard", NULL};
    struct output commit, changes, names;
    json_t *dirty = NULL;
    bool known = run_git(folder, head, &commit);
    if (known) commit.head[strcspn(commit.head, "\n")] = '\0';
    if (known && run_git(folder, diff, &changes) && run_git(folder, others, &names))
        dirty = changes.size + names.size
                    ? json_sprintf("%016" PRIx64, changes.hash * 31 + names.hash)
                    : json_string("");
    json_object_set_new(json, "commit", known ? json_string(commit.head) : json_null());
    json_object_set_new(json, "dirty", dirty ? dirty : json_null());
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
