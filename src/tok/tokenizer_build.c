/* What the loaders share: tables sized beforehand, then one pass over the tokens and one over the
 * merges. A vocabulary has 200,000 of the one and 450,000 of the other, and is loaded at every
 * start. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "tok/alphabet.h"
#include "tok/tokenizer_private.h"

enum sol_status(builder_fault)(const struct token_builder *b, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return status_set(SOL_E_FORMAT, "'%s': tokenizer: %s", b->name, text);
}

enum sol_status(builder_unsupported)(const struct token_builder *b, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return status_set(SOL_E_UNSUPPORTED, "'%s': tokenizer: %s", b->name, text);
}

enum sol_status builder_create(struct token_builder *b, const char *name)
{
    *b = (struct token_builder){name, calloc(1, sizeof *b->t), NULL};
    return b->t ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a tokenizer");
}

void builder_destroy(struct token_builder *b)
{
    tokenizer_destroy(b->t);
    free(b->buffer);
    *b = (struct token_builder){b->name, NULL, NULL};
}

static enum sol_status lookup_create(struct token_lookup *lookup, size_t entries)
{
    size_t slots = 16;
    while (slots / 2 < entries) slots *= 2; /* entries fit an int32 */
    lookup->slots = malloc(slots * sizeof *lookup->slots);
    if (!lookup->slots) return status_set(SOL_E_MEMORY, "no memory for %zu tokens", entries);
    memset(lookup->slots, 0xff, slots * sizeof *lookup->slots); /* id -1 */
    lookup->mask = slots - 1;
    return SOL_OK;
}

enum sol_status builder_allocate(struct token_builder *b, size_t count, size_t total,
                                 size_t n_special)
{
    struct tokenizer *t = b->t;
    if (total > UINT32_MAX)
        return builder_fault(b, "the tokens have %zu bytes; 2^32 - 1 at most", total);
    t->count = (int32_t)count;
    t->bytes = malloc(total + 1);
    t->offsets = malloc((count + 1) * sizeof *t->offsets);
    t->kinds = calloc(count, sizeof *t->kinds);
    t->whole = calloc(count, sizeof *t->whole);
    if (!t->bytes || !t->offsets || !t->kinds || !t->whole)
        return status_set(SOL_E_MEMORY, "no memory for a vocabulary of %zu tokens", count);
    t->offsets[0] = 0;
    SOL_TRY(lookup_create(&t->normal, count - n_special));
    return lookup_create(&t->special, n_special);
}

/* A token that is found by its name and no part of ordinary text. */
static enum sol_status note_special(struct token_builder *b, int32_t id, struct token_bytes name)
{
    struct tokenizer *t = b->t;
    if (name.length == 0 || name.length > SPECIAL_MAX)
        return builder_fault(b, "special token %d has a name of %zu bytes; 1 to %d are allowed", id,
                             name.length, SPECIAL_MAX);
    t->special_begins[(unsigned char)name.data[0]] = true;
    t->special_length[name.length] = true;
    if (name.length > t->special_longest) t->special_longest = name.length;
    return SOL_OK;
}

/* Enters token `id`, whose bytes are in place behind those of the tokens before it. */
static enum sol_status enter(struct token_builder *b, int32_t id, enum token_kind kind,
                             size_t length)
{
    struct tokenizer *t = b->t;
    const char *bytes = t->bytes + t->offsets[id];
    t->kinds[id] = (uint8_t)kind;
    t->offsets[id + 1] = t->offsets[id] + (uint32_t)length;
    bool special = token_kind_special(kind);
    if (special)
        SOL_TRY(note_special(b, id, (struct token_bytes){bytes, length}));
    else if (length == 0)
        return builder_fault(b, "token %d is empty", id);
    else if (length > t->longest)
        t->longest = length;
    uint64_t hash = bytes_hash(bytes, length);
    struct token_slot *slot =
        token_slot_find(t, special ? &t->special : &t->normal, hash, bytes, length);
    if (slot->id >= 0) return builder_fault(b, "tokens %d and %d are the same", slot->id, id);
    *slot = (struct token_slot){(uint32_t)(hash >> 32), id};
    return SOL_OK;
}

