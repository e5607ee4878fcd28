/* The vocabulary that --model or --vocab names. */
#ifndef CLI_VOCABULARY_OPTION_H
#define CLI_VOCABULARY_OPTION_H

#include "base/options.h"
#include "model/model.h"
#include "tok/tokenizer.h"

#define VOCABULARY_OPTIONS(type, model_field, vocab_field)                                         \
    OPTION_ENTRY(STRING, 'm', "model", "MODEL",                                                    \
                 "the vocabulary of this model: GGUF file or 'builtin' (default)",                 \
                 offsetof(type, model_field), 0, 0),                                               \
        OPTION_ENTRY(STRING, 0, "vocab", "FILE",                                                   \
                     "tokenizer.json, .tiktoken or GGUF file, or a folder with one",               \
                     offsetof(type, vocab_field), 0, 0)

/* One of both, or NULL: the built-in model's. Destroy with tokenizer_destroy. */
enum sol_status vocabulary_open(const char *model, const char *vocab, struct tokenizer **out);
/* Gives a model that has no vocabulary the one of this file. `vocab` NULL: does nothing. */
enum sol_status vocabulary_add(struct model *model, const char *vocab);

#endif
