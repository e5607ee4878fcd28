/* The noise between starts of a process. Repetitions of one process agree with each other better
 * than with those of the next start, so two stored runs can be compared only when it is known by
 * how much starts of the same thing differ: from several starts of each, from what was learnt on
 * this machine before, or from both.
 *
 * The starts of one run share its hour, and the two runs do not: what a machine does from one hour
 * to the next is at least what it does from one start to the next. So more starts make this noise
 * better known, not smaller, and the past is trusted as little as four measurements would be. */
#ifndef STATS_START_NOISE_H
#define STATS_START_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include "stats/figure.h"
#include "stats/statistics_shift.h"

struct start_noise {
    double sd; /* of the logarithm of a start's figure */
    double df; /* degrees of freedom it is known with; 0: not known */
};

enum {
    START_NOISE_DF_MAX = 30,  /* as much as the past may weigh against the runs themselves */
    START_NOISE_DF_TRUST = 3, /* of an interval: tomorrow's noise is not yesterday's */
    START_NOISE_DAYS = 30     /* after which nothing of it counts */
};

/* Adds what `count` starts of the same thing show; `values` above 0. */
void start_noise_add(struct start_noise *noise, const double *values, size_t count);
/* Adds what another measurement found. */
void start_noise_pool(struct start_noise *noise, const struct start_noise *other);
/* What is left of it after so long. */
struct start_noise start_noise_aged(const struct start_noise *noise, int64_t age_ns);

/* One of two runs that are compared. */
struct start_side {
    const struct figure *figure;
    const double *medians; /* of its starts: [figure->starts] */
};

/* The logarithm of the ratio of the two figures, new over old, with its interval by Student's t and
 * the p of no difference. Without an interval, and with p 1, where nothing says what starts do. */
void start_noise_shift(const struct start_side sides[2], const struct start_noise *known,
                       struct shift *out);

#endif
