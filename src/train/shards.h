/* How ranks share an update: of every table of AdamW each has a block of rows, of every stack of
 * Muon a block of matrices, and updates what is its own. Blocks are of one size, so the last ones
 * may have less, or nothing; behind the last row is room for all of theirs (params.c). What is
 * small is not parted: all ranks update it alike. */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "ops/args.h"
#include "train/params.h"

/* Rows of a parameter, or matrices of a stack. */
struct shard {
    bool parted;
    int64_t block;        /* of each rank; all units where it is not parted */
    int64_t first, count; /* this rank's */
};

/* Units that are parted, padded to whole blocks; `units` where they are not. */
int64_t shard_padded(int64_t units, int64_t numbers_of_one, int ranks);
struct shard shard_of(int64_t units, int64_t numbers_of_one, int ranks, int rank);

struct shard shard_of_param(const struct param *p, int ranks, int rank); /* not of Muon */
struct shard shard_of_stack(const struct param_stack *s, int ranks, int rank);

/* Arguments of a collective on the units that lie at `m`, each of `numbers_of_one`. */
struct collective_args shard_collective(const struct shard *s, const struct matrix *m,
                                        int64_t numbers_of_one, int ranks);

#endif
