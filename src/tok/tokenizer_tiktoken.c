/* .tiktoken: one line per token, its bytes in base64 and its rank, which is its id. Two tokens
 * merge whenever what they make is one, the lowest rank first; so the merges are all ways to cut a
 * token into two. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tok/special_sets.h"
#include "tok/tokenizer_private.h"

struct tiktoken_loader {
    struct token_builder b;
    const char *data;
    size_t size;
    size_t ranks; /* lines */
    struct merge {
        int32_t left, right, merged;
    } * merges;
    size_t n_merges, capacity;
};

/* ---- lines ---- */

/* Value of a base64 digit, -1 for another character. */
static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes padded base64; `out` has room for 3 bytes per 4 digits. Returns the number of bytes, or
 * -1, also for bits that are set behind the last byte. */
static int64_t base64_decode(const char *text, size_t length, char *out)
{
    size_t n = 0;
    if (length == 0 || length % 4 != 0) return -1;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t value = 0;
        int pads = 0;
        for (size_t j = i; j < i + 4; j++) {
            int digit = digit_value(text[j]);
            if (text[j] == '=' && j >= length - 2 && j >= i + 2)
                pads++, digit = 0;
            else if (pads)
                return -1;
            if (digit < 0) return -1;
            value = value << 6 | (uint32_t)digit;
        }
        if (value & ((1u << 8 * pads) - 1)) return -1;
        for (int k = 0; k < 3 - pads; k++) out[n++] = (char)(value >> (16 - 8 * k));
    }
    return (int64_t)n;
}

/* One line without its end; *next is where the following one begins. */
static size_t line_length(const struct tiktoken_loader *l, size_t at, size_t *next)
{
    const char *end = memchr(l->data + at, '\n', l->size - at);
    size_t length = end ? (size_t)(end - l->data) - at : l->size - at;
    *next = at + length + (end != NULL);
    if (length && l->data[at + length - 1] == '\r') length--;
    return length;
}

/* The line of rank `l->ranks`: its base64, whose length is returned in *digits. */
static enum sol_status check_line(const struct tiktoken_loader *l, const char *line, size_t length,
                                  size_t *digits)
{
    size_t number = l->ranks + 1, rank = 0;
    const char *space = memchr(line, ' ', length);
    *digits = space ? (size_t)(space - line) : 0;
    if (*digits == 0 || *digits + 1 == length)
        return builder_fault(&l->b, "line %zu is not a token in base64, a space and its rank",
                             number);
    if (*digits > TOKEN_MAX / 3 * 4)
        return builder_unsupported(&l->b, "line %zu: the token is longer than %d bytes", number,
                                   TOKEN_MAX);
    for (size_t i = *digits + 1; i < length; i++) {
        if (line[i] < '0' || line[i] > '9' || rank > INT32_MAX)
            return builder_fault(&l->b, "line %zu: the rank is no number", number);
        rank = 10 * rank + (size_t)(line[i] - '0');
    }
    if (rank != l->ranks)
        return builder_fault(&l->b, "line %zu has rank %zu; ranks must be 0, 1, 2, ... in order",
                             number, rank);
    return SOL_OK;
}

static enum sol_status count_lines(struct tiktoken_loader *l, size_t *total)
{
    *total = 0;
    for (size_t at = 0, next; at < l->size; at = next, l->ranks++) {
        size_t digits, length = line_length(l, at, &next);
        SOL_TRY(check_line(l, l->data + at, length, &digits));
        *total += digits / 4 * 3;
    }
    if (l->ranks == 0) return builder_fault(&l->b, "the file is empty");
    if (l->ranks >= (size_t)(INT32_MAX - special_set_span(SPECIAL_HARMONY)))
        return builder_fault(&l->b, "%zu tokens are too many", l->ranks);
    return SOL_OK;
}

/* ---- tokens ---- */

