/* Texts: a view of bytes that somebody else owns, and a buffer that grows. */
#ifndef CHAT_TEXT_H
#define CHAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/status.h"

/* UTF-8, without a NUL at the end that could be relied on; NUL bytes may be in it. data is NULL
 * where there is no text at all, which is not the same as an empty one. */
struct chat_text {
    const char *data;
    size_t length;
};

#define CHAT_TEXT(literal) ((struct chat_text){"" literal, sizeof(literal) - 1})

static inline bool text_is(struct chat_text text, const char *word)
{
    size_t length = strlen(word);
    return text.data && text.length == length && memcmp(text.data, word, length) == 0;
}
static inline bool text_begins(struct chat_text text, const char *word)
{
    size_t length = strlen(word);
    return text.data && text.length >= length && memcmp(text.data, word, length) == 0;
}

/* Without memory, or beyond `most` bytes where that is set, it only remembers that it failed:
 * writers go on, and text_check says so at the end. */
struct text_buffer {
    char *data; /* NULL while empty */
    size_t length, capacity, most;
    bool failed;
};
void text_buffer_free(struct text_buffer *b); /* takes a zeroed one */
void text_put(struct text_buffer *b, const char *data, size_t length);
void text_puts(struct text_buffer *b, const char *word);
void text_put_text(struct text_buffer *b, struct chat_text text);
/* SOL_E_MEMORY, or SOL_E_UNSUPPORTED where `most` bytes were not enough for `what`. */
enum sol_status text_check(const struct text_buffer *b, const char *what);
static inline struct chat_text text_of(const struct text_buffer *b)
{
    return (struct chat_text){b->data ? b->data : "", b->length};
}

#endif
