/* Which snapshots of an engine hold the beginning of a prompt. A tree of tokens for each salt; a
 * snapshot stands where its tokens end. Tokens are compared, not hashes of them, and nothing is
 * found under another salt, so that who has no key learns nothing of what others asked.
 *
 * All calls but prefix_cache_match come from the thread that owns the engine. */
#ifndef SCHEDULE_PREFIX_CACHE_H
#define SCHEDULE_PREFIX_CACHE_H

#include "infer/engine.h"

struct prefix_cache;

struct prefix_cache_counts {
    int64_t hits, reused;         /* found and used; their tokens */
    int64_t kept, taken, evicted; /* snapshots: now, and all so far */
};

/* For an engine, the caller's, with `slots` snapshots (engine_params), of which nobody else takes
 * any; 0: nothing is ever found. */
enum sol_status prefix_cache_create(struct engine *engine, int64_t slots,
                                    struct prefix_cache **out);
void prefix_cache_destroy(struct prefix_cache *cache); /* before its engine; takes NULL */

/* The slot of the longest snapshot that begins tokens[n] and holds at most `most` of them; -1:
 * none. It is pinned until prefix_cache_unpin. */
int32_t prefix_cache_find(struct prefix_cache *cache, uint64_t salt, const int32_t *tokens,
                          int64_t n, int64_t most);
void prefix_cache_unpin(struct prefix_cache *cache, int32_t slot, bool used);
/* How many tokens that snapshot holds; 0: there is none. From any thread, and nothing changes. */
int64_t prefix_cache_match(struct prefix_cache *cache, uint64_t salt, const int32_t *tokens,
                           int64_t n, int64_t most);

/* Keeps what a sequence, which holds tokens, had at its position n (engine_snapshot says which are
 * possible). Takes the slot that was of no use for the longest time; where all are pinned, or this
 * one is there already, it does nothing. Errors: no memory, or engine_snapshot's. */
enum sol_status prefix_cache_keep(struct prefix_cache *cache, uint64_t salt, const int32_t *tokens,
                                  int64_t n, int32_t sequence);

/* Gives snapshots up until the engine has so many free positions: those that were of no use for the
 * longest time first, and what begins others last. false: all that could be given up is, and there
 * are fewer. */
bool prefix_cache_make_room(struct prefix_cache *cache, int64_t positions);
void prefix_cache_clear(struct prefix_cache *cache); /* all but the pinned ones */

struct prefix_cache_counts prefix_cache_count(const struct prefix_cache *cache);

#endif
