/* Byte-pair merging over token ids. The table is filled once, in the order of rank, and then only
 * read. */
#ifndef TOK_BPE_H
#define TOK_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct bpe;

enum sol_status bpe_create(size_t n_merges, struct bpe **out);
void bpe_destroy(struct bpe *bpe); /* takes NULL */

/* The next merge: `left` `right` becomes `merged`. At most n_merges calls, and less than 2^32.
 * False when the pair is there already.
 *
 * tiktoken ranks merges by what they make, so that all ways to make a token are equal. That gives
 * the same ids as a rank for each: where a merge is about to make a token, its text has been cut in
 * two by the merges before, which cut the same text the same way wherever it stands. So of several
 * merges into one token only one is ever applied. */
bool bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged);

/* Merges ids[0..*count) in place: the pair of lowest rank first, of equal ones the leftmost, until
 * no pair is in the table. O(n log n). Fails only for want of memory. */
enum sol_status bpe_merge(const struct bpe *bpe, int32_t *ids, size_t *count);

#endif
