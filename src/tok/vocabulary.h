/* A vocabulary as data, on its way from one file format to another: the tokens as they are spelled
 * in files, their kinds, merges and special ids. Running text through it is tok/tokenizer.h. */
#ifndef TOK_VOCABULARY_H
#define TOK_VOCABULARY_H

#include <stdint.h>

#include "format/gguf.h"
#include "format/gguf_write.h"
#include "sol/status.h"
#include "tok/token_kind.h"

struct vocabulary {
    int64_t count;
    const char **tokens; /* in GPT-2's alphabet; control tokens by name */
    uint8_t *kinds;      /* enum token_kind */
    size_t n_merges;
    const char **merges;       /* "left right" */
    int64_t bos, eos, pad;     /* -1: none */
    const char *chat_template; /* NULL: none */
    struct arena *arena;
};

/* `size` rows; those that are no token become "[PAD123]" of kind unused. */
enum sol_status vocabulary_from_folder(const char *folder, int64_t size, struct vocabulary **out);
enum sol_status vocabulary_from_gguf(const struct gguf *file, struct vocabulary **out);
/* For synthetic models: the 256 bytes, then pairs of a token and a letter in a fixed order, then
 * gpt-oss's special tokens (at their own ids when size is 201088). Any text round-trips. */
enum sol_status vocabulary_synth(int64_t size, struct vocabulary **out);
void vocabulary_destroy(struct vocabulary *vocabulary); /* takes NULL */

void vocabulary_to_gguf(const struct vocabulary *vocabulary, struct gguf_out *out);
/* tokenizer.json, tokenizer_config.json and generation_config.json. */
enum sol_status vocabulary_to_folder(const struct vocabulary *vocabulary, const char *folder);

#endif
