#include "stats/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double statistics_t95(size_t degrees_of_freedom)
{
    static const double table[] = {
        12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004,
        2.262157,  2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905,
        2.109816,  2.100922, 2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899,
        2.059539,  2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
    };
    size_t known = sizeof table / sizeof *table;
    if (degrees_of_freedom == 0) return INFINITY;
    if (degrees_of_freedom <= known) return table[degrees_of_freedom - 1];
    /* Cornish-Fisher expansion around the normal quantile; wrong by less than 1e-6 from here on. */
    double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    double v = (double)degrees_of_freedom;
    return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum sol_status statistics_of(const double *values, size_t count, struct statistics *out)
{
    *out = (struct statistics){.count = count};
    if (count == 0) return status_set(SOL_E_INTERNAL, "statistics of no values");
    double *sorted = malloc(count * sizeof *sorted);
    if (!sorted) return status_set(SOL_E_MEMORY, "no memory for %zu measurements", count);
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    out->min = sorted[0];
    out->max = sorted[count - 1];
    out->median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    free(sorted);

    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    out->mean = sum / (double)count;
    if (count < 2) return SOL_OK;
    for (size_t i = 0; i < count; i++) {
        double off = values[i] - out->mean;
        squares += off * off;
    }
    out->sd = sqrt(squares / (double)(count - 1));
    out->standard_error = out->sd / sqrt((double)count);
    double half = statistics_t95(count - 1) * out->standard_error;
    out->ci_low = out->mean - half;
    out->ci_high = out->mean + half;
    out->has_interval = true;
    return SOL_OK;
}
