/* Large buffers: page-aligned anonymous memory with huge pages where the system gives them, and
 * read-only file mappings. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

/* Zeroed, page-aligned. Freed with pages_free(ptr, the same size). */
enum sol_status pages_alloc(size_t size, void **out);
void pages_free(void *ptr, size_t size); /* takes NULL */
size_t pages_size(size_t size);          /* what that takes: whole pages; SIZE_MAX: too many */

/* Room for one element more than the `count` that an array has: for twice as many, where *capacity
 * is reached. `array` is the address of the pointer to it, which realloc made; `size` an element's.
 * Without memory "no memory for <what>", and all is as it was. */
enum sol_status array_grow(void *array, size_t count, size_t *capacity, size_t size,
                           const char *what);

struct mapped_file {
    const void *data; /* NULL for an empty or unmapped file */
    size_t size;
};

/* Maps `path` read-only. The error names the path. */
enum sol_status mapped_file_open(const char *path, struct mapped_file *out);
void mapped_file_close(struct mapped_file *file); /* takes an already closed one */

/* The path of the file that is mapped there, NULL for other memory. For handlers of SIGBUS, which
 * comes where a file became shorter than its mapping: takes no lock and no memory. */
const char *mapped_file_at(uintptr_t address);

/* Bytes the process could still take before the system runs out (MemAvailable, and a cgroup limit
 * where there is one). 0 when unknown. */
size_t memory_available(void);
size_t memory_peak_rss(void); /* highest resident set of this process so far, bytes */
/* Makes the system forget it; where it refuses, the peak of the process stands. */
void memory_peak_reset(void);

/* a*b and a+b without wrapping; false on overflow. */
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
