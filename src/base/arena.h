/* Bump allocator: many objects, one lifetime. Blocks come from the heap and are freed together. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "sol/status.h"

struct arena;

enum sol_status arena_create(size_t block_size, struct arena **out);

/* Where blocks come from when it is not the heap: memory that a GPU sees too, say. */
struct arena_source {
    void *(*take)(void *arg, size_t bytes); /* any contents; NULL when there is none */
    void (*give)(void *arg, void *memory);
    void *arg;
};
enum sol_status arena_create_from(const struct arena_source *source, size_t block_size,
                                  struct arena **out);
void arena_destroy(struct arena *arena); /* takes NULL */

/* Zeroed memory aligned to `align` (a power of two, at most 4096). NULL, with the message set
 * (SOL_E_MEMORY), when there is none. size 0 gives a valid unique pointer. */
void *arena_alloc(struct arena *arena, size_t size, size_t align);
char *arena_strndup(struct arena *arena, const char *text, size_t length); /* NUL-terminated */

size_t arena_used(const struct arena *arena); /* bytes handed out */

#define ARENA_NEW(arena, type, count)                                                              \
    ((type *)arena_alloc((arena), sizeof(type) * (size_t)(count), _Alignof(type)))

#endif
