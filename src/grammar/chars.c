#include "grammar/chars.h"

#include <stdlib.h>
#include <string.h>

void chars_free(struct char_set *set)
{
    free(set->ranges);
    *set = (struct char_set){0};
}

void chars_add(struct char_set *set, uint32_t lo, uint32_t hi)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 8;
        struct char_range *grown = realloc(set->ranges, capacity * sizeof *grown);
        if (!grown) {
            set->no_memory = true;
            return;
        }
        set->ranges = grown;
        set->capacity = capacity;
    }
    set->ranges[set->count++] = (struct char_range){lo, hi};
}

static int compare_ranges(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static void merge(struct char_set *set)
{
    size_t n = 0;
    if (set->count) qsort(set->ranges, set->count, sizeof *set->ranges, compare_ranges);
    for (size_t i = 0; i < set->count; i++) {
        struct char_range r = set->ranges[i];
        if (n && r.lo <= set->ranges[n - 1].hi + 1) {
            if (r.hi > set->ranges[n - 1].hi) set->ranges[n - 1].hi = r.hi;
        } else {
            set->ranges[n++] = r;
        }
    }
    set->count = n;
}

/* What is left of merged ranges without lo..hi. */
static void remove_range(struct char_set *set, uint32_t lo, uint32_t hi)
{
    size_t n = set->count;
    for (size_t i = 0; i < n; i++) {
        struct char_range r = set->ranges[i];
        if (r.hi < lo || r.lo > hi) continue;
        if (r.lo < lo && r.hi > hi) {
            set->ranges[i].hi = lo - 1;
            chars_add(set, hi + 1, r.hi);
        } else if (r.lo < lo) {
            set->ranges[i].hi = lo - 1;
        } else if (r.hi > hi) {
            set->ranges[i].lo = hi + 1;
        } else {
            set->ranges[i] = set->ranges[--n];
            set->ranges[n] = set->ranges[--set->count];
            i--;
        }
    }
    merge(set);
}

void chars_settle(struct char_set *set)
{
    merge(set);
    remove_range(set, 0xd800, 0xdfff);
}

void chars_negate(struct char_set *set)
{
    struct char_set inverse = {.no_memory = set->no_memory};
    uint32_t from = 0;
    merge(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].lo > from) chars_add(&inverse, from, set->ranges[i].lo - 1);
        from = set->ranges[i].hi + 1;
    }
    if (from <= CHARS_LAST) chars_add(&inverse, from, CHARS_LAST);
    chars_free(set);
    *set = inverse;
    chars_settle(set);
}

/* ---- UTF-8 ---- */

static int encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

static bool all(const uint8_t *bytes, int n, uint8_t value)
{
    for (int i = 0; i < n; i++)
        if (bytes[i] != value) return false;
    return true;
}

static uint32_t continuations(struct nfa *nfa, int n, uint32_t next)
{
    for (int i = 0; i < n; i++) next = nfa_range(nfa, 0x80, 0xbf, next);
    return next;
}

/* Characters of n bytes, lo..hi in the order of bytes. At most n deep. */
static uint32_t byte_range(struct nfa *nfa, const uint8_t *lo, const uint8_t *hi, int n,
                           uint32_t next)
{
    static const uint8_t lowest[] = {0x80, 0x80, 0x80}, highest[] = {0xbf, 0xbf, 0xbf};
    if (n == 1) return nfa_range(nfa, lo[0], hi[0], next);
    if (lo[0] == hi[0])
        return nfa_range(nfa, lo[0], lo[0], byte_range(nfa, lo + 1, hi + 1, n - 1, next));
    int first = lo[0], last = hi[0];
    bool low_part = !all(lo + 1, n - 1, 0x80), high_part = !all(hi + 1, n - 1, 0xbf);
    uint32_t state = 0, part;
    bool any = false;
    if (first + low_part <= last - high_part) {
        state = nfa_range(nfa, (uint8_t)(first + low_part), (uint8_t)(last - high_part),
                          continuations(nfa, n - 1, next));
        any = true;
    }
    if (low_part) {
        part = nfa_range(nfa, lo[0], lo[0], byte_range(nfa, lo + 1, highest, n - 1, next));
        state = any ? nfa_split(nfa, state, part) : part;
        any = true;
    }
    if (high_part) {
        part = nfa_range(nfa, hi[0], hi[0], byte_range(nfa, lowest, hi + 1, n - 1, next));
        state = any ? nfa_split(nfa, state, part) : part;
    }
    return state;
}

/* One of both, where the first may be missing (`any` says so, and is set). */
static uint32_t join(struct nfa *nfa, bool *any, uint32_t so_far, uint32_t more)
{
    uint32_t state = *any ? nfa_split(nfa, so_far, more) : more;
    *any = true;
    return state;
}

