/* Writes a trained vocabulary as a file that sol and others read. */
#ifndef TOK_VOCAB_WRITE_H
#define TOK_VOCAB_WRITE_H

#include "format/output_file.h"
#include "sol/status.h"
#include "tok/bpe_train.h"
#include "tok/special_sets.h"

enum vocab_format {
    VOCAB_TIKTOKEN, /* tokens and ranks; no special tokens. Who reads it puts those of harmony
                     * behind them, so no other set can go with it */
    VOCAB_JSON,     /* tokenizer.json, with the special tokens behind the others */
    VOCAB_GGUF,     /* the same as GGUF keys, without tensors */
};

/* The file appears under its name complete or not at all. */
enum sol_status vocab_write(const struct bpe_vocabulary *vocabulary, enum special_set special,
                            enum vocab_format format, const char *path);
/* The same for the two texts, into a stream that was opened before the work. */
enum sol_status vocab_write_text(const struct bpe_vocabulary *vocabulary, enum special_set special,
                                 enum vocab_format format, struct output_file *to);

#endif
