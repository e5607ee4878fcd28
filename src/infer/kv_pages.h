/* Which pages of the cache a sequence has: the table that struct kv_layer (ops/batch.h) describes,
 * and the pages that nobody has. A page may have several users: sequences, and lists that somebody
 * keeps. It is written by the one sequence that took it as a free one, and only behind what others
 * see of it; who gets another's page and wants to write there takes a free one and copies. Where
 * the table lies, and when a GPU gets to see it, is the engine's business. */
#ifndef INFER_KV_PAGES_H
#define INFER_KV_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct kv_pages {
    int32_t *table;          /* [sequences][per_sequence]; the caller's, set after init */
    int64_t sequences;       /* rows of the table */
    int64_t per_sequence;    /* entries of a row: what a full context needs */
    int64_t n_pages, n_free; /* all; those that nobody has */
    int32_t *free;           /* [n_pages] the first n_free of them; the last is taken next */
    int64_t n_in_sequences;  /* those that a sequence has, or several */
    int32_t *readers;        /* [n_pages] sequences that have each */
    int32_t *users;          /* [n_pages] these, and lists */
    int32_t *held;           /* [sequences] how many pages each has */
    int64_t changed, unsent; /* entries written since kv_pages_sent: from changed, unsent of them */
};

/* Pages that `positions` positions need. */
int64_t kv_pages_for(int64_t positions);

/* All pages are free, and pages one after the other are taken in order. Errors: no memory, more
 * pages than an entry can name. Zeroed memory may be freed too. */
enum sol_status kv_pages_init(struct kv_pages *pages, int64_t sequences, int64_t per_sequence,
                              int64_t n_pages);
void kv_pages_free(struct kv_pages *pages);

/* How many pages more than it has a sequence needs for `positions` positions; 0 or more. */
int64_t kv_pages_missing(const struct kv_pages *pages, int32_t sequence, int64_t positions);

/* Gives a sequence as many pages as `positions` positions need: takes what is missing, of which
 * there must be enough, or gives back the last ones. What it keeps stays where it is. */
void kv_pages_hold(struct kv_pages *pages, int32_t sequence, int64_t positions);

/* Lists of pages that stay when the sequence ends. keep: `list` gets the first `n` pages that a
 * sequence has. share: a sequence without pages gets those. drop: the list is given up. make: a
 * list of `n` pages that begins with the `shared` ones of another; the rest are free ones, of which
 * there must be enough. */
void kv_pages_keep(struct kv_pages *pages, int32_t sequence, int64_t n, int32_t *list);
void kv_pages_share(struct kv_pages *pages, int32_t sequence, const int32_t *list, int64_t n);
void kv_pages_drop(struct kv_pages *pages, const int32_t *list, int64_t n);
void kv_pages_make(struct kv_pages *pages, const int32_t *other, int64_t shared, int32_t *list,
                   int64_t n);
/* Whether somebody else has one of the sequence's pages too. */
bool kv_pages_shared(const struct kv_pages *pages, int32_t sequence);

/* What changed is where the kernels read it. */
void kv_pages_sent(struct kv_pages *pages);

#endif
