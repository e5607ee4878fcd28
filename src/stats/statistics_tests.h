/* Small tests and corrections. */
#ifndef STATS_STATISTICS_TESTS_H
#define STATS_STATISTICS_TESTS_H

#include <stddef.h>

/* Holm: adjusted[i] is p[i] as one of `n` that were looked at together. */
void statistics_holm(const double *p, size_t n, double *adjusted);

/* How surprising `hits` of `trials` are when each has chance `rate`: two-sided (every outcome that
 * is no more likely counts), and that of so many or more. */
double statistics_binomial(size_t hits, size_t trials, double rate);
double statistics_binomial_more(size_t hits, size_t trials, double rate);

/* Two-sided: how often Student's t with `df` > 0 degrees of freedom is as far from 0. */
double statistics_t_p(double t, double df);

/* Clopper-Pearson 95 % interval of a rate. */
void statistics_rate_interval(size_t hits, size_t trials, double *low, double *high);

/* The value that a share `q` (0..1) of `n` >= 1 values lies below; between two values it is
 * interpolated linearly. Sorts `values`. */
double statistics_quantile(double *values, size_t n, double q);

#endif
