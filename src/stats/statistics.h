/* Summary of repeated measurements. */
#ifndef STATS_STATISTICS_H
#define STATS_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct statistics {
    size_t count;
    double median, mean, min, max;
    /* Of two values and more; 0 and has_interval false otherwise. */
    double sd;              /* of the sample, n - 1 in the denominator */
    double standard_error;  /* of the mean */
    double ci_low, ci_high; /* 95 % interval of the mean by Student's t */
    bool has_interval;
};

/* `count` of at least 1 finite values, in any order. */
enum sol_status statistics_of(const double *values, size_t count, struct statistics *out);

/* The 97.5 % point of Student's t: half the width of a 95 % interval in standard errors. */
double statistics_t95(size_t degrees_of_freedom);

#endif
