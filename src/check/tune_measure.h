/* The calls of one problem, timed and checked with several variants: the measuring half of tune.h.
 */
#ifndef CHECK_TUNE_MEASURE_H
#define CHECK_TUNE_MEASURE_H

#include "check/tune_select.h"
#include "infer/engine.h"

/* Where the calls run: an engine whose last step left what they read. */
struct tune_site {
    struct engine *engine;
    struct chooser chooser; /* with what is tuned so far: calls within a composite follow it */
    const struct engine_row *rows;
    int64_t n_rows, sequences;
    const int64_t *depths; /* of those calls whose time depends on it */
    size_t n_depths;
    struct gpu_event *start, *end; /* NULL on the CPU */
};

enum sol_status tune_site_open(struct tune_site *site); /* the events; the rest is set before */
void tune_site_close(struct tune_site *site);
/* Every sequence of the step `depth` tokens long, and the batch in place. */
enum sol_status tune_site_place(struct tune_site *site, int64_t depth);

/* Nanoseconds of `times` runs of a plan, for one. */
enum sol_status tune_time_plan(const struct tune_site *site, struct plan *plan, int times,
                               double *ns);
/* Runs that make a measurement long enough for the clock; the plan has run before. */
enum sol_status tune_plan_times(const struct tune_site *site, struct plan *plan, int *times);
/* Runs it twice: the first loads kernels, the second makes a graph of them. */
enum sol_status tune_warm_up(const struct tune_site *site, struct plan *plan);

enum { TUNE_SETS_MAX = 40 };

/* Calls of the same problem in different layers. */
struct tune_calls {
    const struct op *op;
    const void *args[TUNE_SETS_MAX];
    int n;
};
struct tune_candidate {
    int v, choice;
    bool wrong; /* out: its results are far from the usual one's; not timed */
    bool slow;  /* out: far slower at the first look, or it does not start; not timed either */
};

/* Chooses among `n` candidates. Times are of one call. */
enum sol_status tune_measure(struct tune_site *site, const struct tune_calls *calls,
                             struct tune_candidate *candidates, int n, int usual,
                             struct tune_choice *out);

#endif
