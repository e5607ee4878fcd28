/* Server-sent events out of bytes that arrive in any pieces, as the HTML standard reads them: lines
 * that end with CR, LF or both, `data` fields joined by newlines, comments and other fields left
 * out, a byte order mark skipped. Of bounded memory. */
#ifndef BENCH_SERVE_SSE_H
#define BENCH_SERVE_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "chat/text.h"

enum { SSE_EVENT_MAX = 1 << 20 }; /* bytes of an event's data, and of a line */

enum sse_result {
    SSE_FINE,
    SSE_TOO_LONG,  /* a line or an event beyond SSE_EVENT_MAX */
    SSE_STOPPED,   /* by the one who hears the events */
    SSE_NO_MEMORY, /* nothing more can be read */
};

/* Zeroed it is at the beginning of a stream. */
struct sse_reader {
    struct text_buffer line, data;
    size_t seen;   /* bytes of the stream, up to those of a byte order mark */
    bool has_data; /* the event has a `data` field, if an empty one */
    bool after_cr; /* an LF would belong to it */
};

/* False: no more of the stream is wanted. Of an empty event `data` may be NULL. */
typedef bool sse_event(void *arg, const char *data, size_t length);

/* Calls `event` for each event that is complete. After anything but SSE_FINE the stream is over. An
 * event whose blank line never comes is none. */
enum sse_result sse_read(struct sse_reader *reader, const char *data, size_t length,
                         sse_event *event, void *arg);
/* At the beginning of another stream; memory is kept. */
void sse_restart(struct sse_reader *reader);
void sse_free(struct sse_reader *reader); /* takes a zeroed one */

#endif
