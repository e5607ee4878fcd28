/* The tokens of the harmony format in a vocabulary. */
#ifndef CHAT_VOCABULARY_H
#define CHAT_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "chat/text.h"
#include "tok/tokenizer.h"

struct chat_vocabulary {
    const struct tokenizer *tokenizer; /* borrowed */
    int32_t start, message, channel, constrain, end, ret, call;
    int32_t endoftext; /* -1: the vocabulary has none */
};

/* SOL_E_UNSUPPORTED, naming the token, where the vocabulary lacks one. */
enum sol_status chat_vocabulary_find(const struct tokenizer *tokenizer,
                                     struct chat_vocabulary *out);

/* end, return or call: what ends a message. */
static inline bool chat_ends(const struct chat_vocabulary *v, int32_t id)
{
    return id == v->end || id == v->ret || id == v->call;
}

enum { CHAT_TOKEN_NAME_MAX = 32 };
/* The bytes of a token as text; of a control token its name, and of an id that is no token
 * "<|reserved_200013|>", written to `room`. Never empty. */
struct chat_text chat_token_text(const struct chat_vocabulary *v, int32_t id,
                                 char room[CHAT_TOKEN_NAME_MAX]);

#endif
