/* What an event of a streamed completion says: /v1/chat/completions or /v1/completions. */
#ifndef BENCH_SERVE_CHUNK_H
#define BENCH_SERVE_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHUNK_ERROR = 200 };

struct serve_chunk {
    bool done;     /* the last event, "[DONE]" */
    bool text;     /* it has some: content, reasoning under either name, a tool call's */
    bool finished; /* a finish_reason */
    bool failed;   /* an error object */
    int64_t prompt_tokens, output_tokens, cached_tokens; /* of its usage; -1: it does not say */
    char error[CHUNK_ERROR];                             /* what the server says; "" */
};

/* False: neither "[DONE]" nor a JSON object. `data` may hold anything. */
bool serve_chunk_read(const char *data, size_t length, struct serve_chunk *out);

/* The message of an error object of OpenAI's form, or the beginning of whatever `body` is, in one
 * line. Returns `text`. */
char *serve_error_text(const char *body, size_t length, char text[CHUNK_ERROR]);

#endif
