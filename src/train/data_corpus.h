/* A corpus: documents from files that a user names, in a fixed order. It is immutable once open;
 * any number of threads read it.
 *
 * Files, by their endings: .jsonl, a JSON object per line, each a document: with a string "text",
 * or with "segments", a list of {"text": string, "label": whether to learn it}, whose texts may
 * name control tokens and which no token is put before (axolotl's format of inputs and outputs), or
 * with "messages", a conversation (chat/conversation.h), which is rendered in the chat format of
 * the vocabulary and of which what the assistant writes is learnt; .bin, token files (data_bin.h),
 * whose documents begin with the token that begins texts; anything else is a text, which is one
 * document or, with CORPUS_BLANK_LINES, one per stretch between blank lines. Of a folder all .txt,
 * .jsonl and .bin files count, in the order of their names' bytes; folders in it and hidden files
 * do not. Texts and token files do not mix.
 *
 * Validation is, in this order: the file or folder that `val_path` names; of a folder with several
 * files the last one (nanochat's rule); of a single file its last `val_percent` of bytes or tokens.
 * There it begins with the first document behind that point, and where documents are whole files
 * with the first line. All else is for training. */
#ifndef TRAIN_DATA_CORPUS_H
#define TRAIN_DATA_CORPUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sol/status.h"
#include "tok/tokenizer.h"

enum corpus_split { CORPUS_WHOLE_FILES, CORPUS_BLANK_LINES };
enum corpus_part { CORPUS_TRAIN, CORPUS_VAL };

struct corpus_options {
    const char *path, *val_path; /* val_path: NULL for the rule above */
    double val_percent;          /* above 0, below 100 */
    enum corpus_split split;     /* of texts */
    int plain_width;             /* bytes of a token in files without a header: 2 or 4 */
    int32_t bos;                 /* -1: the tokenizer's, else <|endoftext|>; else what files say */
    const struct tokenizer *tokenizer; /* borrowed; NULL will do for token files */
    int64_t vocab;                     /* of the model: tokens are below it */
};

/* 10 % for validation, whole files, 2 bytes, no bos. */
void corpus_options_init(struct corpus_options *options);

struct corpus;

/* A token that is read but not learnt stands as ~id. */
static inline int32_t token_unlabelled(int32_t id)
{
    return ~id;
}
static inline int32_t token_id(int32_t token)
{
    return token < 0 ? ~token : token;
}

/* SOL_E_ARGUMENT where the model's vocabulary is smaller than the files' or the tokenizer's, where
 * one is missing, and where a part would be empty; SOL_E_FORMAT where a header is damaged. */
enum sol_status corpus_open(const struct corpus_options *options, enum corpus_part part,
                            struct corpus **out);
void corpus_close(struct corpus *corpus); /* takes NULL */

struct corpus_info {
    int files;
    uint64_t bytes;  /* of texts */
    uint64_t tokens; /* of token files */
    bool token_files;
    bool whole_texts; /* documents are texts of any length */
    bool labelled;    /* they are segments or conversations, by the first of them */
    int32_t bos;      /* -1: documents begin with none */
    int64_t vocab;    /* the model's */
    uint64_t
        hash; /* of names, sizes and what of them belongs to the part: to notice another corpus */
};
struct corpus_info corpus_info(const struct corpus *corpus);

/* A place between two documents, or in one. The corpus is endless: behind its end it begins again,
 * an epoch later. */
struct corpus_cursor {
    int64_t file;
    uint64_t offset;          /* bytes, or tokens of a token file */
    bool inside;              /* what follows goes on with a document */
    uint64_t document, epoch; /* documents begun in this epoch; the first epoch is 1 */
};

/* A document, or a part of one. Nothing in it is owned. */
struct corpus_document {
    int64_t file;
    uint64_t offset, size; /* in the file's unit */
    bool first;            /* begins the document */
};

struct corpus_cursor corpus_start(const struct corpus *corpus);
/* Whether the cursor, which may come from a file, is a place of this corpus. */
bool corpus_holds(const struct corpus *corpus, const struct corpus_cursor *cursor);
/* The document at the cursor, which moves behind it. With `part` > 0, texts and token files come in
 * parts of about that many bytes or tokens, cut where the tokens are those of the whole.
 * SOL_E_FORMAT where the corpus has no documents. */
enum sol_status corpus_next(const struct corpus *corpus, uint64_t part,
                            struct corpus_cursor *cursor, struct corpus_document *out);

/* Appends the tokens of the document, with the token that begins it where it is the first part.
 * Errors name file and place. Ends with SOL_E_INTERRUPTED soon after *stop is set. */
enum sol_status corpus_encode(const struct corpus *corpus, const struct corpus_document *document,
                              const atomic_bool *stop, struct token_list *ids);

#endif
