/* Searches for the fastest variant and choice of each problem that a model's steps consist of: on
 * the model's own weights, layer after layer, as a step reads them, with the routing and the cache
 * of a step before. `sol tune` keeps the result (ops/tuning_file.h). */
#ifndef CHECK_TUNE_H
#define CHECK_TUNE_H

#include <stdbool.h>

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
};

enum tune_state { TUNE_LISTED, TUNE_KEPT, TUNE_FASTER, TUNE_NOT_REACHED };

struct tune_result {
    enum tune_state state;
    int64_t step_rows; /* of the step the problem belongs to */
    int calls;         /* in that step; 0: only inside a composite that another kernel serves */
    int candidates;    /* that can run, the usual one included */
    int wrong;         /* of them, results far from the usual one's: never taken */
    struct tuning_entry
        entry; /* what the record gets, or would: without times where none were taken */
    double gain, low, high; /* as in struct tune_choice */
};

/* A whole step, once with the usual kernels and once with the tuned ones, in turn. */
struct tune_step {
    int64_t rows;
    double expected_ns;  /* less, by the calls' own times */
    double usual_ns, ns; /* medians; 0: not measured */
    double low, high;    /* of usual over tuned, less 1 */
};

struct tune_report {
    struct tune_result *results;
    struct tune_step *steps;
    size_t count, capacity, n_steps;
    int wrong;
    double seconds;
};

/* Adds what it finds to `found`, which may hold earlier entries. After an error, or when the user
 * interrupts, `found` and `report` have what was finished. Depths beyond the model's context count
 * as the deepest possible. */
enum sol_status tune_run(const struct model *model, const struct tune_params *params,
                         struct tuning *found, struct tune_report *report);
void tune_report_free(struct tune_report *report); /* takes a zeroed one */

#endif
