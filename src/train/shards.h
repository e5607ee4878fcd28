/* How ranks share an update: what is parted lies in pieces, one behind the other, and of each piece
 * every rank has a block and updates it: of every table of AdamW a block of rows, of every stack of
 * Muon blocks of matrices. Blocks of a piece are of one size, so the last ones may have less, or
 * nothing; behind the last unit is room for all of theirs (params.c). What is small is not parted:
 * all ranks update it alike. */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "ops/args.h"

/* Of `units`: rows of a parameter, or matrices of a stack. */
struct shard {
    bool parted;
    int ranks, rank, pieces;
    int64_t units,
        block; /* block: of each rank, in all pieces but the last, where it may be less */
};

struct piece {
    int64_t first,
        block;          /* ranks * block units from `first` on; one block where nothing is parted */
    int64_t own, count; /* this rank's of them, from unit `own` on */
};

/* `pieces`: at most so many. */
struct shard shard_of(int64_t units, int64_t numbers_of_one, int ranks, int rank, int pieces);
struct piece shard_piece(const struct shard *s, int i);
/* This rank's among the units before `unit`; before s->units: all of its own. */
int64_t shard_own(const struct shard *s, int64_t unit);
/* Units with the room behind them. */
int64_t shard_padded(const struct shard *s);

/* Arguments of a collective on a piece of the units that lie at `m`, each of `numbers_of_one`. */
struct collective_args shard_collective(const struct shard *s, const struct piece *p,
                                        const struct matrix *m, int64_t numbers_of_one);

#endif
