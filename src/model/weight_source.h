/* A model's weights in pieces, in the layout of model.h: from where the model has them, else
 * (opened for later) from its files or its random numbers. Several threads read at a time. */
#ifndef MODEL_WEIGHT_SOURCE_H
#define MODEL_WEIGHT_SOURCE_H

#include "model/model.h"
#include "model/weights.h"

/* Consecutive rows of a weight, within one group; a vector is one piece, with all its groups.
 * Where rows of two weights alternate in a file, those of both are one piece. */
struct weight_piece {
    int64_t weights[2]; /* second -1: none */
    int64_t group, row, n;
    size_t bytes; /* of each */
};

struct weight_source;
enum sol_status weight_source_open(const struct model *model, int threads,
                                   struct weight_source **out);
void weight_source_close(struct weight_source *source); /* takes NULL */

/* All weights but those that `skip` (or NULL) names, in order, in pieces of about `bytes`: rows of
 * a piece begin at a multiple of `rows_step`. The source's. */
enum sol_status weight_source_pieces(struct weight_source *source, size_t bytes, int64_t rows_step,
                                     const bool *skip, const struct weight_piece **out,
                                     int64_t *count);

/* Into `dst`, piece->bytes for each weight. `thread` is 0..threads-1 and used by one thread at a
 * time. */
enum sol_status weight_source_read(struct weight_source *source, int thread,
                                   const struct weight_piece *piece, void *dst);

#endif
