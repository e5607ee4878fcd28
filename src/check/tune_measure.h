/* The calls of one problem, timed and checked with several variants: the measuring half of tune.h.
 */
#ifndef CHECK_TUNE_MEASURE_H
#define CHECK_TUNE_MEASURE_H

#include "check/tune_select.h"
#include "ops/plan.h"

/* Where the calls run: on the buffers of a step, which left there what they read. */
struct tune_site {
    const struct op_context *context;
    struct chooser chooser; /* with what is tuned so far: calls within a composite follow it */
    /* Calls whose time depends on it are timed at several depths of their contexts, which this
     * sets. NULL: there are no such calls. */
    enum sol_status (*place)(void *arg, int64_t depth);
    void *arg;
    const int64_t *depths; /* [n_depths] */
    size_t n_depths;
    /* Leaves in the buffers again what a step leaves there, behind calls that wrote more than was
     * kept aside; what calls update is always kept. */
    enum sol_status (*renew)(void *arg);
    void *renew_arg;
    size_t most_scratch;           /* bytes that a candidate may need; 0: any */
    struct gpu_event *start, *end; /* NULL on the CPU */
    void *scratch; /* of the candidates, one of which runs at a time; while they are measured */
    size_t scratch_bytes;
};

enum sol_status tune_site_open(struct tune_site *site); /* the events; the rest is set before */
void tune_site_close(struct tune_site *site);

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
    bool large; /* out: it needs more scratch than there is; not even looked at */
};

/* Chooses among `n` candidates. Times are of one call. SOL_E_MEMORY where the usual one does not
 * fit. */
enum sol_status tune_measure(struct tune_site *site, const struct tune_calls *calls,
                             struct tune_candidate *candidates, int n, int usual,
                             struct tune_choice *out);

#endif