static enum sol_status add_unused(struct token_builder *b, int32_t id)
{
    b->t->kinds[id] = TOKEN_UNUSED;
    b->t->offsets[id + 1] = b->t->offsets[id]; /* no token: length 0 */
    return SOL_OK;
}

enum sol_status builder_add(struct token_builder *b, int32_t id, enum token_kind kind,
                            const char *bytes, size_t length)
{
    if (kind == TOKEN_UNUSED) return add_unused(b, id);
    if (length) memcpy(b->t->bytes + b->t->offsets[id], bytes, length);
    return enter(b, id, kind, length);
}

enum sol_status builder_add_spelled(struct token_builder *b, int32_t id, enum token_kind kind,
                                    const char *text, size_t length)
{
    if (kind == TOKEN_UNUSED || token_kind_special(kind))
        return builder_add(b, id, kind, text, length);
    int64_t n = alphabet_read(text, length, b->t->bytes + b->t->offsets[id]);
    if (n < 0)
        return builder_fault(b, "token %d has a character outside GPT-2's alphabet of bytes", id);
    return enter(b, id, kind, (size_t)n);
}

enum sol_status builder_begin_merges(struct token_builder *b, size_t n_merges)
{
    struct tokenizer *t = b->t;
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->byte_ids[byte] = token_id_find(t, &t->normal, &text, 1);
        if (t->byte_ids[byte] < 0)
            return builder_fault(b, "no token for byte 0x%02x; all 256 are needed", (unsigned)byte);
    }
    b->buffer = malloc(2 * t->longest);
    if (!b->buffer)
        return status_set(SOL_E_MEMORY, "no memory for a token of %zu bytes", t->longest);
    return bpe_create(n_merges, &t->bpe);
}

enum sol_status builder_add_merge(struct token_builder *b, uint64_t index, const char *left,
                                  size_t left_length, const char *right, size_t right_length)
{
    struct tokenizer *t = b->t;
    unsigned long long number = index;
    /* A byte is spelled with one or two. */
    if (left_length > 2 * t->longest || right_length > 2 * t->longest - left_length)
        return builder_fault(b, "merge %llu makes no token of the vocabulary", number);
    int64_t n_left = alphabet_read(left, left_length, b->buffer);
    int64_t n_right = n_left < 0 ? -1 : alphabet_read(right, right_length, b->buffer + n_left);
    if (n_right < 0)
        return builder_fault(b, "merge %llu has a character outside GPT-2's alphabet", number);
    int32_t left_id = token_id_find(t, &t->normal, b->buffer, (size_t)n_left);
    int32_t right_id = token_id_find(t, &t->normal, b->buffer + n_left, (size_t)n_right);
    if (left_id < 0 || right_id < 0)
        return builder_fault(b, "the %s half of merge %llu is no token of the vocabulary",
                             left_id < 0 ? "left" : "right", number);
    int32_t merged = token_id_find(t, &t->normal, b->buffer, (size_t)(n_left + n_right));
    if (merged < 0) return builder_fault(b, "merge %llu makes no token of the vocabulary", number);
    if (!bpe_add(t->bpe, left_id, right_id, merged))
        return builder_fault(b, "merge %llu is there twice", number);
    return SOL_OK;
}

void builder_ignore_merges(struct token_builder *b)
{
    for (int32_t id = 0; id < b->t->count; id++) b->t->whole[id] = WHOLE_YES;
}

void builder_finish(struct token_builder *b, int32_t bos, int32_t eos, struct tokenizer **out)
{
    static const char *const names[N_STOPS - 1] = {
        "<|return|>", "<|call|>", "<|endoftext|>", "<|bos|>",
        "<|assistant_end|>"}; /* the last two: nanochat's */
    struct tokenizer *t = b->t;
    t->bos = bos;
    t->stops[0] = eos;
    for (int i = 1; i < N_STOPS; i++) t->stops[i] = tokenizer_find(t, names[i - 1]);
    *out = t;
    b->t = NULL;
    builder_destroy(b);
}
