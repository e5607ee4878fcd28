/* The place between two rows: enough to make all rows behind it again. */
#ifndef TRAIN_LOADER_POSITION_H
#define TRAIN_LOADER_POSITION_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "train/data_corpus.h"
#include "train/packing.h"

struct loader_place {
    uint64_t row;              /* rows before it, of all processes */
    struct corpus_cursor next; /* behind the documents that were taken */
    struct packing_state state;
    struct corpus_document *held; /* [state.documents]; room for as many as the packing holds */
};

/* What it is a place in, and is checked against. */
struct loader_data {
    const struct corpus *corpus;
    enum packing_kind packing;
    size_t buffer, refill;
};

enum sol_status loader_place_write(const struct loader_place *place, const struct loader_data *data,
                                   json_t **out);
/* `place->held` has room for `capacity` documents. */
enum sol_status loader_place_read(const json_t *from, const struct loader_data *data,
                                  size_t capacity, struct loader_place *place);

#endif
