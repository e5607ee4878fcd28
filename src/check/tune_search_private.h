/* What the files of the search share. */
#ifndef CHECK_TUNE_SEARCH_PRIVATE_H
#define CHECK_TUNE_SEARCH_PRIVATE_H

#include "check/tune_search.h"
#include "ops/problem.h"

enum { TUNE_PROBLEMS_MAX = 192, TUNE_CLOSE_MAX = 8 };
#define TUNE_CLOSE 1.10 /* times the fastest: candidates that alone are nearly as fast */

/* The calls of one problem in a plan. */
struct tune_problem {
    struct op_problem problem;
    struct tune_calls calls; /* some, to time */
    int count;               /* all */
    int usual_v, usual_choice;
    size_t result;                               /* in the report, where it was timed; then too: */
    struct tune_candidate close[TUNE_CLOSE_MAX]; /* the fastest, and others that are close */
    double close_ns[TUNE_CLOSE_MAX];             /* of a call */
    int n_close;                                 /* 0: it was not timed */
};

struct tune_collection {
    const struct chooser *chooser;
    bool composites; /* these, else the primitives */
    struct plan *plan;
    struct tune_problem list[TUNE_PROBLEMS_MAX];
    int count;
};

/* Calls of the problem in a plan. */
int tune_calls_in(const struct plan *plan, const struct tune_problem *problem);
/* Makes the entry that of a candidate. */
void tune_take(struct tuning_entry *entry, const struct tune_candidate *candidate, double ns);

/* Tries in the step itself what alone is nearly as fast as the fastest, and keeps in the record,
 * and in the report, what is fastest there. */
enum sol_status tune_in_step(struct tune_search *search);

#endif
