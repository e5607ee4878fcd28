#include "base/escape.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 8, UTF8_MAX = 4 }; /* "\u202e" and its NUL */

/* C1 controls; embeddings, overrides and isolates of direction. */
static bool is_hidden(uint32_t c)
{
    return (c >= 0x80 && c <= 0x9f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* Bytes of the character at `at`: 0 where it is no UTF-8, and `left` + 1 where it may become some
 * with more bytes. */
static size_t decode(const unsigned char *at, size_t left, uint32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *at >= 0xf0 && *at < 0xf5   ? 4
               : *at >= 0xe0 && *at < 0xf0 ? 3
               : *at >= 0xc2 && *at < 0xe0 ? 2
                                           : 0;
    if (n == 0) return 0;
    *c = *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (i == left) return left + 1;
        if ((at[i] & 0xc0) != 0x80) return 0;
        *c = *c << 6 | (at[i] & 0x3fu);
    }
    bool surrogate = *c >= 0xd800 && *c < 0xe000;
    return *c < least[n] || *c > 0x10ffff || surrogate ? 0 : n;
}

/* The next character of `left` bytes as it is shown. Returns how many bytes it took; 0 where more
 * have to come, and `whole` says that none will. */
static size_t next_piece(const char *text, size_t left, bool whole, char out[PIECE])
{
    const unsigned char *at = (const unsigned char *)text;
    uint32_t c = *at;
    size_t n = 1;
    if (*at >= 0x80) n = decode(at, left, &c);
    if (n > left) {
        if (!whole) return 0;
        n = 0;
    }
    bool control = (*at < 0x20 && *at != '\n' && *at != '\t');
    if (n == 0 || control) {
        snprintf(out, PIECE, "\\x%02x", *at);
        return 1;
    }
    if (c == 0x7f || is_hidden(c)) {
        snprintf(out, PIECE, "\\u%04x", (unsigned)c & 0xffff);
        return n;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    return n;
}

void escape_text(char *out, size_t size, const char *text)
{
    size_t left = strlen(text), used = 0;
    while (left) {
        char piece[PIECE];
        size_t n = next_piece(text, left, true, piece), length = strlen(piece);
        if (used + length >= size) break;
        memcpy(out + used, piece, length);
        used += length;
        text += n;
        left -= n;
    }
    out[used] = '\0';
}

char *escape_line(const char *text)
{
    size_t size = 6 * strlen(text) + 1;
    char *line = malloc(size);
    if (!line) return NULL;
    escape_text(line, size, text);
    for (char *c = line; *c; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    return line;
}

/* ---- streams ---- */

struct stream {
    int fd;
    char rest[UTF8_MAX]; /* the start of a character whose end has not come */
    size_t n_rest;
};

static bool write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* 0 is an error for stdio, with errno set. */
static ssize_t stream_write(void *cookie, const char *data, size_t size)
{
    struct stream *s = cookie;
    char in[UTF8_MAX + 1024], out[4096];
    size_t taken = 0;
    while (taken < size) {
        size_t room = sizeof in - s->n_rest, more = size - taken < room ? size - taken : room;
        memcpy(in, s->rest, s->n_rest);
        memcpy(in + s->n_rest, data + taken, more);
        size_t total = s->n_rest + more, at = 0, used = 0;
        taken += more;
        s->n_rest = 0;
        while (at < total) {
            if (used + PIECE > sizeof out) {
                if (!write_all(s->fd, out, used)) return 0;
                used = 0;
            }
            size_t n = next_piece(in + at, total - at, false, out + used);
            if (n == 0) {
                s->n_rest = total - at;
                memcpy(s->rest, in + at, s->n_rest);
                break;
            }
            at += n;
            used += strlen(out + used);
        }
        if (!write_all(s->fd, out, used)) return 0;
    }
    return (ssize_t)size;
}

static FILE *open_stream(struct stream *s, int mode)
{
    FILE *file = fopencookie(s, "w", (cookie_io_functions_t){.write = stream_write});
    if (file) setvbuf(file, NULL, mode, BUFSIZ);
    return file;
}

void escape_streams(bool output)
{
    static struct stream streams[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};
    FILE *out = output ? open_stream(&streams[0], isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF) : NULL;
    FILE *err = open_stream(&streams[1], _IONBF);
    if (out) stdout = out;
    if (err) stderr = err;
}

void escape_not(FILE *to, const char *text)
{
    fflush(to);
    write_all(to == stdout ? STDOUT_FILENO : STDERR_FILENO, text, strlen(text));
}
