/* A hand-written matcher for one pattern. In its words, with U = upper, L = lower, X = letters
 * without case and marks:
 *
 *   word   P? [UX]* [LX]+ suffix?    else    P? [UX]+ [LX]* suffix?
 *
 * Both alternatives first run over [UX]*. If a lower-case letter follows, [LX]+ takes over there.
 * If none does, backtracking gives characters back until one is in X: it becomes the whole of
 * [LX]+, since what follows it is upper case or ends the word. Without any X the second alternative
 * takes the run as it is. So one pass that remembers the end of the last X decides both, and where
 * the match is shorter than the pass (an X followed by upper case), the rest holds no X and is
 * taken whole by the next call. That is why the walk is linear.
 *
 * P may be a mark (a mark is neither letter nor number). When the word fails with P taken, it is
 * tried again without, alternative by alternative; only a mark can then still begin a word.
 *
 * \s*[\r\n]+ backtracks to the last line end of the run of white space, \s+(?!\S) leaves the last
 * space to the word that follows. */
#include "tok/pretokenize.h"

#include <stdbool.h>

#include "tok/unicode_tables.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const char pretokenize_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" CONTRACTION
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct scan {
    const char *text;
    size_t length;
    bool at_end; /* something was asked about what lies beyond `length` */
};

struct character {
    enum unicode_class class;
    int size;   /* bytes; 0 at the end of the text and at bytes that are no UTF-8 */
    char ascii; /* the character, 0 when it is not ASCII */
};

int utf8_decode(const char *text, size_t length, uint32_t *code)
{
    /* Lead byte -> size; the smallest code of each size rules out overlong forms. */
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (length == 0) return 0;
    unsigned char lead = (unsigned char)text[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    int size = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 0;
    if (lead >= 0xf0 && lead <= 0xf4) size = 4;
    if (size == 0) return -1;
    uint32_t value = lead & (0x7fu >> size);
    for (int i = 1; i < size; i++) {
        if ((size_t)i == length) return 0;
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80) return -1;
        value = value << 6 | (next & 0x3f);
        /* The second byte already tells overlong forms, surrogates and codes beyond the last. */
        if (i > 1) continue;
        int shift = 6 * (size - 2);
        if (value < smallest[size] >> shift || value > 0x10ffffu >> shift) return -1;
        if (size == 3 && value >= 0xd800u >> shift && value <= 0xdfffu >> shift) return -1;
    }
    *code = value;
    return size;
}

static inline struct character at(struct scan *scan, size_t pos)
{
    struct character c = {UNICODE_OTHER, 0, 0};
    if (pos >= scan->length) {
        scan->at_end = true;
        return c;
    }
    unsigned char lead = (unsigned char)scan->text[pos];
    if (lead < 0x80) { /* most text: no decoding, and row 0 of the table is ASCII */
        c.class = (enum unicode_class)unicode_stage2[0][lead];
        c.size = 1;
        c.ascii = (char)lead;
        return c;
    }
    uint32_t code;
    int size = utf8_decode(scan->text + pos, scan->length - pos, &code);
    if (size <= 0) {
        if (size == 0) scan->at_end = true;
        return c;
    }
    c.class = unicode_class_of(code);
    c.size = size;
    return c;
}

static inline bool is_line_end(struct character c)
{
    return c.ascii == '\n' || c.ascii == '\r';
}

static inline bool is_letter(enum unicode_class class)
{
    return class == UNICODE_UPPER || class == UNICODE_LOWER || class == UNICODE_LETTER;
}

/* [UX] and [LX] of the comment above. */
static inline bool in_head(struct character c)
{
    return c.size &&
           (c.class == UNICODE_UPPER || c.class == UNICODE_LETTER || c.class == UNICODE_MARK);
}

static inline bool in_tail(struct character c)
{
    return c.size &&
           (c.class == UNICODE_LOWER || c.class == UNICODE_LETTER || c.class == UNICODE_MARK);
}

