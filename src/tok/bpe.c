/* The table is an open-addressing hash from a pair to (rank, merged id), at most half full.
 *
 * Short pieces, which is nearly all of them, are merged by looking for the smallest rank again
 * after each merge: quadratic, but over a few entries of one array. Long ones (a megabyte without a
 * space) use a linked list of symbols and a heap of (rank, position). A heap entry is not removed
 * when its pair goes away; it is recognised as outdated because the position no longer starts a
 * pair of that rank. */
#include "tok/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Where the scan stops being quicker than the heap: the two meet at 45 to 60 symbols for one
 * letter, for random letters and for eight common ones (real vocabulary, one core of an AMD EPYC
 * VM, CPU time). */
enum { SHORT_PIECE = 48 };

struct slot {
    int32_t left, right; /* left is -1 in an empty slot */
    uint32_t rank;
    int32_t merged;
};

struct bpe {
    struct slot *slots;
    size_t mask, bytes; /* slots - 1, size of the table */
    uint32_t next_rank;
};

/* Rank above, merged id below: comparing two of these compares ranks. */
static const uint64_t no_pair = UINT64_MAX;

enum sol_status bpe_create(size_t n_merges, struct bpe **out)
{
    *out = NULL;
    size_t slots = 16, bytes;
    while (slots / 2 < n_merges) {
        if (!size_mul(slots, 2, &slots))
            return status_set(SOL_E_MEMORY, "cannot hold %zu merges", n_merges);
    }
    struct bpe *bpe = calloc(1, sizeof *bpe);
    if (!bpe || !size_mul(slots, sizeof *bpe->slots, &bytes)) {
        free(bpe);
        return status_set(SOL_E_MEMORY, "no memory for %zu merges", n_merges);
    }
    void *memory;
    enum sol_status status = pages_alloc(bytes, &memory);
    if (status != SOL_OK) {
        free(bpe);
        return status;
    }
    bpe->slots = memory;
    bpe->bytes = bytes;
    bpe->mask = slots - 1;
    /* 0xff in every byte of `left` is -1. */
    memset(bpe->slots, 0xff, bytes);
    *out = bpe;
    return SOL_OK;
}

void bpe_destroy(struct bpe *bpe)
{
    if (!bpe) return;
    pages_free(bpe->slots, bpe->bytes);
    free(bpe);
}

/* The slot of the pair, or the empty one where it would go. */
static inline struct slot *find(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    for (size_t i = (size_t)hash & bpe->mask;; i = (i + 1) & bpe->mask) {
        struct slot *slot = &bpe->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

bool bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged)
{
    struct slot *slot = find(bpe, left, right);
    if (slot->left >= 0) return false;
    *slot = (struct slot){left, right, bpe->next_rank++, merged};
    return true;
}

static inline uint64_t pair_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    const struct slot *slot = find(bpe, left, right);
    return slot->left < 0 ? no_pair : (uint64_t)slot->rank << 32 | (uint32_t)slot->merged;
}

static void merge_short(const struct bpe *bpe, int32_t *ids, size_t *count)
{
    uint64_t pairs[SHORT_PIECE]; /* pairs[i] is ids[i] with ids[i + 1] */
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = pair_of(bpe, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i] < pairs[best]) best = i;
        if (pairs[best] == no_pair) break;
        ids[best] = (int32_t)(uint32_t)pairs[best];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
        if (best + 1 < n) {
            memmove(pairs + best, pairs + best + 1, (n - best - 1) * sizeof *pairs);
            pairs[best] = pair_of(bpe, ids[best], ids[best + 1]);
        }
        if (best > 0) pairs[best - 1] = pair_of(bpe, ids[best - 1], ids[best]);
    }
    *count = n;
}

/* ---- long pieces
 * ----------------------------------------------------------------------------------- */

struct symbol {
    uint32_t previous, next; /* n at the end, and before the first */
    uint64_t pair; /* with the next one; no_pair for the last and for merged-away symbols */
};

