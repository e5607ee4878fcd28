/* Two walks. The first finds where the tables begin and end, by brackets and strings alone. The
 * second reads them. A document that is malformed elsewhere may mislead the first; then the second
 * or jansson, which reads the rest, refuses it. */
#include "tok/json_tables.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tok/pretokenize.h"

struct cursor {
    const char *begin, *at, *end;
};

/* ---- finding ---- */

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t'))
        c->at++;
}

static bool next_is(struct cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

/* From behind the first quote to behind the last. */
static void skip_string(struct cursor *c)
{
    while (c->at < c->end && *c->at != '"') c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    if (c->at < c->end) c->at++;
}

/* Over a value, to the comma or bracket behind it. */
static void skip_value(struct cursor *c)
{
    for (size_t depth = 0; c->at < c->end; c->at++) {
        char here = *c->at;
        if (here == '"') {
            c->at++;
            skip_string(c);
            c->at--;
        } else if (here == '{' || here == '[') {
            depth++;
        } else if (here == '}' || here == ']') {
            if (depth-- == 0) return;
        } else if (here == ',' && depth == 0) {
            return;
        }
    }
}

/* Moves from the brace of an object to the value of `name`; false when there is none. */
static bool find_member(struct cursor *c, const char *name)
{
    if (!next_is(c, '{')) return false;
    while (next_is(c, '"')) {
        const char *key = c->at;
        skip_string(c);
        size_t length = (size_t)(c->at - key);
        if (!next_is(c, ':')) return false;
        skip_blanks(c);
        /* The length counts the quote. Escapes in a key: not found here, so it stays. */
        if (length == strlen(name) + 1 && memcmp(key, name, length - 1) == 0) return true;
        skip_value(c);
        if (!next_is(c, ',')) return false;
    }
    return false;
}

/* The value of model.`name` when it begins with `bracket`; empty otherwise. */
static struct cursor find_table(const char *data, size_t size, const char *name, char bracket)
{
    struct cursor c = {data, data, data + size};
    if (!find_member(&c, "model") || !find_member(&c, name) || c.at == c.end || *c.at != bracket)
        return (struct cursor){data, data, data};
    const char *from = c.at;
    skip_value(&c);
    while (c.at > from && strchr(" \n\r\t", c.at[-1])) c.at--;
    return (struct cursor){data, from, c.at};
}

/* ---- reading ---- */

struct reader {
    struct cursor c;
    char *out; /* where the next string goes: never more bytes than it is written with */
};

static enum sol_status fault(const struct reader *r, const char *what)
{
    size_t line = 1;
    for (const char *p = r->c.begin; p < r->c.at; p++) line += *p == '\n';
    return status_set(SOL_E_FORMAT, "line %zu: %s", line, what);
}

/* Four digits; -1 when they are not. */
static int32_t read_hex(struct cursor *c)
{
    int32_t value = 0;
    if (c->end - c->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char d = *c->at++;
        int digit = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' ? (d | 32) - 'a' + 10 : 16;
        if (digit > 15) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* \u0041, or two of them for a code beyond 0xffff. */
static enum sol_status read_unicode(struct reader *r)
{
    int32_t code = read_hex(&r->c);
    if (code >= 0xd800 && code <= 0xdbff) {
        bool second = r->c.end - r->c.at >= 2 && r->c.at[0] == '\\' && r->c.at[1] == 'u';
        if (second) r->c.at += 2;
        int32_t low = second ? read_hex(&r->c) : -1;
        code =
            low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((code - 0xd800) << 10) + low - 0xdc00 : -1;
    }
    if (code <= 0 || (code >= 0xd800 && code <= 0xdfff))
        return fault(r, code ? "a \\u escape that is no character" : "\\u0000 is not accepted");
    uint32_t u = (uint32_t)code;
    if (u < 0x80) {
        *r->out++ = (char)u;
    } else if (u < 0x800) {
        *r->out++ = (char)(0xc0 | u >> 6);
    } else if (u < 0x10000) {
        *r->out++ = (char)(0xe0 | u >> 12);
        *r->out++ = (char)(0x80 | (u >> 6 & 0x3f));
    } else {
        *r->out++ = (char)(0xf0 | u >> 18);
        *r->out++ = (char)(0x80 | (u >> 12 & 0x3f));
        *r->out++ = (char)(0x80 | (u >> 6 & 0x3f));
    }
    if (u >= 0x80) *r->out++ = (char)(0x80 | (u & 0x3f));
    return SOL_OK;
}

static enum sol_status read_escape(struct reader *r)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char name = r->c.at < r->c.end ? *r->c.at++ : '\0';
    if (name == 'u') return read_unicode(r);
    const char *found = name ? strchr(names, name) : NULL;
    if (!found) return fault(r, "an unknown escape in a string");
    *r->out++ = values[found - names];
    return SOL_OK;
}

/* A string with its quotes. */
static enum sol_status read_string(struct reader *r, const char **text, uint32_t *length)
{
    struct cursor *c = &r->c;
    *text = r->out;
    *length = 0;
    if (!next_is(c, '"')) return fault(r, "a string is missing");
    while (c->at < c->end && *c->at != '"') {
        unsigned char byte = (unsigned char)*c->at;
        uint32_t code;
        if (byte == '\\') {
            c->at++;
            SOL_TRY(read_escape(r));
            continue;
        }
        if (byte < 0x20) return fault(r, "a control character in a string");
        int size = byte < 0x80 ? 1 : utf8_decode(c->at, (size_t)(c->end - c->at), &code);
        if (size <= 0) return fault(r, "a string is no UTF-8");
        for (int i = 0; i < size; i++) *r->out++ = *c->at++;
    }
    if (c->at == c->end) return fault(r, "a string does not end");
    if (r->out - *text > INT32_MAX) return fault(r, "a string is too long");
    *length = (uint32_t)(r->out - *text);
    c->at++;
    *r->out++ = '\0'; /* there is room: the quotes */
    return SOL_OK;
}

static enum sol_status read_integer(struct reader *r, int64_t *value)
{
    struct cursor *c = &r->c;
    skip_blanks(c);
    bool negative = c->at < c->end && *c->at == '-';
    if (negative) c->at++;
    const char *first = c->at;
    *value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (c->at - first > 17) return fault(r, "an id is too large");
        *value = 10 * *value + (*c->at - '0');
    }
    if (c->at == first || (*first == '0' && c->at > first + 1))
        return fault(r, "an id is no integer");
    if (negative) *value = -*value;
    return SOL_OK;
}

/* Behind an entry: true and on to the next one, false at the end of the table. */
static enum sol_status read_separator(struct reader *r, char bracket, bool *more)
{
    *more = next_is(&r->c, ',');
    if (*more || next_is(&r->c, bracket)) return SOL_OK;
    return fault(r, "a comma or bracket is missing behind an entry");
}

static enum sol_status read_vocab(struct reader *r, struct json_tables *t)
{
    size_t capacity = 0;
    bool more = next_is(&r->c, '{') && !next_is(&r->c, '}');
    while (more) {
        SOL_TRY(array_grow(&t->tokens, t->n_tokens, &capacity, sizeof *t->tokens, "entries"));
        struct json_token *token = &t->tokens[t->n_tokens++];
        SOL_TRY(read_string(r, &token->text, &token->length));
        if (!next_is(&r->c, ':')) return fault(r, "a colon is missing in vocab");
        SOL_TRY(read_integer(r, &token->id));
        SOL_TRY(read_separator(r, '}', &more));
    }
    return r->c.at == r->c.end ? SOL_OK : fault(r, "vocab does not end where it should");
}

static enum sol_status read_merge(struct reader *r, struct json_merge *merge)
{
    *merge = (struct json_merge){0};
    if (!next_is(&r->c, '[')) return read_string(r, &merge->left, &merge->left_length);
    SOL_TRY(read_string(r, &merge->left, &merge->left_length));
    if (!next_is(&r->c, ',')) return fault(r, "a merge has one half");
    SOL_TRY(read_string(r, &merge->right, &merge->right_length));
    return next_is(&r->c, ']') ? SOL_OK : fault(r, "a merge is not two strings");
}

static enum sol_status read_merges(struct reader *r, struct json_tables *t)
{
    size_t capacity = 0;
    bool more = next_is(&r->c, '[') && !next_is(&r->c, ']');
    while (more) {
        SOL_TRY(array_grow(&t->merges, t->n_merges, &capacity, sizeof *t->merges, "entries"));
        SOL_TRY(read_merge(r, &t->merges[t->n_merges++]));
        SOL_TRY(read_separator(r, ']', &more));
    }
    return r->c.at == r->c.end ? SOL_OK : fault(r, "merges do not end where they should");
}

/* ---- both ---- */

static void append(struct json_tables *t, const char *from, const char *to)
{
    if (to > from) memcpy(t->rest + t->rest_length, from, (size_t)(to - from));
    t->rest_length += (size_t)(to - from);
}

/* An empty table where a table was, as many lines long, so that lines in messages stay right; never
 * longer than it was. An empty cursor stands for nothing. */
static void append_empty(struct json_tables *t, struct cursor table, const char *empty)
{
    if (table.at == table.end) return;
    append(t, empty, empty + 1);
    for (const char *p = table.at; p < table.end; p++)
        if (*p == '\n') append(t, p, p + 1);
    append(t, empty + 1, empty + 2);
}

static enum sol_status read_tables(const char *data, size_t size, struct json_tables *t)
{
    struct cursor vocab = find_table(data, size, "vocab", '{');
    struct cursor merges = find_table(data, size, "merges", '[');
    bool vocab_first = vocab.at <= merges.at;
    struct cursor first = vocab_first ? vocab : merges, second = vocab_first ? merges : vocab;
    size_t strings = (size_t)(vocab.end - vocab.at) + (size_t)(merges.end - merges.at);
    t->strings = malloc(strings + 1);
    t->rest = malloc(size + 4); /* a table that is cut off may be its bracket alone */
    if (!t->strings || !t->rest) return status_set(SOL_E_MEMORY, "no memory for %zu bytes", size);
    append(t, data, first.at);
    append_empty(t, first, vocab_first ? "{}" : "[]");
    append(t, first.end, second.at);
    append_empty(t, second, vocab_first ? "[]" : "{}");
    append(t, second.end, data + size);
    struct reader r = {vocab, t->strings};
    SOL_TRY(read_vocab(&r, t));
    r.c = merges;
    return read_merges(&r, t);
}

enum sol_status json_tables_read(const char *data, size_t size, struct json_tables *out)
{
    *out = (struct json_tables){0};
    enum sol_status status = read_tables(data, size, out);
    if (status != SOL_OK) json_tables_free(out);
    return status;
}

void json_tables_free(struct json_tables *t)
{
    free(t->tokens);
    free(t->merges);
    free(t->strings);
    free(t->rest);
    *t = (struct json_tables){0};
}
