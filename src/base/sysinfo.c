#include "base/sysinfo.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char cgroup_root[] = "/sys/fs/cgroup";

bool sysinfo_read(const char *path, char *buffer, size_t size)
{
    buffer[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t length = 0;
    ssize_t got = 0;
    while (length + 1 < size && (got = read(fd, buffer + length, size - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    buffer[length] = '\0';
    return got >= 0;
}

bool sysinfo_field(const char *text, const char *key, unsigned long long *value)
{
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        *value = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

void sysinfo_cgroups(void (*visit)(void *arg, const char *folder), void *arg)
{
    char text[4096], folder[sizeof cgroup_root + sizeof text];
    if (!sysinfo_read("/proc/self/cgroup", text, sizeof text)) return;

    /* The line of version 2 is "0::/the/path"; others belong to version 1. */
    char *path = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!path) return;
    path = strchr(path, '/');
    if (!path) return;
    path[strcspn(path, "\n")] = '\0';

    snprintf(folder, sizeof folder, "%s%s", cgroup_root, path);
    for (;;) {
        visit(arg, folder);
        char *slash = strrchr(folder, '/');
        if ((size_t)(slash - folder) < sizeof cgroup_root - 1) return;
        *slash = '\0';
    }
}
