#include "serve/stops.h"

#include <stdlib.h>

enum sol_status stop_strings_copy(const struct chat_text *from, size_t n, struct stop_strings *out)
{
    *out = (struct stop_strings){0};
    if (!n) return SOL_OK;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += from[i].length;
    out->at = malloc(n * sizeof *out->at + bytes); /* the texts lie behind the table */
    if (!out->at) return status_set(SOL_E_MEMORY, "no memory for %zu stop strings", n);
    char *to = (char *)(out->at + n);
    for (size_t i = 0; i < n; i++) {
        out->at[i] = (struct chat_text){to, from[i].length};
        if (from[i].length) memcpy(to, from[i].data, from[i].length);
        to += from[i].length;
    }
    out->n = n;
    return SOL_OK;
}

void stop_strings_free(struct stop_strings *s)
{
    free(s->at);
    *s = (struct stop_strings){0};
}

void stop_stream_free(struct stop_stream *stream)
{
    text_buffer_free(&stream->text);
}

/* Where it begins in `text`; its length: nowhere. */
static size_t find(struct chat_text text, struct chat_text stop)
{
    if (stop.length > text.length) return text.length;
    const char *at = memmem(text.data, text.length, stop.data, stop.length);
    return at ? (size_t)(at - text.data) : text.length;
}

/* How many bytes at the end of `text` may be the beginning of it. */
static size_t begun(struct chat_text text, struct chat_text stop)
{
    size_t most = stop.length - 1 < text.length ? stop.length - 1 : text.length;
    for (size_t n = most; n; n--)
        if (memcmp(text.data + text.length - n, stop.data, n) == 0) return n;
    return 0;
}

const struct chat_text *stop_stream_push(struct stop_stream *stream,
                                         const struct stop_strings *stops, struct chat_text delta,
                                         struct chat_text *safe)
{
    struct text_buffer *b = &stream->text;
    *safe = delta;
    if (!stops->n) return NULL;
    b->length -= stream->begin;
    if (stream->begin) memmove(b->data, b->data + stream->begin, b->length);
    stream->begin = 0;
    text_put(b, delta.data, delta.length);
    if (b->failed) return NULL;
    struct chat_text text = text_of(b);
    const struct chat_text *found = NULL;
    size_t first = text.length, held = 0;
    for (size_t i = 0; i < stops->n; i++) {
        size_t at = find(text, stops->at[i]);
        if (at < first) {
            first = at;
            found = &stops->at[i];
        }
        size_t n = begun(text, stops->at[i]);
        if (n > held) held = n;
    }
    stream->begin = found ? text.length : text.length - held;
    *safe = (struct chat_text){text.data, found ? first : text.length - held};
    return found;
}

struct chat_text stop_stream_finish(struct stop_stream *stream)
{
    struct text_buffer *b = &stream->text;
    struct chat_text rest = {b->data ? b->data + stream->begin : "", b->length - stream->begin};
    stream->begin = b->length;
    return rest;
}
