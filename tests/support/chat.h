/* What tests of the chat formats share. */
#ifndef TESTS_SUPPORT_CHAT_H
#define TESTS_SUPPORT_CHAT_H

#include <jansson.h>

#include "chat/vocabulary.h"

/* tests/data/chat_vectors.json.gz, unpacked by gzip; NULL, and why on stderr, when it cannot be
 * read. */
json_t *chat_vectors(void);

/* The built-in model's vocabulary: a small one, with the tokens of harmony. Ends the program where
 * it is missing. Destroy v->tokenizer, which is not const then. */
struct tokenizer *chat_builtin(struct chat_vocabulary *v);
/* That of gpt-oss, from the folder that TIKTOKEN_ENCODINGS_BASE names; NULL, and why on stdout,
 * where there is none. */
struct tokenizer *chat_o200k(struct chat_vocabulary *v);

/* A small one with the tokens of nanochat, likewise: tests/data/tokenizer_nanochat.json. */
struct tokenizer *chat_small_nanochat(struct chat_vocabulary *v);

/* Control tokens have a byte each that UTF-8 does not have, from 0xf5 on: start, message, channel,
 * constrain, end, return, call; of nanochat bos, the user's and
 * the assistant's start and end, and those of python. */
enum { CHAT_MARK = 0xf5, CHAT_MARKS = 7 };
int32_t chat_mark_id(const struct chat_vocabulary *v, unsigned char mark);
/* Tokens as text with such bytes. Free with text_buffer_free. */
void chat_marked_text(const struct chat_vocabulary *v, const int32_t *ids, size_t count,
                      struct text_buffer *to);
/* A token for each byte of such a text. */
void chat_byte_ids(const struct chat_vocabulary *v, int32_t ids[256]);

/* FNV-1a of 64 bits; begin with CHAT_FNV. */
#define CHAT_FNV UINT64_C(0xcbf29ce484222325)
uint64_t chat_fnv(uint64_t hash, const void *data, size_t length);

#endif
