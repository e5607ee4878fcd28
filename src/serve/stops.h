/* Strings that end a text, looked for while it comes: what may be the beginning of one is held back
 * until it is known not to be. */
#ifndef SERVE_STOPS_H
#define SERVE_STOPS_H

#include "chat/text.h"

/* The strings; UTF-8, not empty. */
struct stop_strings {
    struct chat_text *at; /* [n], each a copy */
    size_t n;
};
enum sol_status stop_strings_copy(const struct chat_text *from, size_t n, struct stop_strings *out);
void stop_strings_free(struct stop_strings *s); /* takes a zeroed one */

/* One text. Zeroed at its beginning. */
struct stop_stream {
    struct text_buffer text; /* the part that is held back, from `begin` on */
    size_t begin;
};
void stop_stream_free(struct stop_stream *stream);
/* Appends `delta`; *safe is what may be shown now, until the next call. Returns the string that
 * ended the text, the first in it, before which *safe ends; NULL: none. Without memory nothing is
 * held back, and text_check of `text` says so. */
const struct chat_text *stop_stream_push(struct stop_stream *stream,
                                         const struct stop_strings *stops, struct chat_text delta,
                                         struct chat_text *safe);
/* The text is over: the rest of it. */
struct chat_text stop_stream_finish(struct stop_stream *stream);

#endif
