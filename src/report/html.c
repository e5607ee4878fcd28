#include "report/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct html {
    char *data;
    size_t size, capacity;
    int ids;
    bool failed;
};

enum sol_status html_create(struct html **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a report");
}

void html_destroy(struct html *html)
{
    if (!html) return;
    free(html->data);
    free(html);
}

static void append(struct html *html, const char *data, size_t size)
{
    if (html->failed) return;
    if (size >= html->capacity - html->size) {
        size_t capacity = html->capacity ? html->capacity : (size_t)1 << 16;
        while (capacity - html->size <= size) capacity *= 2;
        char *grown = realloc(html->data, capacity);
        if (!grown) {
            html->failed = true;
            return;
        }
        html->data = grown;
        html->capacity = capacity;
    }
    memcpy(html->data + html->size, data, size);
    html->size += size;
    html->data[html->size] = '\0';
}

void html_raw(struct html *html, const char *markup)
{
    append(html, markup, strlen(markup));
}

size_t html_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return s[0] ? 1 : 0;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (s[0] < 0xc2) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (length == 3 && s[0] == 0xe0 && s[1] < 0xa0) return 0; /* overlong */
    if (length == 3 && s[0] == 0xed && s[1] > 0x9f) return 0; /* surrogates */
    if (length == 4 && s[0] == 0xf0 && s[1] < 0x90) return 0; /* overlong */
    if (length == 4 && s[0] == 0xf4 && s[1] > 0x8f) return 0; /* beyond U+10FFFF */
    return length;
}

/* What stands for the character at `s`; NULL: the character itself. */
static const char *escape_of(const char *s, size_t length)
{
    static const char replacement[] = "\xef\xbf\xbd";
    unsigned char c = (unsigned char)s[0];
    if (length == 0) return replacement;
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\t':
    case '\n':
        return NULL;
    default:
        break;
    }
    if (c < 0x20 || c == 0x7f) return replacement;
    /* C1 controls, and marks that turn the direction of the text after them. */
    if (c == 0xc2 && (unsigned char)s[1] < 0xa0) return replacement;
    if (c == 0xe2 && (unsigned char)s[1] == 0x80 && (unsigned char)s[2] >= 0xaa &&
        (unsigned char)s[2] <= 0xae)
        return replacement;
    return NULL;
}

static void append_text(struct html *html, const char *text, size_t limit)
{
    const char *end = memchr(text, '\0', limit);
    size_t left = end ? (size_t)(end - text) : limit;
    while (left) {
        size_t length = html_utf8_length(text);
        if (length > left) length = 0; /* cut by a precision */
        const char *escape = escape_of(text, length);
        size_t step = length ? length : 1;
        append(html, escape ? escape : text, escape ? strlen(escape) : step);
        text += step;
        left -= step;
    }
}

void html_text(struct html *html, const char *text)
{
    if (text) append_text(html, text, strlen(text));
}

/* One conversion of html_print, `spec` being its text ("%-*.2f") of `length` characters. */
struct conversion {
    char spec[32];
    int stars[2], n_stars;
    int precision; /* of %s; -1: none */
    enum { SIZE_INT, SIZE_LONG, SIZE_LONG_LONG, SIZE_SIZE } size;
    char kind;
};

static const char *parse_conversion(const char *fmt, struct conversion *c, va_list *args)
{
    size_t n = 0;
    *c = (struct conversion){.precision = -1};
    c->spec[n++] = *fmt++;
    while (*fmt && n + 2 < sizeof c->spec && strchr("-+ #0123456789.*lz", *fmt)) {
        if (*fmt == '*' && c->n_stars < 2) c->stars[c->n_stars++] = va_arg(*args, int);
        if (*fmt == '*' && c->spec[n - 1] == '.') c->precision = c->stars[c->n_stars - 1];
        if (*fmt == '.' && fmt[1] >= '0' && fmt[1] <= '9') c->precision = atoi(fmt + 1);
        if (*fmt == 'z') c->size = SIZE_SIZE;
        if (*fmt == 'l') c->size = c->size == SIZE_LONG ? SIZE_LONG_LONG : SIZE_LONG;
        c->spec[n++] = *fmt++;
    }
    c->kind = *fmt;
    c->spec[n++] = *fmt;
    c->spec[n] = '\0';
    return *fmt ? fmt + 1 : fmt;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the parts of a format that was checked */
#define FORMAT(value)                                                                              \
    (c->n_stars == 0   ? snprintf(text, size, c->spec, (value))                                    \
     : c->n_stars == 1 ? snprintf(text, size, c->spec, c->stars[0], (value))                       \
                       : snprintf(text, size, c->spec, c->stars[0], c->stars[1], (value)))

static int format_number(const struct conversion *c, va_list *args, char *text, size_t size)
{
    if (strchr("fg", c->kind)) return FORMAT(va_arg(*args, double));
    if (c->kind == 'c' || c->size == SIZE_INT) return FORMAT(va_arg(*args, int));
    if (c->size == SIZE_SIZE) return FORMAT(va_arg(*args, size_t));
    if (c->size == SIZE_LONG) return FORMAT(va_arg(*args, long));
    return FORMAT(va_arg(*args, long long));
}
#undef FORMAT
#pragma GCC diagnostic pop

void html_print(struct html *html, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");
        append(html, fmt, plain);
        fmt += plain;
        if (!*fmt) break;
        struct conversion c;
        char text[400];
        fmt = parse_conversion(fmt, &c, &args);
        if (c.kind == '%') {
            append(html, "%", 1);
        } else if (c.kind == 's') {
            const char *value = va_arg(args, const char *);
            if (value)
                append_text(html, value, c.precision < 0 ? strlen(value) : (size_t)c.precision);
        } else {
            format_number(&c, &args, text, sizeof text);
            html_text(html, text);
        }
    }
    va_end(args);
}

int html_next_id(struct html *html)
{
    return ++html->ids;
}

enum sol_status html_finish(const struct html *html, struct html_text *out)
{
    if (html->failed) return status_set(SOL_E_MEMORY, "no memory for a report");
    *out = (struct html_text){html->data ? html->data : "", html->size};
    return SOL_OK;
}
