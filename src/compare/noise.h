/* The machine's own noise: measurements of the same thing in a row, and what comparisons make of
 * them. */
#ifndef COMPARE_NOISE_H
#define COMPARE_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "compare/compare.h"

/* `n` >= 2 figures of runs that followed each other; borrowed. */
struct noise {
    const double *values;
    size_t n;
};

/* One pair of a comparison of the same thing with itself: neighbours in the record, in either
 * order. `factor` makes the second one longer: 1.02 plants a slow-down of 2 %. */
void noise_pair(const struct noise *noise, struct rng *rng, double factor, double pair[2]);

/* A whole live comparison on such pairs: the same statistics, the same rule when to stop. `out` is
 * freed with compare_result_free and has one metric. */
enum sol_status noise_compare(const struct noise *noise, struct rng *rng, double factor,
                              double delta, size_t max_pairs, struct compare_result *out);

/* The 95th percentile of the differences that comparisons of the same thing show by chance, each of
 * just so many pairs: 0.012 is 1.2 %. */
enum sol_status noise_margin(const struct noise *noise, size_t pairs, uint64_t seed, double *out);

/* The 95th percentile of the differences that `trials` comparisons of the same thing show, each of
 * at most `max_pairs` pairs, as a fraction: 0.012 is 1.2 %. */
enum sol_status noise_limit(const struct noise *noise, size_t max_pairs, size_t trials,
                            uint64_t seed, double *out);

#endif
