#include "train/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

struct packing {
    struct packing_options o;
    struct packed_document *held; /* in the order they came in */
    size_t *lengths;              /* of them; apart, as every choice looks at all */
    size_t n, capacity;
    size_t used;
    int32_t last;
    struct packing_counts counts;
};

enum sol_status packing_create(const struct packing_options *options, struct packing **out)
{
    struct packing *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return status_set(SOL_E_MEMORY, "no memory to pack rows");
    p->o = *options;
    p->last = -1;
    p->capacity = options->kind == PACKING_STREAM ? 1 : options->buffer + options->refill;
    p->held = calloc(p->capacity, sizeof *p->held);
    p->lengths = calloc(p->capacity, sizeof *p->lengths);
    if (p->held && p->lengths) return SOL_OK;
    packing_destroy(p);
    *out = NULL;
    return status_set(SOL_E_MEMORY, "no memory for a buffer of %zu documents", options->buffer);
}

void packing_destroy(struct packing *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) free(p->held[i].ids);
    free(p->held);
    free(p->lengths);
    free(p);
}

static enum sol_status take(struct packing *p)
{
    struct packed_document *d = &p->held[p->n];
    SOL_TRY(p->o.source(p->o.arg, d));
    p->lengths[p->n++] = d->count;
    p->counts.documents += d->at.first;
    p->counts.tokens += d->count;
    /* Of a document that fits no row only the beginning can come into one; its length still counts.
     */
    size_t row = (size_t)p->o.row;
    if (p->o.kind != PACKING_STREAM && d->count > row) {
        int32_t *less = realloc(d->ids, row * sizeof *less);
        if (less) d->ids = less;
    }
    return SOL_OK;
}

static void drop(struct packing *p, size_t index)
{
    free(p->held[index].ids);
    p->n--;
    memmove(&p->held[index], &p->held[index + 1], (p->n - index) * sizeof *p->held);
    memmove(&p->lengths[index], &p->lengths[index + 1], (p->n - index) * sizeof *p->lengths);
}

/* ---- best fit ---- */

/* The longest document of at most `space` tokens, the first of equals; NONE. *shortest of all. */
enum { NONE = -1 };
static int64_t choose(const struct packing *p, size_t space, size_t *shortest)
{
    int64_t best = NONE;
    size_t longest = 0;
    *shortest = 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t length = p->lengths[i];
        if (length <= space && length > longest) {
            longest = length;
            best = (int64_t)i;
        }
        if (length < p->lengths[*shortest]) *shortest = i;
    }
    return best;
}

static void fill_row(struct packing *p, int32_t *row, size_t at)
{
    for (size_t i = at; i < (size_t)p->o.row; i++) row[i] = token_unlabelled(p->o.pad);
    p->counts.padding += (size_t)p->o.row - at;
}

static enum sol_status best_fit_row(struct packing *p, int32_t *row)
{
    size_t size = (size_t)p->o.row;
    for (size_t at = 0, n; at < size; at += n) {
        while (p->n < p->o.buffer)
            for (size_t i = 0; i < p->o.refill; i++) SOL_TRY(take(p));
        size_t shortest;
        const int64_t fits = choose(p, size - at, &shortest);
        if (fits == NONE && at && p->o.kind == PACKING_PAD) {
            fill_row(p, row, at);
            break;
        }
        size_t index = fits == NONE ? shortest : (size_t)fits, length = p->lengths[index];
        n = length < size - at ? length : size - at;
        memcpy(row + at, p->held[index].ids, n * sizeof *row);
        p->counts.cut += length - n;
        drop(p, index);
    }
    return SOL_OK;
}

/* ---- stream ---- */

static enum sol_status stream_row(struct packing *p, int32_t *row)
{
    size_t size = (size_t)p->o.row, at = 0;
    if (p->last >= 0) row[at++] = p->last;
    while (at < size) {
        if (p->n == 0) SOL_TRY(take(p));
        size_t left = p->lengths[0] - p->used;
        size_t n = left < size - at ? left : size - at;
        memcpy(row + at, p->held[0].ids + p->used, n * sizeof *row);
        at += n;
        p->used += n;
        if (n < left) continue;
        drop(p, 0);
        p->used = 0;
    }
    p->last = token_id(row[size - 1]);
    return SOL_OK;
}

enum sol_status packing_row(struct packing *p, int32_t *row)
{
    p->counts.rows++;
    return p->o.kind == PACKING_STREAM ? stream_row(p, row) : best_fit_row(p, row);
}

/* ---- state ---- */

struct packing_state packing_state(const struct packing *p)
{
    return (struct packing_state){p->n, p->used, p->last};
}

void packing_held(const struct packing *p, struct corpus_document *out)
{
    for (size_t i = 0; i < p->n; i++) out[i] = p->held[i].at;
}

enum sol_status packing_restore(struct packing *p, const struct packing_state *state)
{
    bool good = state->documents <= p->capacity;
    for (size_t i = 0; good && i < state->documents; i++) SOL_TRY(take(p));
    if (p->o.kind == PACKING_STREAM)
        good = good && (state->documents ? state->used < p->lengths[0] : state->used == 0);
    else
        good = good && state->used == 0 && state->last == -1;
    if (!good)
        return status_set(SOL_E_ARGUMENT, "the position of the data does not fit its documents");
    p->used = state->used;
    p->last = state->last;
    return SOL_OK;
}

struct packing_counts packing_counts(const struct packing *p)
{
    return p->counts;
}
