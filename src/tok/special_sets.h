/* Special tokens that a vocabulary can have behind its ordinary ones. */
#ifndef TOK_SPECIAL_SETS_H
#define TOK_SPECIAL_SETS_H

#include <stdint.h>

enum special_set {
    SPECIAL_HARMONY,  /* o200k_harmony's (source: tiktoken_ext/openai_public) */
    SPECIAL_NANOCHAT, /* <|bos|> and what its conversations are made of (source: nanochat's
                       * tokenizer.py) */
    SPECIAL_SETS,
};
enum { SPECIAL_NAME_MAX = 32 }; /* bytes of a name with its final 0 */

const char *special_set_name(enum special_set set);
/* Ids that it takes, each with a token. The first is the one that begins texts. */
int32_t special_set_span(enum special_set set);
/* Writes the name of the token `first + offset`, where `first` is the set's first id, and returns
 * its length. One that means nothing is `<|reserved_200000|>` by its id, as in o200k_harmony.
 * 0 <= offset < span. */
int special_set_token(enum special_set set, int32_t first, int32_t offset,
                      char name[SPECIAL_NAME_MAX]);

#endif
