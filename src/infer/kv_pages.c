/* Free pages are a stack, so that what was used last is used next, and taking or giving back a page
 * is a step. */
#include "infer/kv_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/batch.h"

int64_t kv_pages_for(int64_t positions)
{
    return (positions + KV_PAGE - 1) / KV_PAGE;
}

enum sol_status kv_pages_init(struct kv_pages *p, int64_t sequences, int64_t per_sequence,
                              int64_t n_pages)
{
    *p = (struct kv_pages){.sequences = sequences,
                           .per_sequence = per_sequence,
                           .n_pages = n_pages,
                           .n_free = n_pages};
    if (n_pages > INT32_MAX)
        return status_set(SOL_E_ARGUMENT, "a cache of %lld pages; at most 2^31 - 1 can be named",
                          (long long)n_pages);
    p->free = malloc((size_t)n_pages * sizeof *p->free);
    p->readers = calloc((size_t)n_pages, sizeof *p->readers);
    p->users = calloc((size_t)n_pages, sizeof *p->users);
    p->held = calloc((size_t)sequences, sizeof *p->held);
    if (!p->free || !p->readers || !p->users || !p->held) {
        kv_pages_free(p);
        return status_set(SOL_E_MEMORY, "no memory for a table of %lld pages", (long long)n_pages);
    }
    for (int64_t i = 0; i < n_pages; i++) p->free[i] = (int32_t)(n_pages - 1 - i);
    return SOL_OK;
}

void kv_pages_free(struct kv_pages *p)
{
    free(p->free);
    free(p->readers);
    free(p->users);
    free(p->held);
    *p = (struct kv_pages){0};
}

int64_t kv_pages_missing(const struct kv_pages *p, int32_t sequence, int64_t positions)
{
    int64_t missing = kv_pages_for(positions) - p->held[sequence];
    return missing > 0 ? missing : 0;
}

/* One span holds all that changed: a step changes few entries, and one copy carries them. */
static void note_change(struct kv_pages *p, int64_t entry)
{
    int64_t end = p->changed + p->unsent;
    if (!p->unsent || entry < p->changed) p->changed = entry;
    if (!p->unsent || entry >= end) end = entry + 1;
    p->unsent = end - p->changed;
}

static void take(struct kv_pages *p, int32_t sequence, int32_t page)
{
    int64_t entry = sequence * p->per_sequence + p->held[sequence]++;
    note_change(p, entry);
    p->table[entry] = page;
    p->users[page]++;
    if (p->readers[page]++ == 0) p->n_in_sequences++;
}

static void give_back(struct kv_pages *p, int32_t page)
{
    assert(p->users[page] > 0);
    if (--p->users[page] == 0) p->free[p->n_free++] = page;
}

void kv_pages_hold(struct kv_pages *p, int32_t sequence, int64_t positions)
{
    int32_t *held = &p->held[sequence], wanted = (int32_t)kv_pages_for(positions);
    int64_t row = sequence * p->per_sequence;
    assert(wanted <= p->per_sequence && wanted - *held <= p->n_free);
    while (*held < wanted) take(p, sequence, p->free[--p->n_free]);
    while (*held > wanted) {
        int32_t page = p->table[row + --*held];
        if (--p->readers[page] == 0) p->n_in_sequences--;
        give_back(p, page);
    }
}

void kv_pages_keep(struct kv_pages *p, int32_t sequence, int64_t n, int32_t *list)
{
    assert(n <= p->held[sequence]);
    memcpy(list, p->table + sequence * p->per_sequence, (size_t)n * sizeof *list);
    for (int64_t i = 0; i < n; i++) p->users[list[i]]++;
}

void kv_pages_share(struct kv_pages *p, int32_t sequence, const int32_t *list, int64_t n)
{
    assert(p->held[sequence] == 0 && n <= p->per_sequence);
    for (int64_t i = 0; i < n; i++) take(p, sequence, list[i]);
}

/* The last first, as a sequence does, so that the first is taken next. */
void kv_pages_drop(struct kv_pages *p, const int32_t *list, int64_t n)
{
    while (n > 0) give_back(p, list[--n]);
}

void kv_pages_make(struct kv_pages *p, const int32_t *other, int64_t shared, int32_t *list,
                   int64_t n)
{
    assert(shared <= n && n - shared <= p->n_free);
    for (int64_t i = 0; i < n; i++) {
        list[i] = i < shared ? other[i] : p->free[--p->n_free];
        p->users[list[i]]++;
    }
}

bool kv_pages_shared(const struct kv_pages *p, int32_t sequence)
{
    int64_t row = sequence * p->per_sequence;
    for (int32_t i = 0; i < p->held[sequence]; i++)
        if (p->users[p->table[row + i]] > 1) return true;
    return false;
}

void kv_pages_sent(struct kv_pages *p)
{
    p->unsent = 0;
}
