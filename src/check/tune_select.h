/* Which of several ways to do the same thing is fastest, beyond the noise. The usual one stays
 * unless another one wins twice: among all, and then against it alone. */
#ifndef CHECK_TUNE_SELECT_H
#define CHECK_TUNE_SELECT_H

#include "base/status.h"

enum { TUNE_CANDIDATES_MAX = 64 };
#define TUNE_LEAST_GAIN 0.01 /* of what is timed alone */

/* Does it once and says how long that took. */
typedef enum sol_status (*tune_time_fn)(void *arg, int candidate, double *ns);

struct tune_choice {
    int fastest;         /* the usual one unless another one won */
    double ns, usual_ns; /* medians of the same rounds; equal where the usual one stays */
    /* By how much it is faster: usual over fastest, less 1. Of the rounds against it alone, with an
     * interval of at least 95 %; all 0 where the usual one stays. */
    double gain, low, high;
    double each[TUNE_CANDIDATES_MAX]; /* medians of the rounds among all; 0: left out, far behind */
};

/* `n` candidates of 1 to TUNE_CANDIDATES_MAX, in turn so that drifts meet all of them. Those that
 * are far behind are soon left out. A candidate replaces the usual one if it is faster by more than
 * `least` (0.01: 1 %) and the interval excludes 0. */
enum sol_status tune_select(tune_time_fn time, void *arg, int n, int usual, double least,
                            struct tune_choice *out);

#endif
