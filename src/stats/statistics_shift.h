/* By how much one set of measurements differs from another, how sure that is, and whether chance
 * explains it. Nothing here assumes a normal distribution: times have one long tail.
 *
 * For ratios pass natural logarithms: a shift of 0.01 is then a change of 1.005 %. */
#ifndef STATS_STATISTICS_SHIFT_H
#define STATS_STATISTICS_SHIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    SHIFT_VALUES_MAX = 2048,     /* more are refused: work and memory grow with the square */
    SHIFT_EXACT_PAIRED = 200,    /* up to here p is exact, beyond a normal approximation */
    SIGN_FLIP_EXACT = 20,        /* up to here every pattern of signs is counted */
    SIGN_FLIP_DRAWS = 100000 - 1 /* beyond: so many random ones, and the observed one */
};

struct shift {
    double estimate;   /* Hodges-Lehmann: the median of all means of two */
    double low, high;  /* confidence of at least 95 %; -+INFINITY when there are too few values */
    bool has_interval; /* low and high are finite */
    double p;          /* two-sided; in (0, 1] */
    bool exact;        /* p and interval count every arrangement */
};

/* Differences of `n` >= 1 pairs: signed ranks. p is that of the sign-flip permutation test of the
 * ranks (ties get their mean rank, zeros are left out); the interval inverts it. */
enum sol_status shift_paired(const double *differences, size_t n, struct shift *out);

struct sign_flip {
    double p;          /* two-sided; at least `resolution` */
    double resolution; /* the smallest p that could come out: 2/2^n, or 1/(draws + 1) */
    bool exact;
};

/* Sign-flip permutation test of the mean of `n` >= 1 differences: among all ways to give them
 * signs, the share whose mean is as far from 0. More powerful than ranks on quiet machines; a
 * single wild value can hide a shift from it. `seed` matters only beyond SIGN_FLIP_EXACT. */
enum sol_status shift_sign_flip(const double *differences, size_t n, uint64_t seed,
                                struct sign_flip *out);

#endif
