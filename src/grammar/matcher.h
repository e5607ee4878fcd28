/* A text on its way through a grammar. One matcher is one text; it is used by one thread at a time,
 * and any number of them share a grammar. */
#ifndef GRAMMAR_MATCHER_H
#define GRAMMAR_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar/grammar.h"
#include "grammar/token_trie.h"
#include "sol/status.h"

struct matcher;

/* At the beginning of a text. The grammar must outlive it. */
enum sol_status matcher_create(const struct grammar *grammar, struct matcher **out);
enum sol_status matcher_copy(const struct matcher *from, struct matcher **out);
void matcher_destroy(struct matcher *matcher); /* takes NULL */

/* Goes on by these bytes. SOL_E_ARGUMENT when the grammar does not allow them, SOL_E_MEMORY; either
 * leaves everything as it was. What the matcher can go on with can always be finished. */
enum sol_status matcher_advance(struct matcher *matcher, const char *bytes, size_t length);
/* The same by a token. */
enum sol_status matcher_token(struct matcher *matcher, const struct token_trie *trie, int32_t id);
/* Takes the last n successful advances back, of the last MATCHER_HISTORY; SOL_E_ARGUMENT beyond. */
enum { MATCHER_HISTORY = 256 };
enum sol_status matcher_rollback(struct matcher *matcher, size_t n);

bool matcher_accepts(const struct matcher *matcher); /* the text may end here */
bool matcher_ended(const struct matcher *matcher);   /* nothing may follow */

/* Writes the bytes that must follow, as there is no choice, at most `size` of them; returns how
 * many. The matcher stays where it is. */
size_t matcher_forced(struct matcher *matcher, char *out, size_t size);

/* ---- tokens ---- */

/* Masks that were made before, of one grammar and one vocabulary, for all their matchers, in any
 * thread. At most MASK_CACHE_ENTRIES. */
struct mask_cache;
enum { MASK_CACHE_ENTRIES = 256 };
enum sol_status mask_cache_create(const struct token_trie *trie, struct mask_cache **out);
void mask_cache_destroy(struct mask_cache *cache); /* takes NULL */

/* Sets the bits of the tokens that may come next, and clears all others: bit id % 32 of word
 * id / 32, token_trie_words() words. Tokens that end a text are the caller's matter: legal exactly
 * where matcher_accepts says so. `cache` may be NULL. */
enum sol_status matcher_mask(struct matcher *matcher, const struct token_trie *trie,
                             struct mask_cache *cache, uint32_t *bits);

#endif
