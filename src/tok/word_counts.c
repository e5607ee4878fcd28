/* A text is cut where pieces are known to end (pretokenize_is_cut). Every thread counts stretches
 * into a table of its own; sums do not depend on who counted what. */
#include "tok/word_counts.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "tok/pretokenize.h"

enum {
    FIRST_SLOTS = 1 << 14,
    STRETCH = 1 << 19, /* bytes counted between two looks at progress and interrupts */
};

static bool allocate(struct word_counts *counts, size_t slots)
{
    *counts = (struct word_counts){calloc(slots, sizeof *counts->slots), slots - 1, 0};
    return counts->slots != NULL;
}

enum sol_status word_counts_create(struct word_counts *counts)
{
    if (allocate(counts, FIRST_SLOTS)) return SOL_OK;
    return status_set(SOL_E_MEMORY, "no memory to count words");
}

void word_counts_destroy(struct word_counts *counts)
{
    free(counts->slots);
    *counts = (struct word_counts){NULL, 0, 0};
}

/* The slot of this word, or the empty one where it would go. */
static struct word *find(const struct word_counts *counts, uint64_t hash, const char *text,
                         size_t length)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & counts->mask;; i = (i + 1) & counts->mask) {
        struct word *word = &counts->slots[i];
        if (!word->text) return word;
        if (word->tag == tag && word->length == length && memcmp(word->text, text, length) == 0)
            return word;
    }
}

static bool grow(struct word_counts *counts)
{
    struct word_counts larger;
    if (!allocate(&larger, 2 * (counts->mask + 1))) return false;
    for (size_t i = 0; i <= counts->mask; i++) {
        const struct word *word = &counts->slots[i];
        if (!word->text) continue;
        *find(&larger, bytes_hash(word->text, word->length), word->text, word->length) = *word;
    }
    larger.used = counts->used;
    free(counts->slots);
    *counts = larger;
    return true;
}

static bool add_word(struct word_counts *counts, const char *text, size_t length, uint64_t times)
{
    uint64_t hash = bytes_hash(text, length);
    struct word *word = find(counts, hash, text, length);
    if (word->text) {
        word->count += times;
        return true;
    }
    *word = (struct word){text, (uint32_t)length, (uint32_t)(hash >> 32), times};
    return ++counts->used <= counts->mask / 2 || grow(counts);
}

static bool add_piece(struct word_counts *counts, const char *text, size_t length)
{
    while (length > WORD_MAX) {
        size_t part = WORD_MAX;
        while (part > WORD_MAX - 4 && (text[part] & 0xc0) == 0x80) part--; /* between characters */
        if (!add_word(counts, text, part, 1)) return false;
        text += part, length -= part;
    }
    return add_word(counts, text, length, 1);
}

/* ---- many threads ---- */

struct job {
    const char *text;
    size_t length;
    struct word_counts *tables; /* of each worker */
    struct progress *progress;
    uint64_t before;
    _Atomic uint64_t done;
    atomic_bool no_memory;
};

/* Where the stretch that begins with `index` really begins. */
static size_t cut_after(const struct job *job, int64_t index)
{
    size_t at = (size_t)index * STRETCH;
    if (at == 0) return 0;
    while (at < job->length && !pretokenize_is_cut(job->text, at)) {
        const char *line = memchr(job->text + at, '\n', job->length - at);
        at = line ? (size_t)(line - job->text) + 1 : job->length;
    }
    return at < job->length ? at : job->length;
}

static void count_stretches(void *arg, int64_t begin, int64_t end, int worker)
{
    struct job *job = arg;
    struct word_counts *table = &job->tables[worker];
    size_t from = cut_after(job, begin), to = cut_after(job, end);
    for (size_t at = from, next = from; at < to;) {
        if (at >= next) {
            if (interrupt_requested() || atomic_load(&job->no_memory)) return;
            if (worker == 0) progress_update(job->progress, job->before + atomic_load(&job->done));
            next = at + STRETCH;
        }
        size_t length = pretokenize_next(job->text + at, to - at);
        if (!add_piece(table, job->text + at, length)) {
            atomic_store(&job->no_memory, true);
            return;
        }
        at += length;
    }
    atomic_fetch_add(&job->done, to - from);
}

static bool add_table(struct word_counts *to, const struct word_counts *from)
{
    for (size_t i = 0; i <= from->mask; i++) {
        const struct word *word = &from->slots[i];
        if (word->text && !add_word(to, word->text, word->length, word->count)) return false;
    }
    return true;
}

enum sol_status word_counts_add(struct word_counts *counts, struct pool *pool, const char *text,
                                size_t length, struct progress *progress, uint64_t before)
{
    int workers = pool_size(pool);
    struct job job = {.text = text, .length = length, .progress = progress, .before = before};
    job.tables = calloc((size_t)workers, sizeof *job.tables);
    bool good = job.tables != NULL;
    for (int i = 0; good && i < workers; i++) good = allocate(&job.tables[i], FIRST_SLOTS);
    if (good) {
        pool_for(pool, (int64_t)((length + STRETCH - 1) / STRETCH), 1, count_stretches, &job);
        good = !atomic_load(&job.no_memory);
    }
    for (int i = 0; job.tables && i < workers; i++) {
        good = good && add_table(counts, &job.tables[i]);
        word_counts_destroy(&job.tables[i]);
    }
    free(job.tables);
    SOL_TRY(interrupt_check());
    return good ? SOL_OK : status_set(SOL_E_MEMORY, "no memory to count words");
}
