/* Training of a byte-level BPE vocabulary: the most frequent pair of neighbouring tokens becomes a
 * token, again and again. */
#ifndef TOK_BPE_TRAIN_H
#define TOK_BPE_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "tok/word_counts.h"

struct bpe_rule {
    int32_t left, right, merged;
};

/* Tokens 0..255 are the bytes in the order of GPT-2's alphabet, the others are in the order they
 * were made in. Several rules may make the same token. */
struct bpe_vocabulary {
    size_t n_tokens, n_rules;
    char *bytes;       /* of all tokens, one after the other */
    uint32_t *offsets; /* [n_tokens + 1] */
    struct bpe_rule *rules;
    uint64_t text_bytes, text_tokens; /* what the training text came to */
};

enum {
    TRAIN_TOKENS_MIN = 256,
    TRAIN_TOKENS_MAX = 1 << 21,
};

/* `vocab_size` tokens, bytes included, or fewer when no pair is left. Among equally frequent pairs
 * the one of smaller ids is taken, left before right, as in the `tokenizers` library, with which
 * the result agrees for the same counts. Interruptible. */
enum sol_status bpe_train(const struct word_counts *words, size_t vocab_size,
                          struct bpe_vocabulary *out);
void bpe_vocabulary_destroy(struct bpe_vocabulary *vocabulary); /* takes a zeroed one */

#endif
