/* Writes a trained vocabulary as a file that sol and others read. */
#ifndef TOK_VOCAB_WRITE_H
#define TOK_VOCAB_WRITE_H

#include "format/output_file.h"
#include "sol/status.h"
#include "tok/bpe_train.h"

enum vocab_format {
    VOCAB_TIKTOKEN, /* tokens and ranks; no special tokens */
    VOCAB_JSON,     /* tokenizer.json, with the special tokens of o200k_harmony behind the others,
                     * where reading the other format puts them too */
    VOCAB_GGUF,     /* the same as GGUF keys, without tensors */
};

/* The file appears under its name complete or not at all. */
enum sol_status vocab_write(const struct bpe_vocabulary *vocabulary, enum vocab_format format,
                            const char *path);
/* The same for the two texts, into a stream that was opened before the work. */
enum sol_status vocab_write_text(const struct bpe_vocabulary *vocabulary, enum vocab_format format,
                                 struct output_file *to);

#endif
