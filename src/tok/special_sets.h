/* Special tokens that a vocabulary can have behind its ordinary ones. */
#ifndef TOK_SPECIAL_SETS_H
#define TOK_SPECIAL_SETS_H

#include <stdbool.h>
#include <stdint.h>

enum special_set {
    SPECIAL_HARMONY,  /* o200k_harmony's (harmony_tokens.h) */
    SPECIAL_NANOCHAT, /* <|bos|> and what its conversations are made of (source: nanochat's
                       * tokenizer.py) */
    SPECIAL_SETS,
};

const char *special_set_name(enum special_set set);
/* Ids that it takes; some may have no token. The first is the one that begins texts. */
int32_t special_set_span(enum special_set set);
/* Its name, or NULL. 0 <= offset < span. */
const char *special_set_token(enum special_set set, int32_t offset);

#endif
