/* How often each piece of the o200k split occurs in a text: all that training a vocabulary needs to
 * know of it. */
#ifndef TOK_WORD_COUNTS_H
#define TOK_WORD_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/progress.h"
#include "base/threads.h"
#include "sol/status.h"

struct word {
    const char *text; /* in the text it was first seen in; NULL in an empty slot */
    uint32_t length, tag;
    uint64_t count;
};

/* Open addressing, at most half full; walk over slots 0..mask. */
struct word_counts {
    struct word *slots;
    size_t mask, used;
};

enum {
    /* Longer pieces are cut: a vocabulary learns nothing from a megabyte without a space, and
     * training walks through a piece again and again. */
    WORD_MAX = 4096,
};

enum sol_status word_counts_create(struct word_counts *counts);
void word_counts_destroy(struct word_counts *counts); /* takes a zeroed one */

/* Adds the pieces of `text`, which must stay as long as the counts, on all threads of the pool.
 * Progress is in bytes, from `before` on. Interruptible. */
enum sol_status word_counts_add(struct word_counts *counts, struct pool *pool, const char *text,
                                size_t length, struct progress *progress, uint64_t before);

#endif
