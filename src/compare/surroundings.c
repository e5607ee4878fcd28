#include "compare/surroundings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/sysinfo.h"

static void add(struct surroundings *e, const char *name, const char *value)
{
    if (e->count == SURROUNDINGS_FACTS_MAX || !*value) return;
    snprintf(e->facts[e->count].name, sizeof e->facts[0].name, "%s", name);
    snprintf(e->facts[e->count].value, sizeof e->facts[0].value, "%s", value);
    e->count++;
}

static void add_file(struct surroundings *e, const char *name, const char *path)
{
    char text[256];
    if (!sysinfo_read(path, text, sizeof text)) return;
    text[strcspn(text, "\n")] = '\0';
    add(e, name, text);
}

static void add_quota(void *arg, const char *folder)
{
    char path[8192], text[128];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!sysinfo_read(path, text, sizeof text) || strncmp(text, "max", 3) == 0) return;
    text[strcspn(text, "\n")] = '\0';
    add(arg, "CPU quota", text);
}

/* As execvp would find it. */
static int find_program(const char *word, struct stat *out)
{
    if (strchr(word, '/')) return stat(word, out);
    const char *path = getenv("PATH");
    while (path && *path) {
        char file[4096];
        size_t length = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, path, word);
        if (access(file, X_OK) == 0) return stat(file, out);
        path += length + (path[length] == ':');
    }
    return -1;
}

static void add_program(struct surroundings *e, const char *name, const char *command)
{
    char word[1024], text[128];
    struct stat file;
    command += strspn(command, " \t");
    size_t length = strcspn(command, " \t|&;<>()");
    if (length >= sizeof word) return;
    memcpy(word, command, length);
    word[length] = '\0';
    if (find_program(word, &file) != 0) return;
    snprintf(text, sizeof text, "%lld bytes of %lld.%09ld", (long long)file.st_size,
             (long long)file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
    add(e, name, text);
}

void surroundings_take(const char *const commands[2], struct surroundings *out)
{
    char cores[32];
    struct utsname system;
    *out = (struct surroundings){0};
    add(out, "processor", cpu_info()->model);
    snprintf(cores, sizeof cores, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    add(out, "cores that are on", cores);
    add_file(out, "frequency governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    add_file(out, "frequency limit", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq");
    add_file(out, "turbo switch", "/sys/devices/system/cpu/intel_pstate/no_turbo");
    add_file(out, "boost switch", "/sys/devices/system/cpu/cpufreq/boost");
    sysinfo_cgroups(add_quota, out);
    if (uname(&system) == 0) add(out, "kernel", system.release);
    add_program(out, "program of A", commands[0]);
    add_program(out, "program of B", commands[1]);
}

int surroundings_changed(const struct surroundings *before, const struct surroundings *after)
{
    if (before->count != after->count) return 0;
    for (size_t i = 0; i < before->count; i++)
        if (strcmp(before->facts[i].value, after->facts[i].value) != 0) return (int)i;
    return -1;
}
