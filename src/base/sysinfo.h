/* Small facts that Linux publishes as text files. */
#ifndef BASE_SYSINFO_H
#define BASE_SYSINFO_H

#include <stdbool.h>
#include <stddef.h>

/* Reads a short text file, cut at size - 1 bytes and NUL-terminated. False, with an empty buffer
 * and no message, when it cannot be read: every such fact is optional. */
bool sysinfo_read(const char *path, char *buffer, size_t size);

/* The number after `key` at the start of a line ("MemAvailable:"); false when there is none. */
bool sysinfo_field(const char *text, const char *key, unsigned long long *value);

/* Calls `visit` with the folder of this process's cgroup (version 2) and of each of its parents: a
 * limit set on any of them counts. Does nothing where there is no such hierarchy. */
void sysinfo_cgroups(void (*visit)(void *arg, const char *folder), void *arg);

#endif
