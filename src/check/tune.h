/* Searches for the fastest variant and choice of each problem that a model's steps consist of: on
 * the model's own weights, layer after layer, as a step reads them, with the routing and the cache
 * of a step before. `sol tune` keeps the result (ops/tuning_file.h). */
#ifndef CHECK_TUNE_H
#define CHECK_TUNE_H

#include <stdbool.h>

#include "check/tune_search.h"
#include "infer/engine.h"

/* Steps of so many rows: each of a sequence of its own up to here, of one sequence beyond. */
enum { TUNE_SEQUENCES_MAX = 128 };

struct tune_params {
    struct engine_params engine; /* the chooser's forces stay, and what they name is not searched */
    const int64_t *rows, *depths; /* depths: what attention is timed at */
    const int64_t *sequences;     /* further steps: of so many sequences with a row each */
    size_t n_rows, n_depths, n_sequences;
    double seconds; /* for all; what is not reached stays as it was */
    bool list_only; /* find the problems, time nothing */
    bool again;     /* time also what is known */
};

/* Adds what it finds to `found`, which may hold earlier entries: their problems are not timed
 * again, unless params->again. After an error, or when the user
 * interrupts, `found` and `report` have what was finished. Depths beyond the model's context count
 * as the deepest possible. */
enum sol_status tune_run(const struct model *model, const struct tune_params *params,
                         struct tuning *found, struct tune_report *report);

#endif
