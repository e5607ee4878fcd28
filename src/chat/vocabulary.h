/* The tokens of a chat format in a vocabulary. */
#ifndef CHAT_VOCABULARY_H
#define CHAT_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "chat/text.h"
#include "tok/tokenizer.h"

struct chat_format;

/* Tokens of nanochat's format. */
struct nanochat_tokens {
    int32_t bos, user_start, user_end, assistant_start, assistant_end;
    int32_t python_start, python_end, output_start, output_end;
};

enum { CHAT_TOKEN_SET_MAX = 8 };
struct chat_token_set {
    int32_t ids[CHAT_TOKEN_SET_MAX];
    size_t n;
};
bool chat_token_in(const struct chat_token_set *set, int32_t id);

/* What the tokens of a format do in a turn of the assistant. -1: the format has none. */
struct chat_token_uses {
    int32_t start;     /* begins a message of the assistant in a prompt */
    int32_t in_header; /* stands between the role and the text where a message goes on */
    int32_t answer_end, call_end, other_end; /* ends a message of that kind */
    int32_t text_end;                        /* ends all texts, and is of no message */
    struct chat_token_set begins;            /* come first in a conversation */
    struct chat_token_set borders;           /* begin or end messages */
    struct chat_token_set stops;             /* end a turn */
    struct chat_token_set written;           /* control tokens that the model may write */
    struct chat_token_set marks; /* after which what may follow is not any text any more */
};

struct chat_vocabulary {
    const struct tokenizer *tokenizer; /* borrowed */
    const struct chat_format *format;  /* what its tokens are of */
    struct chat_token_uses uses;
    /* Of harmony alone. endoftext: -1 where the vocabulary has none. */
    int32_t start, message, channel, constrain, end, ret, call, endoftext;
    /* Of nanochat's format alone. */
    struct nanochat_tokens nanochat;
};

/* SOL_E_UNSUPPORTED, naming what each format lacks, where the vocabulary has the tokens of none. */
enum sol_status chat_vocabulary_find(const struct tokenizer *tokenizer,
                                     struct chat_vocabulary *out);

/* In harmony: end, return or call, what ends a message. */
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
