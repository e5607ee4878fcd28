/* Three forms are tried, the best that fits first: the name itself; the plain one, without what
 * says little; the plain one cut. Those that became equal are a group and are made anew from what
 * differs in it. A set has some dozens of names, so groups are found by sorting. */
#include "base/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"

struct entry {
    const char *name; /* whole */
    char *plain;      /* without what says little */
    char *shown;
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for short names");
}

/* ---- characters: bytes that do not continue a UTF-8 sequence ---- */

static bool begins(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

static size_t width_of(const char *text, size_t length)
{
    size_t width = 0;
    for (size_t i = 0; i < length; i++) width += begins(text[i]);
    return width;
}

/* Bytes of the first `width` characters. */
static size_t head_bytes(const char *text, size_t length, size_t width)
{
    size_t at = 0;
    while (at < length && (width > 0 || !begins(text[at]))) width -= begins(text[at++]);
    return at;
}

/* Bytes of the last ones. */
static size_t tail_bytes(const char *text, size_t length, size_t width)
{
    size_t at = length;
    while (at > 0 && width > 0) width -= begins(text[--at]);
    return length - at;
}

/* ---- the plain form ---- */

/* Where the list of arguments begins that ends the name; its length where there is none. */
static size_t arguments_at(const char *text)
{
    size_t length = strlen(text), at = length;
    int depth = 0;
    if (length == 0 || text[length - 1] != ')') return length;
    while (at > 0) {
        char c = text[--at];
        depth += (c == ')') - (c == '(');
        if (depth == 0) break;
    }
    return depth == 0 && at > 0 ? at : length;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || !isascii((unsigned char)c);
}

/* "a::b::kernel" becomes "kernel", also within template arguments. */
static char *plain_form(const char *name)
{
    static const char hidden[] = "(anonymous namespace)";
    if (strncmp(name, "void ", 5) == 0) name += 5;
    size_t end = arguments_at(name), n = 0, word = 0;
    char *plain = malloc(end + 1);
    if (!plain) return NULL;
    for (size_t i = 0; i < end;) {
        if (strncmp(name + i, hidden, sizeof hidden - 1) == 0) {
            i += sizeof hidden - 1;
        } else if (strncmp(name + i, "::", 2) == 0 &&
                   !(n == word && n && strchr(">)}", plain[n - 1]))) {
            n = word; /* what was before is a namespace; behind template arguments it is a class */
            i += 2;
        } else {
            if (!in_word(name[i])) word = n + 1;
            plain[n++] = name[i++];
        }
    }
    plain[n] = '\0';
    return plain;
}

/* ---- cutting ---- */

/* The middle goes; where there are template arguments, the end. */
static char *cut(const char *text, size_t width)
{
    size_t length = strlen(text);
    if (width_of(text, length) <= width) return strdup(text);
    size_t tail = strchr(text, '<') ? 0 : (width - 2) / 2;
    size_t first = head_bytes(text, length, width - 2 - tail);
    size_t last = tail_bytes(text, length, tail);
    char *out = NULL;
    if (asprintf(&out, "%.*s..%s", (int)first, text, text + length - last) < 0) return NULL;
    return out;
}

/* How much all have in common at the start and, behind that, at the end; words stay whole. */
static void common_parts(const struct entry *group, size_t n, bool plain, size_t *head,
                         size_t *tail)
{
    const char *first = plain ? group[0].plain : group[0].name;
    size_t length = strlen(first), least = length;
    *head = *tail = length;
    for (size_t i = 1; i < n; i++) {
        const char *text = plain ? group[i].plain : group[i].name;
        size_t own = strlen(text), same = 0;
        if (own < least) least = own;
        while (same < *head && first[same] == text[same]) same++;
        *head = same;
        for (same = 0;
             same < *tail && same < own && first[length - 1 - same] == text[own - 1 - same];)
            same++;
        *tail = same;
    }
    while (*head > 0 && in_word(first[*head - 1])) --*head;
    if (*tail > least - *head) *tail = least - *head;
    while (*tail > 0 && in_word(first[length - *tail])) --*tail;
}

/* The start, and what differs. */
static char *different(const char *text, size_t head, size_t tail, size_t width)
{
    size_t length = strlen(text);
    size_t middle = length - head - tail, own = width_of(text + head, middle);
    size_t dots = 2 + 2 * (tail > 0);
    if (own + dots >= width) return cut(text, width);
    size_t first = head_bytes(text, head, width - own - dots);
    char *out = NULL;
    if (first == head) dots -= 2;
    if (asprintf(&out, "%.*s%s%.*s%s", (int)first, text, first < head ? ".." : "", (int)middle,
                 text + head, tail ? ".." : "") < 0)
        return NULL;
    return out;
}

/* Digits that depend on the whole name end it. */
static char *numbered(const char *name, const char *plain, size_t width, size_t digits)
{
    uint64_t hash = bytes_hash(name, strlen(name));
    char number[24], *out = NULL;
    snprintf(number, sizeof number, "%016llx", (unsigned long long)hash);
    size_t length = strlen(plain), first = head_bytes(plain, length, width - digits - 1);
    if (asprintf(&out, "%.*s~%.*s", (int)first, plain, (int)digits, number) < 0) return NULL;
    return out;
}

/* ---- groups ---- */

static int by_shown(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(x->shown, y->shown);
    return order ? order : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* The end of those that are shown alike from `at` on; *names: they have several names. */
static size_t group_end(const struct entry *entries, size_t n, size_t at, bool *names)
{
    size_t end = at + 1;
    *names = false;
    for (; end < n && strcmp(entries[end].shown, entries[at].shown) == 0; end++)
        *names = *names || strcmp(entries[end].name, entries[at].name) != 0;
    return end;
}

static enum sol_status replace(struct entry *e, char *shown)
{
    if (!shown) return no_memory();
    free(e->shown);
    e->shown = shown;
    return SOL_OK;
}

/* Makes each group anew: with digits 0 from what differs, else numbered. *equal: there was one. */
static enum sol_status tell_apart(struct entry *entries, size_t n, size_t width, size_t digits,
                                  bool *equal)
{
    *equal = false;
    qsort(entries, n, sizeof *entries, by_shown);
    for (size_t at = 0, end; at < n; at = end) {
        bool names;
        size_t head = 0, tail = 0;
        end = group_end(entries, n, at, &names);
        if (!names) continue;
        *equal = true;
        bool plain = true;
        for (size_t i = at; i + 1 < end; i++)
            plain = plain && (strcmp(entries[i].name, entries[i + 1].name) == 0 ||
                              strcmp(entries[i].plain, entries[i + 1].plain) != 0);
        if (!digits) common_parts(entries + at, end - at, plain, &head, &tail);
        for (size_t i = at; i < end; i++) {
            struct entry *e = &entries[i];
            SOL_TRY(replace(e, digits ? numbered(e->name, e->plain, width, digits)
                                      : different(plain ? e->plain : e->name, head, tail, width)));
        }
    }
    return SOL_OK;
}

static enum sol_status shorten(struct entry *entries, size_t n, size_t width)
{
    bool equal = true;
    for (size_t i = 0; i < n; i++) {
        struct entry *e = &entries[i];
        e->plain = plain_form(e->name);
        if (!e->plain) return no_memory();
        bool fits = width_of(e->name, strlen(e->name)) <= width;
        SOL_TRY(replace(e, fits ? strdup(e->name) : cut(*e->plain ? e->plain : e->name, width)));
    }
    SOL_TRY(tell_apart(entries, n, width, 0, &equal));
    for (size_t digits = 4; equal && digits < NAMES_WIDTH_MIN; digits += 5)
        SOL_TRY(tell_apart(entries, n, width, digits, &equal));
    return SOL_OK;
}

/* Equal names are one entry, so that a set of a million rows costs what its names cost. */
static size_t unite(struct entry *entries, size_t n)
{
    size_t count = 0;
    qsort(entries, n, sizeof *entries, by_name);
    for (size_t i = 0; i < n; i++)
        if (count == 0 || strcmp(entries[count - 1].name, entries[i].name) != 0)
            entries[count++] = entries[i];
    return count;
}

static enum sol_status give(struct entry *entries, size_t count, const char *const *names, size_t n,
                            char **out)
{
    qsort(entries, count, sizeof *entries, by_name);
    for (size_t i = 0; i < n; i++) {
        const struct entry key = {.name = names[i]};
        const struct entry *e = bsearch(&key, entries, count, sizeof *entries, by_name);
        out[i] = strdup(e->shown);
        if (!out[i]) return no_memory();
    }
    return SOL_OK;
}

enum sol_status names_shorten(const char *const *names, size_t n, size_t width, char **out)
{
    struct entry *entries = calloc(n + 1, sizeof *entries);
    for (size_t i = 0; i < n; i++) out[i] = NULL;
    if (!entries) return no_memory();
    if (width < NAMES_WIDTH_MIN) width = NAMES_WIDTH_MIN;
    for (size_t i = 0; i < n; i++) entries[i].name = names[i];
    size_t count = unite(entries, n);
    enum sol_status status = shorten(entries, count, width);
    if (status == SOL_OK) status = give(entries, count, names, n, out);
    for (size_t i = 0; i < count; i++) {
        free(entries[i].plain);
        free(entries[i].shown);
    }
    free(entries);
    for (size_t i = 0; status != SOL_OK && i < n; i++) {
        free(out[i]);
        out[i] = NULL;
    }
    return status;
}
