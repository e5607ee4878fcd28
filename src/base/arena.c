/* A list of blocks; the first one is bumped. An object larger than a quarter block gets a block of
 * its own behind the first, so that it does not waste the rest of the current one. */
#include "base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { ALIGN_MAX = 4096, BLOCK_MIN = 1024 };

struct block {
    struct block *next;
    size_t size, used; /* of data */
    unsigned char data[];
};

struct arena {
    struct block *first;
    struct arena_source source;
    size_t block_size;
    size_t handed_out;
};

/* calloc: large blocks then come as fresh zero pages, untouched until used. */
static void *heap_take(void *arg, size_t bytes)
{
    (void)arg;
    return calloc(1, bytes);
}

static void heap_give(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

enum sol_status arena_create(size_t block_size, struct arena **out)
{
    const struct arena_source heap = {heap_take, heap_give, NULL};
    return arena_create_from(&heap, block_size, out);
}

enum sol_status arena_create_from(const struct arena_source *source, size_t block_size,
                                  struct arena **out)
{
    *out = NULL;
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena) return status_set(SOL_E_MEMORY, "out of memory for an arena");
    arena->source = *source;
    arena->block_size = block_size < BLOCK_MIN ? BLOCK_MIN : block_size;
    *out = arena;
    return SOL_OK;
}

void arena_destroy(struct arena *arena)
{
    if (!arena) return;
    for (struct block *block = arena->first; block;) {
        struct block *next = block->next;
        arena->source.give(arena->source.arg, block);
        block = next;
    }
    free(arena);
}

static struct block *block_create(const struct arena_source *source, size_t size)
{
    size_t total;
    if (!size_add(size, sizeof(struct block), &total)) return NULL;
    struct block *block = source->take(source->arg, total);
    if (!block) return NULL;
    if (source->take != heap_take) memset(block, 0, total);
    block->size = size;
    return block;
}

/* The next `size` bytes of `block` at the alignment, or NULL when they do not fit. */
static void *block_take(struct block *block, size_t size, size_t align)
{
    uintptr_t at = (uintptr_t)(block->data + block->used);
    size_t padding = (size_t)(-at & (align - 1));
    size_t left = block->size - block->used;
    if (padding > left || size > left - padding) return NULL;
    void *result = block->data + block->used + padding;
    block->used += padding + size;
    return result;
}

void *arena_alloc(struct arena *arena, size_t size, size_t align)
{
    assert(align && (align & (align - 1)) == 0 && align <= ALIGN_MAX);
    size_t taken = size ? size : 1; /* so that the pointer is unique */
    void *result = arena->first ? block_take(arena->first, taken, align) : NULL;

    if (!result) {
        size_t need;
        bool own = taken > arena->block_size / 4;
        struct block *block = NULL;
        if (size_add(taken, align, &need))
            block = block_create(&arena->source,
                                 own || need > arena->block_size ? need : arena->block_size);
        if (!block) {
            status_set(SOL_E_MEMORY, "out of memory: %zu more bytes after %zu", size,
                       arena->handed_out);
            return NULL;
        }
        struct block **place = own && arena->first ? &arena->first->next : &arena->first;
        block->next = *place;
        *place = block;
        result = block_take(block, taken, align);
    }
    arena->handed_out += size;
    return result;
}

char *arena_strndup(struct arena *arena, const char *text, size_t length)
{
    size_t size;
    if (!size_add(length, 1, &size)) {
        status_set(SOL_E_MEMORY, "out of memory: a text of %zu bytes", length);
        return NULL;
    }
    char *copy = arena_alloc(arena, size, 1);
    if (copy && length) memcpy(copy, text, length);
    return copy;
}

size_t arena_used(const struct arena *arena)
{
    return arena->handed_out;
}
