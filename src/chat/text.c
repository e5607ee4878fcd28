#include "chat/text.h"

#include <stdlib.h>

#include "base/memory.h"

void text_buffer_free(struct text_buffer *b)
{
    free(b->data);
    *b = (struct text_buffer){0};
}

void text_put(struct text_buffer *b, const char *data, size_t length)
{
    size_t needed;
    if (b->failed || length == 0) return;
    if (!size_add(b->length, length, &needed) || (b->most && needed > b->most)) {
        b->failed = true;
        return;
    }
    if (needed > b->capacity) {
        size_t capacity = needed > SIZE_MAX / 2 ? needed : 2 * needed;
        char *grown = realloc(b->data, capacity < 256 ? 256 : capacity);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->data = grown;
        b->capacity = capacity < 256 ? 256 : capacity;
    }
    memcpy(b->data + b->length, data, length);
    b->length = needed;
}

void text_puts(struct text_buffer *b, const char *word)
{
    text_put(b, word, strlen(word));
}

void text_put_text(struct text_buffer *b, struct chat_text text)
{
    text_put(b, text.data, text.length);
}

enum sol_status text_check(const struct text_buffer *b, const char *what)
{
    if (!b->failed) return SOL_OK;
    if (b->most)
        return status_set(SOL_E_UNSUPPORTED, "%s is longer than %zu bytes when it is written out",
                          what, b->most);
    return status_set(SOL_E_MEMORY, "no memory for %s", what);
}
