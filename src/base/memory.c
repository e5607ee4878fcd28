#include "base/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"
#include "base/sysinfo.h"

/* The huge page of x86-64 and of aarch64 with 4 KiB pages. Kernels before 6.7 do not align large
 * anonymous mappings to it by themselves. */
static const size_t huge_page = (size_t)2 << 20;

/* Whole pages; 0 bytes take one, so that the pointer is valid. False on overflow. */
static bool round_to_pages(size_t size, size_t *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!size_add(size ? size : 1, page - 1, out)) return false;
    *out &= ~(page - 1);
    return true;
}

size_t pages_size(size_t size)
{
    size_t rounded;
    return round_to_pages(size, &rounded) ? rounded : SIZE_MAX;
}

/* Maps `size` bytes at a multiple of the huge page by mapping more and giving the ends back. */
static void *map_aligned(size_t size)
{
    size_t padded;
    if (!size_add(size, huge_page, &padded)) return MAP_FAILED;
    unsigned char *start =
        mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return MAP_FAILED;
    size_t head = (size_t)(-(uintptr_t)start & (huge_page - 1));
    if (head) munmap(start, head);
    if (huge_page > head) munmap(start + head + size, huge_page - head);
    madvise(start + head, size, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    return start + head;
}

enum sol_status pages_alloc(size_t size, void **out)
{
    *out = NULL;
    size_t rounded;
    void *start = MAP_FAILED;
    errno = ENOMEM;
    if (round_to_pages(size, &rounded))
        start = rounded >= huge_page ? map_aligned(rounded)
                                     : mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return status_set(SOL_E_MEMORY, "cannot allocate %.1f MiB: %s", (double)size / (1 << 20),
                          strerror(errno));
    *out = start;
    return SOL_OK;
}

void pages_free(void *ptr, size_t size)
{
    size_t rounded;
    if (ptr && round_to_pages(size, &rounded)) munmap(ptr, rounded);
}

/* ---- mapped files ---- */

/* Which file is mapped where, for a handler of SIGBUS: a list that only grows, whose entries are
 * used again, so that it can be read at any moment. */
struct mapping {
    struct mapping *next;
    atomic_bool taken;
    _Atomic uintptr_t begin, end; /* end 0: nothing is mapped */
    char *path;
};
static struct mapping *_Atomic mappings;

static struct mapping *take_mapping(void)
{
    for (struct mapping *m = atomic_load(&mappings); m; m = m->next)
        if (!atomic_exchange(&m->taken, true)) return m;
    struct mapping *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return NULL;
    atomic_store(&fresh->taken, true);
    fresh->next = atomic_load(&mappings);
    while (!atomic_compare_exchange_weak(&mappings, &fresh->next, fresh)) continue;
    return fresh;
}

/* Without memory for it the file is only not known to the handler. */
static void remember(const struct mapped_file *file, const char *path)
{
    struct mapping *m = take_mapping();
    if (!m) return;
    m->path = strdup(path);
    if (!m->path) {
        atomic_store(&m->taken, false);
        return;
    }
    atomic_store(&m->begin, (uintptr_t)file->data);
    size_t size = 0; /* whole pages: the last one reaches beyond the file */
    bool whole = round_to_pages(file->size, &size);
    atomic_store(&m->end, whole ? (uintptr_t)file->data + size : 0);
}

static void forget(const void *data)
{
    for (struct mapping *m = atomic_load(&mappings); m; m = m->next) {
        if (!atomic_load(&m->end) || atomic_load(&m->begin) != (uintptr_t)data) continue;
        atomic_store(&m->end, 0);
        free(m->path);
        m->path = NULL;
        atomic_store(&m->taken, false);
        return;
    }
}

const char *mapped_file_at(uintptr_t address)
{
    for (struct mapping *m = atomic_load(&mappings); m; m = m->next) {
        if (address < atomic_load(&m->end) && address >= atomic_load(&m->begin)) return m->path;
    }
    return NULL;
}

enum sol_status array_grow(void *array, size_t count, size_t *capacity, size_t size,
                           const char *what)
{
    enum { FIRST = 64 };
    size_t wanted = *capacity ? *capacity : FIRST / 2, bytes;
    void *old, *grown = NULL;
    if (count < *capacity) return SOL_OK;
    memcpy(&old, array, sizeof old); /* whatever it points to */
    if (size_mul(wanted, 2, &wanted) && size_mul(wanted, size, &bytes)) grown = realloc(old, bytes);
    if (!grown) return status_set(SOL_E_MEMORY, "no memory for %s", what);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return SOL_OK;
}

enum sol_status mapped_file_open(const char *path, struct mapped_file *out)
{
    struct stat info;
    int fd;
    enum sol_status status = SOL_OK;
    *out = (struct mapped_file){0};
    SOL_TRY(file_open(path, &fd));
    if (fstat(fd, &info) != 0) {
        status = status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(errno));
    } else if (info.st_size) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = status_set(SOL_E_IO, "cannot map '%s': %s", path, strerror(errno));
        else
            *out = (struct mapped_file){.data = data, .size = (size_t)info.st_size};
    }
    close(fd); /* the mapping keeps the file */
    if (out->data) remember(out, path);
    return status;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->data) {
        forget(file->data);
        munmap((void *)(uintptr_t)file->data, file->size);
    }
    *file = (struct mapped_file){0};
}

/* ---- how much there is ---- */

/* Lowers *arg to what one cgroup leaves. Its page cache can be reclaimed and so is not counted as
 * used: a mapped model would otherwise seem to fill the group. */
static void limit_by_cgroup(void *arg, const char *folder)
{
    size_t *available = arg;
    char path[5000], text[8192];
    unsigned long long limit, used, file = 0, part;

    snprintf(path, sizeof path, "%s/memory.max", folder);
    if (!sysinfo_read(path, text, sizeof text) || !sysinfo_field(text, "", &limit)) return;
    snprintf(path, sizeof path, "%s/memory.current", folder);
    if (!sysinfo_read(path, text, sizeof text) || !sysinfo_field(text, "", &used)) return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (sysinfo_read(path, text, sizeof text)) {
        if (sysinfo_field(text, "inactive_file ", &part)) file += part;
        if (sysinfo_field(text, "active_file ", &part)) file += part;
    }
    used = used > file ? used - file : 0;
    size_t left = limit > used ? (size_t)(limit - used) : 1; /* 0 would mean unknown */
    if (*available == 0 || left < *available) *available = left;
}

size_t memory_available(void)
{
    char text[1024]; /* it is the third line */
    unsigned long long kib;
    size_t available = 0;
    if (sysinfo_read("/proc/meminfo", text, sizeof text) &&
        sysinfo_field(text, "MemAvailable:", &kib))
        available = (size_t)kib * 1024;
    sysinfo_cgroups(limit_by_cgroup, &available);
    return available;
}

size_t memory_peak_rss(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_maxrss * 1024; /* Linux counts in KiB */
}

void memory_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}
