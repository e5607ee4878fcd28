/* How long a list of tests will take, from a few short ones. */
#ifndef BENCH_ESTIMATE_H
#define BENCH_ESTIMATE_H

#include "bench/bench.h"

/* Seconds of each of `n` tests, warm-up and repetitions, into seconds[n]. Runs a short prompt and a
 * few steps: alone, at the greatest depth and with the most sequences that occur in `tests`. */
enum sol_status bench_estimate(const struct model *model, const struct bench_params *params,
                               const struct bench_test *tests, size_t n, double *seconds);

#endif
