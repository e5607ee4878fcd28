#include "bench/serve_sse.h"

#include <string.h>

static const char mark[] = "\xef\xbb\xbf";
enum { MARK = sizeof mark - 1 };

static enum sse_result append(struct text_buffer *to, const char *data, size_t length)
{
    if (length > SSE_EVENT_MAX - to->length) return SSE_TOO_LONG;
    text_put(to, data, length);
    return to->failed ? SSE_NO_MEMORY : SSE_FINE;
}

static enum sse_result end_event(struct sse_reader *r, sse_event *event, void *arg)
{
    const bool had = r->has_data;
    r->has_data = false;
    const bool more = !had || event(arg, r->data.data, r->data.length);
    r->data.length = 0;
    return more ? SSE_FINE : SSE_STOPPED;
}

/* Of the fields of a line only `data` matters. */
static enum sse_result end_line(struct sse_reader *r, sse_event *event, void *arg)
{
    const char *line = r->line.data;
    const size_t length = r->line.length;
    r->line.length = 0;
    if (length == 0) return end_event(r, event, arg);
    const char *colon = memchr(line, ':', length);
    const size_t name = colon ? (size_t)(colon - line) : length;
    if (name != 4 || memcmp(line, "data", 4) != 0) return SSE_FINE;
    size_t at = colon ? name + 1 : length;
    if (at < length && line[at] == ' ') at++;
    enum sse_result result = r->has_data ? append(&r->data, "\n", 1) : SSE_FINE;
    r->has_data = true;
    return result == SSE_FINE ? append(&r->data, line + at, length - at) : result;
}

/* The mark may come in pieces, and what only begins like it belongs to the first line. */
static enum sse_result skip_mark(struct sse_reader *r, const char **data, size_t *length)
{
    while (r->seen < MARK && *length && **data == mark[r->seen]) {
        r->seen++;
        (*data)++;
        (*length)--;
    }
    if (r->seen >= MARK || !*length) return SSE_FINE;
    const size_t begun = r->seen;
    r->seen = MARK;
    return append(&r->line, mark, begun);
}

enum sse_result sse_read(struct sse_reader *r, const char *data, size_t length, sse_event *event,
                         void *arg)
{
    enum sse_result result = skip_mark(r, &data, &length);
    while (length && result == SSE_FINE) {
        if (r->after_cr && *data == '\n') {
            data++, length--;
            r->after_cr = false;
            continue;
        }
        r->after_cr = false;
        size_t n = 0;
        while (n < length && data[n] != '\n' && data[n] != '\r') n++;
        if (n) result = append(&r->line, data, n);
        if (result == SSE_FINE && n < length) {
            r->after_cr = data[n] == '\r';
            n++;
            result = end_line(r, event, arg);
        }
        data += n, length -= n;
    }
    return result;
}

void sse_restart(struct sse_reader *r)
{
    r->line.length = r->data.length = r->seen = 0;
    r->line.failed = r->data.failed = false;
    r->has_data = r->after_cr = false;
}

void sse_free(struct sse_reader *r)
{
    text_buffer_free(&r->line);
    text_buffer_free(&r->data);
    *r = (struct sse_reader){.seen = 0};
}
