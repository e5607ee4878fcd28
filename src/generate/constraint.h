/* What a text that is being written must obey: a grammar over the tokens of a model. */
#ifndef GENERATE_CONSTRAINT_H
#define GENERATE_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/matcher.h"
#include "model/model.h"

enum { CONSTRAINT_STOPS = 16 };

/* Of one text. The vocabulary's tree and the masks that were made before may be shared with others:
 * they are the caller's, as is the grammar. */
struct constraint {
    struct matcher *matcher;
    const struct token_trie *trie;
    struct mask_cache *cache;
    uint32_t *mask; /* of the next token, token_trie_words() */
    int32_t stops[CONSTRAINT_STOPS];
    int n_stops;
};

/* The tree of a model's vocabulary. SOL_E_ARGUMENT where the model has none. */
enum sol_status constraint_vocabulary(const struct model *model, struct token_trie **out);

enum sol_status constraint_create(const struct model *model, const struct grammar *grammar,
                                  const struct token_trie *trie, struct mask_cache *cache,
                                  struct constraint **out);
void constraint_destroy(struct constraint *constraint); /* takes NULL */

/* Fills `mask`: what may follow, and the tokens that end a text where it may end. */
enum sol_status constraint_mask(struct constraint *constraint);
/* Goes on by a token that the mask had; not by one that ends the text. */
enum sol_status constraint_take(struct constraint *constraint, int32_t token);

#endif
