/* Byte-pair merging over token ids. The table is filled once, in the order of rank, and then only
 * read. */
#ifndef MODEL_BPE_H
#define MODEL_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct bpe;

enum sol_status bpe_create(size_t n_merges, struct bpe **out);
void bpe_destroy(struct bpe *bpe); /* takes NULL */

/* The next merge: `left` `right` becomes `merged`. At most n_merges calls. Consecutive merges into
 * the same token share a rank, so that the leftmost applies first, as in tiktoken, where the rank
 * is that of the merged token. False when the pair is there already. */
bool bpe_add(struct bpe *bpe, int32_t left, int32_t right, int32_t merged);

/* The next merge gets a rank of its own whatever it makes, as in the `tokenizers` library. */
void bpe_new_rank(struct bpe *bpe);

/* Merges ids[0..*count) in place: the pair of lowest rank first, of equal ones the leftmost, until
 * no pair is in the table. O(n log n). Fails only for want of memory. */
enum sol_status bpe_merge(const struct bpe *bpe, int32_t *ids, size_t *count);

#endif
