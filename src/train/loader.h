/* Batches of rows, made ahead of their use. Threads of the loader's own read and tokenize
 * documents, one packs them (packing.h) and sorts the tokens; a bounded number of batches waits.
 * Rows have numbers: row r is the same whatever the number of threads and however many rows a batch
 * has, so several processes that each take their share of the same batches train on what one would.
 *
 * Errors on those threads (a damaged line, a token that the model lacks) come out of loader_next,
 * after the batches before them. */
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "train/data_corpus.h"
#include "train/packing.h"

struct loader_options {
    const struct corpus *corpus; /* borrowed */
    enum packing_kind packing;
    int64_t tokens;     /* T: a row gives T inputs and T targets */
    int64_t rows;       /* of a batch */
    int64_t total_rows; /* that all processes take together, 0: rows; of these this one takes `rows`
                           ... */
    int64_t first_row;  /* ... from here on */
    size_t buffer;      /* PACKING_BEST_FIT: documents to choose from */
    size_t refill;
    int threads;            /* that tokenize */
    int ahead;              /* batches that wait at most */
    const json_t *position; /* where to go on, from loader_position; NULL: at the beginning */
};

/* nanochat's numbers: 1000 documents, 128 at a time. Best fit, except where documents are texts of
 * any length, of which it would keep only the beginnings, and rows filled up where they are
 * conversations. As many threads as a machine of this size has to spare, 4 at most. */
void loader_options_init(const struct corpus *corpus, struct loader_options *options);

/* The loader's; until the next call. */
struct train_batch {
    int64_t rows, tokens;
    const int32_t *x;     /* [rows][tokens] */
    const int32_t *y;     /* [rows][tokens]: what follows each x; -1: not to be learnt */
    const int32_t *order; /* [rows * tokens]: positions in x by rising token, those of one by rising
                             position */
    const void *block;    /* x, y and order, one after the other: one copy to a device */
    size_t block_bytes;
    uint64_t first;               /* number of its first row of all processes' rows */
    uint64_t epoch;               /* of the last document that was read for it; the first is 1 */
    uint64_t document;            /* documents read of that epoch */
    struct packing_counts counts; /* since the loader was opened */
};

struct loader;

/* SOL_E_ARGUMENT where best fit has no token that begins documents, and where the position is not
 * one of this corpus and packing. */
enum sol_status loader_open(const struct loader_options *options, struct loader **out);
enum sol_status loader_next(struct loader *loader, struct train_batch *out);
/* What was given so far is used: the position is behind it. */
void loader_mark(struct loader *loader);
/* Where the batch begins that came behind the last mark, or first: a loader opened there gives the
 * same batches, bit by bit. Its rows and threads may be others. A new reference. */
enum sol_status loader_position(const struct loader *loader, json_t **out);
void loader_close(struct loader *loader); /* takes NULL; does not wait for the end of a document */

#endif
