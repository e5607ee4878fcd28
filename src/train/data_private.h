/* What a corpus is made of. */
#ifndef TRAIN_DATA_PRIVATE_H
#define TRAIN_DATA_PRIVATE_H

#include <stdint.h>

#include "base/memory.h"
#include "train/data_bin.h"
#include "train/data_corpus.h"

enum document_kind {
    DOCUMENT_FILE,      /* all of it */
    DOCUMENT_PARAGRAPH, /* lines between blank lines */
    DOCUMENT_JSON_LINE,
    DOCUMENT_TOKENS,
};

struct corpus_file {
    char *path;
    struct mapped_file map;
    enum document_kind kind;
    struct token_file tokens; /* of DOCUMENT_TOKENS */
    uint64_t begin, end;      /* what of it belongs to the corpus, in bytes or tokens */
};

struct corpus {
    struct corpus_file *files;
    int n_files;
    size_t capacity;
    const struct tokenizer *tokenizer;
    int64_t vocab;
    int32_t bos;
    uint64_t hash, tokenizer_hash; /* the latter 0 without a tokenizer */
};

/* Where the first document at or behind `at` begins; the file's end where there is none. Of a file
 * that is one document, the next line or, in a text without lines, the next character. */
uint64_t document_after(const struct corpus *corpus, const struct corpus_file *file, uint64_t at);

/* Whether the first line of a .jsonl has segments or messages; false where it is no JSON. */
bool document_has_labels(const struct corpus_file *file);

#endif