/* Binary min-heap of rank << 32 | position. */
struct heap {
    uint64_t *entries;
    size_t count;
};

static void heap_down(struct heap *heap, size_t at)
{
    uint64_t entry = heap->entries[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && heap->entries[child + 1] < heap->entries[child]) child++;
        if (heap->entries[child] >= entry) break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = entry;
}

static void heap_push(struct heap *heap, uint64_t entry)
{
    size_t at = heap->count++;
    while (at > 0 && heap->entries[(at - 1) / 2] > entry) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

static uint64_t heap_pop(struct heap *heap)
{
    uint64_t top = heap->entries[0];
    heap->entries[0] = heap->entries[--heap->count];
    if (heap->count) heap_down(heap, 0);
    return top;
}

static inline uint64_t entry_of(uint64_t pair, uint32_t position)
{
    return (pair & ~(uint64_t)UINT32_MAX) | position;
}

/* Forms the pair that starts at `position` anew. */
static void renew_pair(const struct bpe *bpe, const int32_t *ids, struct symbol *symbols, size_t n,
                       uint32_t position, struct heap *heap)
{
    struct symbol *symbol = &symbols[position];
    symbol->pair = symbol->next < n ? pair_of(bpe, ids[position], ids[symbol->next]) : no_pair;
    if (symbol->pair != no_pair) heap_push(heap, entry_of(symbol->pair, position));
}

static void merge_all(const struct bpe *bpe, int32_t *ids, struct symbol *symbols, size_t n,
                      struct heap *heap)
{
    while (heap->count) {
        uint64_t entry = heap_pop(heap);
        uint32_t position = (uint32_t)entry;
        struct symbol *symbol = &symbols[position];
        if (symbol->pair == no_pair || entry_of(symbol->pair, position) != entry) continue;
        uint32_t gone = symbol->next;
        ids[position] = (int32_t)(uint32_t)symbol->pair;
        symbol->next = symbols[gone].next;
        if (symbol->next < n) symbols[symbol->next].previous = position;
        symbols[gone].pair = no_pair;
        renew_pair(bpe, ids, symbols, n, position, heap);
        if (symbol->previous < n) renew_pair(bpe, ids, symbols, n, symbol->previous, heap);
    }
}

static enum sol_status merge_long(const struct bpe *bpe, int32_t *ids, size_t *count)
{
    size_t n = *count;
    if (n >= UINT32_MAX / 2)
        return status_set(SOL_E_ARGUMENT, "a piece of %zu bytes without a split is too long", n);
    /* Each merge takes at least one entry out and puts at most two in: under 2n entries at any
     * time. */
    struct symbol *symbols = malloc(n * sizeof *symbols);
    struct heap heap = {malloc(2 * n * sizeof *heap.entries), 0};
    if (!symbols || !heap.entries) {
        free(symbols);
        free(heap.entries);
        return status_set(SOL_E_MEMORY, "no memory to tokenize a piece of %zu bytes", n);
    }
    for (size_t i = 0; i < n; i++) {
        symbols[i] = (struct symbol){i ? (uint32_t)i - 1 : (uint32_t)n, (uint32_t)i + 1, no_pair};
        if (i + 1 == n) break;
        symbols[i].pair = pair_of(bpe, ids[i], ids[i + 1]);
        if (symbols[i].pair != no_pair)
            heap.entries[heap.count++] = entry_of(symbols[i].pair, (uint32_t)i);
    }
    for (size_t i = heap.count / 2; i-- > 0;) heap_down(&heap, i);
    merge_all(bpe, ids, symbols, n, &heap);

    size_t kept = 0;
    for (size_t i = 0; i < n; i = symbols[i].next) ids[kept++] = ids[i];
    *count = kept;
    free(symbols);
    free(heap.entries);
    return SOL_OK;
}

enum sol_status bpe_merge(const struct bpe *bpe, int32_t *ids, size_t *count)
{
    if (*count > SHORT_PIECE) return merge_long(bpe, ids, count);
    merge_short(bpe, ids, count);
    return SOL_OK;
}
