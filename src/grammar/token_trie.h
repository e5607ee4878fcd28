/* The tokens of a vocabulary as a tree of their bytes, to find those that may follow without trying
 * each. Made once for a vocabulary, immutable, safe to share between threads. Of o200k's 199,998
 * tokens: some 30 ms, 9 MiB (bench/structured_vs_llguidance.py). */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "tok/tokenizer.h"

struct token_trie;

/* `vocab`: how many ids masks are for, at least the vocabulary's (a model may have more rows).
 * Special tokens are left out. The tokenizer must outlive it. */
enum sol_status token_trie_create(const struct tokenizer *tokenizer, int64_t vocab,
                                  struct token_trie **out);
void token_trie_destroy(struct token_trie *trie); /* takes NULL */

size_t token_trie_words(const struct token_trie *trie); /* of a mask: (vocab + 31) / 32 */
size_t token_trie_memory(const struct token_trie *trie);
/* Of a token that is text; length 0 for any other. */
struct token_bytes token_trie_bytes(const struct token_trie *trie, int32_t id);

#endif
