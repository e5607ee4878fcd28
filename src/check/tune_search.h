/* The search itself, whatever the step: each problem of its plan is timed with every kernel and
 * choice that can run it, and the fastest goes into the record. tune.h has steps of inference,
 * tune_train.h those of training. */
#ifndef CHECK_TUNE_SEARCH_H
#define CHECK_TUNE_SEARCH_H

#include <stdbool.h>

#include "check/tune_measure.h"
#include "ops/tuning.h"

/* TUNE_KNOWN: the record has it already, and it was not timed. */
enum tune_state { TUNE_LISTED, TUNE_KEPT, TUNE_FASTER, TUNE_NOT_REACHED, TUNE_KNOWN };

struct tune_result {
    enum tune_state state;
    const char *step;  /* the name of the step the problem belongs to; NULL: it has rows alone */
    int64_t step_rows; /* of that step */
    int calls;         /* in that step; 0: only inside a composite that another kernel serves */
    int candidates;    /* that can run, the usual one included */
    int wrong;         /* of them, results far from the usual one's: never taken */
    int large;         /* of them, more scratch than there is room for: never taken */
    struct tuning_entry
        entry; /* what the record gets, or would: without times where none were taken */
    double gain, low, high; /* as in struct tune_choice */
    double step_gain; /* by how much the step is faster with it than with what is fastest alone; 0:
                       * that is the same */
};

/* A whole step, once with the usual kernels and once with the tuned ones, in turn. */
struct tune_step {
    const char *name; /* or NULL */
    int64_t rows;
    double expected_ns;  /* less, by the calls' own times */
    double usual_ns, ns; /* medians; 0: not measured */
    double low, high;    /* of usual over tuned, less 1 */
};

struct tune_report {
    struct tune_result *results;
    struct tune_step *steps; /* [n_steps]; the search's caller makes room for all */
    size_t count, capacity, n_steps;
    int wrong;
    double seconds;
};
void tune_report_free(struct tune_report *report); /* takes a zeroed one */

struct tune_collection;

/* One step at a time: `site`, what says which step, and how it is made are set before each. */
struct tune_search {
    struct tune_site site; /* its chooser has `found` as its record */
    struct chooser usual;  /* without a record */
    struct tuning *found;
    struct tune_report *report;
    const char *step;
    int64_t step_rows;
    bool list_only;  /* find the problems, time nothing */
    bool again;      /* time also what `found` has */
    uint64_t end_ns; /* of the time for this step */

    /* A plan of the step, on the buffers that a step uses. `on_choice` as plan_on_choice. */
    enum sol_status (*make_plan)(void *arg, const struct chooser *chooser, plan_choice_fn on_choice,
                                 void *choice_arg, struct plan **out);
    /* Leaves in the buffers what a step leaves there; where it can, what the step's call with these
     * args reads, if that is a step of `plan`. */
    enum sol_status (*make_step)(void *arg, struct plan *plan, const void *args);
    void *arg; /* of both */

    struct tune_collection *primitives, *composites; /* the search's own */
    bool late;
};

/* Searches all problems of the step, and compares the step as it was and as it is tuned. Adds to
 * `found` and `report`, which have what was finished also after an error. */
enum sol_status tune_search_step(struct tune_search *search);

#endif