/* lo..hi as UTF-8, where nothing needs an escape. */
static uint32_t plain_range(struct nfa *nfa, uint32_t lo, uint32_t hi, uint32_t next)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xffff, CHARS_LAST};
    uint32_t state = 0;
    bool any = false;
    for (int i = 0; i < 4 && lo <= hi; i++) {
        if (lo > ends[i]) continue;
        uint8_t from[4], to[4];
        encode(lo, from);
        int n = encode(hi < ends[i] ? hi : ends[i], to);
        state = join(nfa, &any, state, byte_range(nfa, from, to, n, next));
        lo = ends[i] + 1;
    }
    return state;
}

/* ---- escapes ---- */

static uint32_t hex_digit(struct nfa *nfa, uint32_t value, uint32_t next)
{
    uint8_t digit = (uint8_t)(value < 10 ? '0' + value : 'a' + value - 10);
    uint32_t state = nfa_range(nfa, digit, digit, next);
    if (value < 10) return state;
    digit = (uint8_t)('A' + value - 10);
    return nfa_split(nfa, state, nfa_range(nfa, digit, digit, next));
}

/* A quote, a backslash or a control character. */
static uint32_t escaped(struct nfa *nfa, uint32_t c, uint32_t next)
{
    static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    if (letters[c])
        next = nfa_bytes(nfa, &letters[c], 1, next);
    else
        next = nfa_bytes(nfa, "u00", 3, hex_digit(nfa, c >> 4, hex_digit(nfa, c & 15, next)));
    return nfa_bytes(nfa, "\\", 1, next);
}

static bool needs_escape(uint32_t c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

uint32_t chars_spelled(struct nfa *nfa, const struct char_set *set, uint32_t next)
{
    uint32_t state = 0;
    bool any = false;
    for (size_t i = 0; i < set->count; i++) {
        struct char_range r = set->ranges[i];
        for (uint32_t c = r.lo; c <= r.hi && c <= '\\'; c++)
            if (needs_escape(c)) state = join(nfa, &any, state, escaped(nfa, c, next));
        /* The pieces between those. */
        static const struct char_range plain[] = {
            {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, CHARS_LAST}};
        for (int p = 0; p < 3; p++) {
            uint32_t lo = r.lo > plain[p].lo ? r.lo : plain[p].lo;
            uint32_t hi = r.hi < plain[p].hi ? r.hi : plain[p].hi;
            if (lo <= hi) state = join(nfa, &any, state, plain_range(nfa, lo, hi, next));
        }
    }
    if (any) return state;
    /* A split to itself leads nowhere. */
    state = nfa_split(nfa, 0, 0);
    nfa_set_split(nfa, state, state, state);
    return state;
}

static uint32_t one_of(struct nfa *nfa, const char *bytes, uint32_t next)
{
    uint32_t state = nfa_range(nfa, (uint8_t)bytes[0], (uint8_t)bytes[0], next);
    for (size_t i = 1; bytes[i]; i++)
        state = nfa_split(nfa, state, nfa_range(nfa, (uint8_t)bytes[i], (uint8_t)bytes[i], next));
    return state;
}

static uint32_t hex_digits(struct nfa *nfa, int n, uint32_t next)
{
    for (int i = 0; i < n; i++) next = one_of(nfa, "0123456789abcdefABCDEF", next);
    return next;
}

uint32_t chars_any(struct nfa *nfa, uint32_t next)
{
    struct char_range all_plain[] = {
        {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xd7ff}, {0xe000, CHARS_LAST}};
    uint32_t low_half = nfa_bytes(
        nfa, "\\u", 2, one_of(nfa, "dD", one_of(nfa, "cdefCDEF", hex_digits(nfa, 2, next))));
    uint32_t number = one_of(nfa, "0123456789abcefABCEF", hex_digits(nfa, 3, next));
    uint32_t below = one_of(nfa, "01234567", hex_digits(nfa, 2, next));
    uint32_t high_half = one_of(nfa, "89abAB", hex_digits(nfa, 2, low_half));
    number = nfa_split(nfa, number, one_of(nfa, "dD", nfa_split(nfa, below, high_half)));
    uint32_t escape =
        nfa_split(nfa, one_of(nfa, "\"\\/bfnrt", next), nfa_bytes(nfa, "u", 1, number));
    uint32_t state = nfa_bytes(nfa, "\\", 1, escape);
    for (int i = 0; i < 4; i++)
        state = nfa_split(nfa, state, plain_range(nfa, all_plain[i].lo, all_plain[i].hi, next));
    return state;
}
