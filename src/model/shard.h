/* A model that ranks have in parts. Where each layer is cut, each rank has of attention some key
 * heads and the query heads that read them; of every expert, or of the block behind attention, some
 * of the intermediate numbers, in whole blocks of the formats, or else some of the experts whole;
 * of the head some of the vocabulary. Norms, embedding and router all have. What a rank makes of
 * its parts is added up: biases of those sums are rank 0's and zeros elsewhere, but whole experts
 * keep theirs. All of it follows from the shapes in the architectures' tables.
 *   Or ranks have whole layers that follow each other, rank 0 the last ones and the head, so that
 * what comes out is where tokens are drawn; the last rank has the first ones and the embedding. */
#ifndef MODEL_SHARD_H
#define MODEL_SHARD_H

#include "model/model.h"

enum { SHARD_RANKS_MAX = 16 };

enum shard_way {
    SHARD_TENSOR, /* tensor parallel: a part of everything, so that all ranks have the same to do */
    SHARD_EXPERT, /* expert parallel: some of the experts whole, all else as above */
    SHARD_PIPELINE, /* pipeline parallel: some of the layers, whole */
};

/* What results say of a run: "expert_parallel", "pipeline_parallel"; NULL: nothing. */
const char *shard_way_key(enum shard_way way);

/* SOL_E_UNSUPPORTED where some rank would have nothing, with how many ranks are possible. */
enum sol_status shard_check(const struct model *model, int ranks, enum shard_way way);
/* The rank that has most weights. */
int shard_heaviest(const struct model *model, int ranks, enum shard_way way);

/* The part of `rank`, with shapes and types and without weights: for model_upload (src/model/
 * upload.h), or shard_load. `whole` may be opened for later, and must outlive it. */
enum sol_status shard_create(const struct model *whole, int rank, int ranks, enum shard_way way,
                             struct model **out);
/* Its weights in the host's memory, read from where the whole model has them; `threads` read. */
enum sol_status shard_load(struct model *part, int threads);
void shard_destroy(struct model *part); /* takes NULL */

/* Where the weight of that number begins in the whole one: a group, a row of each, a column. */
struct shard_place {
    int64_t group, row, col;
    bool zeros; /* another rank has it */
};
struct shard_place shard_place(const struct model *part, int64_t index);

#endif
