#include "grammar/token_trie_private.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tok/pretokenize.h"

/* ---- tokens in order ---- */

struct entry {
    const uint8_t *data;
    uint32_t length;
    int32_t id;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    uint32_t n = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->data, y->data, n);
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Characters of a plain token; 0 for any other. */
static uint32_t plain_characters(const uint8_t *data, uint32_t length)
{
    uint32_t n = 0, code;
    for (uint32_t at = 0; at < length; n++) {
        int size = utf8_decode((const char *)data + at, length - at, &code);
        if (size <= 0 || code < 0x20 || code == '"' || code == '\\') return 0;
        at += (uint32_t)size;
    }
    return n;
}

/* ---- the tree ---- */

static uint32_t common_prefix(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->length && n < b->length && a->data[n] == b->data[n]) n++;
    return n;
}

/* Entries are in order and differ. Sizes are filled in when a subtree is left. */
static void fill_part(struct trie_part *part, const struct entry *entries, size_t n, uint32_t *path)
{
    uint32_t depth = 0, count = 0;
    for (size_t i = 0; i <= n; i++) {
        uint32_t shared = i && i < n ? common_prefix(&entries[i - 1], &entries[i]) : 0;
        for (; depth > shared; depth--) {
            struct trie_node *node = &part->nodes[path[depth - 1]];
            node->size_byte |= (count - path[depth - 1]) << 8;
        }
        if (i == n) break;
        for (; depth < entries[i].length; depth++) {
            path[depth] = count;
            part->nodes[count++] = (struct trie_node){entries[i].data[depth], -1};
        }
        part->nodes[count - 1].token = entries[i].id;
    }
}

static enum sol_status build_part(struct trie_part *part, const struct entry *entries, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += entries[i].length - (i ? common_prefix(&entries[i - 1], &entries[i]) : 0);
        if (entries[i].length > part->depth) part->depth = entries[i].length;
    }
    if (count >= 1 << 24)
        return status_set(SOL_E_UNSUPPORTED, "the vocabulary's tokens have too many bytes (%zu)",
                          count);
    part->count = (uint32_t)count;
    part->nodes = malloc((count + 1) * sizeof *part->nodes);
    uint32_t *path = malloc((part->depth + 1) * sizeof *path);
    if (part->nodes && path) fill_part(part, entries, n, path);
    free(path);
    return part->nodes && path ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a vocabulary");
}

/* ---- masks of plain tokens ---- */

static enum sol_status make_masks(struct token_trie *t, const struct entry *plain, size_t n)
{
    bool *present = calloc(t->longest + 2, sizeof *present);
    uint32_t *characters = malloc((n + 1) * sizeof *characters);
    enum sol_status status = SOL_E_MEMORY;
    if (!present || !characters) goto end;
    for (size_t i = 0; i < n; i++) {
        characters[i] = plain_characters(plain[i].data, plain[i].length);
        present[characters[i]] = true;
    }
    t->masks = calloc(t->longest + 2, sizeof *t->masks);
    if (!t->masks) goto end;
    for (uint32_t c = 0; c <= t->longest; c++) { /* 0: no token, an empty mask */
        if (c && !present[c]) continue;
        uint32_t *bits = calloc(t->words + 1, sizeof *bits);
        t->masks[t->n_masks++] = (struct plain_mask){c, bits};
        if (!bits) goto end;
        for (size_t i = 0; i < n; i++)
            if (characters[i] <= c) {
                for (int32_t id = plain[i].id; id >= 0; id = t->twins ? t->twins[id] : -1)
                    bits[id / 32] |= 1u << id % 32;
            }
    }
    status = SOL_OK;
end:
    free(present);
    free(characters);
    return status == SOL_OK ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a vocabulary");
}

/* ---- creation ---- */

/* All that is text, in order; *n becomes how many. */
static void list_tokens(const struct token_trie *t, struct entry *entries, size_t *n)
{
    size_t count = 0;
    for (int32_t id = 0; id < tokenizer_vocab(t->tokenizer); id++) {
        struct token_bytes bytes = token_trie_bytes(t, id);
        if (bytes.length == 0 || bytes.length > UINT16_MAX) continue;
        entries[count++] = (struct entry){(const uint8_t *)bytes.data, (uint32_t)bytes.length, id};
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    *n = count;
}

/* Keeps the first of several tokens with the same bytes. */
static enum sol_status link_twins(struct token_trie *t, struct entry *entries, size_t *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        bool same = kept && entries[kept - 1].length == entries[i].length &&
                    memcmp(entries[kept - 1].data, entries[i].data, entries[i].length) == 0;
        if (!same) {
            entries[kept++] = entries[i];
            continue;
        }
        if (!t->twins) {
            t->twins = malloc(t->vocab * sizeof *t->twins);
            if (!t->twins) return status_set(SOL_E_MEMORY, "no memory for a vocabulary");
            for (size_t j = 0; j < t->vocab; j++) t->twins[j] = -1;
        }
        int32_t first = entries[kept - 1].id;
        t->twins[entries[i].id] = t->twins[first];
        t->twins[first] = entries[i].id;
    }
    *n = kept;
    return SOL_OK;
}

static enum sol_status build(struct token_trie *t, struct entry *entries, struct entry *plain)
{
    size_t n, n_plain = 0, n_rest = 0;
    list_tokens(t, entries, &n);
    SOL_TRY(link_twins(t, entries, &n));
    for (size_t i = 0; i < n; i++) {
        if (entries[i].length > t->longest) t->longest = entries[i].length;
        if (plain_characters(entries[i].data, entries[i].length))
            plain[n_plain++] = entries[i];
        else
            entries[n_rest++] = entries[i];
    }
    SOL_TRY(build_part(&t->plain, plain, n_plain));
    SOL_TRY(build_part(&t->rest, entries, n_rest));
    return make_masks(t, plain, n_plain);
}

enum sol_status token_trie_create(const struct tokenizer *tokenizer, int64_t vocab,
                                  struct token_trie **out)
{
    *out = NULL;
    int32_t count = tokenizer_vocab(tokenizer);
    if (vocab < count) vocab = count;
    struct token_trie *t = calloc(1, sizeof *t);
    struct entry *entries = malloc((size_t)(count + 1) * sizeof *entries);
    struct entry *plain = malloc((size_t)(count + 1) * sizeof *plain);
    enum sol_status status = SOL_E_MEMORY;
    if (t && entries && plain) {
        t->tokenizer = tokenizer;
        t->vocab = (size_t)vocab;
        t->words = (t->vocab + 31) / 32;
        status = build(t, entries, plain);
    } else {
        status_set(SOL_E_MEMORY, "no memory for a vocabulary");
    }
    free(entries);
    free(plain);
    if (status == SOL_OK)
        *out = t;
    else
        token_trie_destroy(t);
    return status;
}

void token_trie_destroy(struct token_trie *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_masks; i++) free(t->masks[i].bits);
    free(t->masks);
    free(t->plain.nodes);
    free(t->rest.nodes);
    free(t->twins);
    free(t);
}

size_t token_trie_words(const struct token_trie *t)
{
    return t->words;
}

size_t token_trie_memory(const struct token_trie *t)
{
    return sizeof *t + (t->plain.count + t->rest.count) * sizeof(struct trie_node) +
           t->n_masks * t->words * sizeof(uint32_t);
}

struct token_bytes token_trie_bytes(const struct token_trie *t, int32_t id)
{
    if (tokenizer_is_control(t->tokenizer, id) || tokenizer_is_stop(t->tokenizer, id))
        return (struct token_bytes){"", 0};
    return tokenizer_bytes(t->tokenizer, id);
}