/* Length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `pos`, or 0. The long s is a case of s. */
static size_t contraction(struct scan *scan, size_t pos)
{
    const char *p = scan->text + pos;
    size_t left = scan->length - pos;
    if (left == 0 || p[0] != '\'') return 0;
    if (left < 3) scan->at_end = true;
    if (left < 2) return 0;
    if (left >= 3 && p[1] == '\xc5' && p[2] == '\xbf') return 3;
    char first = (char)(p[1] | 0x20), second = left >= 3 ? (char)(p[2] | 0x20) : 0;
    switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return second == 'e' ? 3 : 0;
    case 'l':
        return second == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* The end of a word whose [UX] begins at `pos`, 0 if there is none. The first alternative, or where
 * it fails the second one; *second says which. */
static size_t word_end(struct scan *scan, size_t pos, bool *second)
{
    size_t end = pos, last_both = 0; /* the end of the last character in X */
    struct character c = at(scan, end);
    for (; in_head(c); c = at(scan, end)) {
        end += (size_t)c.size;
        if (c.class != UNICODE_UPPER) last_both = end;
    }
    *second = false;
    if (in_tail(c)) {
        for (; in_tail(c); c = at(scan, end)) end += (size_t)c.size;
    } else if (last_both) {
        end = last_both;
    } else if (end > pos) {
        *second = true;
    } else {
        return 0;
    }
    return end + contraction(scan, end);
}

/* The two word alternatives at the start of the text; 0 if neither matches. */
static size_t match_word(struct scan *scan, struct character first)
{
    bool second;
    if (is_letter(first.class)) return word_end(scan, 0, &second); /* P cannot be a letter */
    if (first.class == UNICODE_NUMBER || is_line_end(first)) return 0;
    size_t end = word_end(scan, (size_t)first.size, &second);
    /* A mark in the place of P: the first alternative without P comes before the second one with P.
     * It always matches, since the mark itself is in X. */
    if (first.class == UNICODE_MARK && (end == 0 || second)) return word_end(scan, 0, &second);
    return end;
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n/]*`; 0 if it does not match. */
static size_t match_punctuation(struct scan *scan, struct character first)
{
    size_t begin = first.ascii == ' ' ? 1 : 0, end = begin;
    struct character c = at(scan, end);
    while (c.size && (c.class == UNICODE_OTHER || c.class == UNICODE_MARK)) {
        end += (size_t)c.size;
        c = at(scan, end);
    }
    if (end == begin) return 0;
    while (end < scan->length &&
           (scan->text[end] == '\r' || scan->text[end] == '\n' || scan->text[end] == '/'))
        end++;
    if (end == scan->length) scan->at_end = true;
    return end;
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+` where the first character is white space. */
static size_t match_space(struct scan *scan)
{
    size_t end = 0, last_begin = 0, last_line_end = 0;
    struct character c = at(scan, 0);
    for (; c.size && c.class == UNICODE_SPACE; c = at(scan, end)) {
        last_begin = end;
        end += (size_t)c.size;
        if (is_line_end(c)) last_line_end = end;
    }
    if (last_line_end) return last_line_end;
    if (c.size == 0 || last_begin == 0) return end;
    return last_begin;
}

static size_t match_number(struct scan *scan)
{
    size_t end = 0;
    for (int i = 0; i < 3; i++) {
        struct character c = at(scan, end);
        if (c.size == 0 || c.class != UNICODE_NUMBER) break;
        end += (size_t)c.size;
    }
    return end;
}

static size_t next_piece(struct scan *scan)
{
    struct character first = at(scan, 0);
    if (first.size == 0) return 1; /* no UTF-8 */
    size_t end = match_word(scan, first);
    if (end) return end;
    if (first.class == UNICODE_NUMBER) return match_number(scan);
    end = match_punctuation(scan, first);
    if (end) return end;
    return match_space(scan);
}

size_t pretokenize_next(const char *text, size_t length)
{
    struct scan scan = {text, length, false};
    return next_piece(&scan);
}

size_t pretokenize_next_part(const char *text, size_t length)
{
    struct scan scan = {text, length, false};
    size_t end = next_piece(&scan);
    return scan.at_end ? 0 : end;
}