/* The special ones behind the last rank. */
static enum sol_status add_special(struct tiktoken_loader *l)
{
    const int32_t first = (int32_t)l->ranks, span = special_set_span(SPECIAL_HARMONY);
    for (int32_t offset = 0; offset < span; offset++) {
        char name[SPECIAL_NAME_MAX];
        int length = special_set_token(SPECIAL_HARMONY, first, offset, name);
        SOL_TRY(builder_add(&l->b, first + offset, TOKEN_CONTROL, name, (size_t)length));
    }
    return SOL_OK;
}

static enum sol_status load_tokens(struct tiktoken_loader *l)
{
    const size_t special = (size_t)special_set_span(SPECIAL_HARMONY);
    size_t total;
    SOL_TRY(count_lines(l, &total));
    SOL_TRY(
        builder_allocate(&l->b, l->ranks + special, total + special * SPECIAL_NAME_MAX, special));
    int32_t id = 0;
    for (size_t at = 0, next; at < l->size; at = next, id++) {
        char bytes[TOKEN_MAX];
        size_t length = line_length(l, at, &next);
        const char *space = memchr(l->data + at, ' ', length); /* there is one: check_line */
        int64_t n = space ? base64_decode(l->data + at, (size_t)(space - l->data) - at, bytes) : -1;
        if (n < 0) return builder_fault(&l->b, "line %d: the token is no base64", id + 1);
        SOL_TRY(builder_add(&l->b, id, TOKEN_NORMAL, bytes, (size_t)n));
    }
    return add_special(l);
}

/* ---- merges ---- */

static enum sol_status push_merge(struct tiktoken_loader *l, struct merge merge)
{
    SOL_TRY(array_grow(&l->merges, l->n_merges, &l->capacity, sizeof *l->merges, "merges"));
    l->merges[l->n_merges++] = merge;
    return SOL_OK;
}

static enum sol_status find_merges(struct tiktoken_loader *l)
{
    struct tokenizer *t = l->b.t;
    bool lengths[TOKEN_MAX + 1] = {false}; /* that some token has: spares looking up halves */
    for (int32_t id = 0; id < (int32_t)l->ranks; id++)
        lengths[t->offsets[id + 1] - t->offsets[id]] = true;
    for (int32_t id = 0; id < (int32_t)l->ranks; id++) {
        const char *bytes = t->bytes + t->offsets[id];
        size_t length = t->offsets[id + 1] - t->offsets[id];
        for (size_t cut = 1; cut < length; cut++) {
            if (!lengths[cut] || !lengths[length - cut]) continue;
            int32_t left = token_id_find(t, &t->normal, bytes, cut);
            if (left < 0) continue;
            int32_t right = token_id_find(t, &t->normal, bytes + cut, length - cut);
            if (right >= 0) SOL_TRY(push_merge(l, (struct merge){left, right, id}));
        }
    }
    return SOL_OK;
}

static enum sol_status load(struct tiktoken_loader *l, struct tokenizer **out)
{
    SOL_TRY(load_tokens(l));
    SOL_TRY(find_merges(l));
    SOL_TRY(builder_begin_merges(&l->b, l->n_merges));
    for (size_t i = 0; i < l->n_merges; i++)
        (void)bpe_add(l->b.t->bpe, l->merges[i].left, l->merges[i].right, l->merges[i].merged);
    builder_ignore_merges(&l->b);
    builder_finish(&l->b, (int32_t)l->ranks, -1, out);
    return SOL_OK;
}

enum sol_status tokenizer_from_tiktoken(const char *data, size_t size, const char *name,
                                        struct tokenizer **out)
{
    struct tiktoken_loader loader = {.data = data, .size = size};
    *out = NULL;
    SOL_TRY(builder_create(&loader.b, name));
    enum sol_status status = load(&loader, out);
    if (status != SOL_OK) builder_destroy(&loader.b);
    free(loader.merges);
    return status;
}
