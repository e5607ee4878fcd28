/* Grammars of the schemas that clients send, compiled once while they are in use or were lately.
 * Any thread; compiling is done in the caller's. */
#ifndef SERVE_SCHEMA_CACHE_H
#define SERVE_SCHEMA_CACHE_H

#include <jansson.h>

#include "grammar/matcher.h"

struct schema_cache;

/* What may be kept, what is in use among it. The bytes are those of texts and grammars; masks come
 * on top, MASK_CACHE_ENTRIES of each at most. */
enum { SCHEMA_CACHE_ENTRIES = 32, SCHEMA_CACHE_BYTES = 128 << 20 };

enum sol_status schema_cache_create(struct schema_cache **out);
/* All holds must have been released. Takes NULL. */
void schema_cache_destroy(struct schema_cache *cache);

/* A grammar and its masks, which stay while it is held. */
struct schema_hold {
    const struct grammar *grammar;
    struct mask_cache *masks; /* NULL without a vocabulary */
    struct schema_entry *entry;
};

/* schema NULL: any object. `trie` is the vocabulary, one for all calls (NULL: no masks are kept).
 * Errors: grammar_from_schema's. */
enum sol_status schema_cache_hold(struct schema_cache *cache, const json_t *schema,
                                  const struct token_trie *trie, struct schema_hold *out);
void schema_cache_release(struct schema_cache *cache, struct schema_hold *hold); /* takes zeroed */

#endif
