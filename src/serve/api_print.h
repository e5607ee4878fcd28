/* Pieces of JSON that the APIs print. All append to a text. */
#ifndef SERVE_API_PRINT_H
#define SERVE_API_PRINT_H

#include <stdint.h>

#include "chat/text.h"
#include "serve/job.h"

enum { API_ID_SIZE = 40 };

/* `prefix` and 24 letters and digits that nobody can guess. */
void api_new_id(const char *prefix, char id[API_ID_SIZE]);

/* `before` is put as it is: ",\"name\":". */
void api_put_text(struct text_buffer *to, const char *before, struct chat_text text);
void api_put_word(struct text_buffer *to, const char *before, const char *word);
void api_put_integer(struct text_buffer *to, const char *before, int64_t value);

/* {"token", "logprob", "bytes", "top_logprobs": [...]}, one for each token with commas between.
 * Bytes that are no UTF-8 by themselves are U+FFFD in "token". */
void api_put_logprobs(struct text_buffer *to, const struct job_token *tokens, size_t n);

#endif
