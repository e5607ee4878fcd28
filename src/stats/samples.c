#include "stats/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats/statistics.h"

enum {
    REPEATS_MAX = 5, /* on a machine that is never quiet, more would not help */
    /* The spread counts as settled when its estimates over so many repetitions stay within 5 %. */
    NOISE_WINDOW = 6,
    FENCE_LEAST = 4, /* values for quartiles to mean anything */
};

const char *stop_reason_name(enum stop_reason reason)
{
    static const char *const names[] = {"running", "count", "precision",  "noise",
                                        "most",    "time",  "interrupted"};
    return names[reason];
}

/* Standard deviation of the logarithms: for small spreads, the relative one. */
static double log_sd(const struct sample *samples, size_t n)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) mean += log(samples[i].ns);
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double off = log(samples[i].ns) - mean;
        squares += off * off;
    }
    return n > 1 ? sqrt(squares / (double)(n - 1)) : (double)INFINITY;
}

static enum sol_status figure_by(const struct sample *samples, size_t n, double per, bool energy,
                                 struct figure *out)
{
    struct figure_value *values = calloc(n + 1, sizeof *values);
    size_t count = 0;
    if (!values) return status_set(SOL_E_MEMORY, "no memory for %zu repetitions", n);
    for (size_t i = 0; i < n; i++) {
        double value = (energy ? samples[i].joules : samples[i].ns) / per;
        if (!isnan(value)) values[count++] = (struct figure_value){value, samples[i].start};
    }
    enum sol_status status = figure_of(values, count, out);
    free(values);
    return status;
}

enum sol_status samples_figure(const struct sample *samples, size_t n, double per,
                               struct figure *out)
{
    return figure_by(samples, n, per, false, out);
}

enum sol_status samples_energy(const struct sample *samples, size_t n, double per,
                               struct figure *out)
{
    return figure_by(samples, n, per, true, out);
}

/* NaN where there are too few. */
static double figure_half(const struct sample *samples, size_t n)
{
    struct figure figure;
    return samples_figure(samples, n, 1, &figure) == SOL_OK ? figure.half : (double)NAN;
}

/* Whether the spread has settled, at a size for which even `most` repetitions would not do. */
static bool hopeless(const struct stop_rule *rule, const struct sample *samples, size_t n)
{
    double low = (double)INFINITY, high = 0;
    if (n < (size_t)rule->least + NOISE_WINDOW) return false;
    for (size_t i = n - NOISE_WINDOW; i < n; i++) {
        double sd = log_sd(samples, i + 1);
        low = fmin(low, sd);
        high = fmax(high, sd);
    }
    /* The interval of a median is sqrt(pi / 2) times that of a mean. */
    double best = 1.2533 * statistics_t95((size_t)rule->most) * high / sqrt((double)rule->most);
    return high - low <= 0.05 * high && best > rule->precision;
}

enum stop_reason samples_stop(const struct stop_rule *rule, const struct sample *samples, size_t n,
                              double seconds)
{
    int repeats = 0;
    if (rule->count) return n >= (size_t)rule->count ? STOP_COUNT : STOP_NOT;
    for (size_t i = 0; i < n && repeats < REPEATS_MAX; i++) repeats += samples[i].cause != NULL;
    if (n >= (size_t)rule->least_late && seconds >= rule->seconds) return STOP_TIME;
    if (n >= (size_t)rule->most) return STOP_MOST;
    if (n < (size_t)rule->least + (size_t)repeats) return STOP_NOT;
    if (figure_half(samples, n) <= rule->precision) return STOP_PRECISION;
    return hopeless(rule, samples, n) ? STOP_NOISE : STOP_NOT;
}

size_t samples_expected(const struct stop_rule *rule, const struct sample *samples, size_t n,
                        double seconds)
{
    double wanted = rule->count, half = figure_half(samples, n);
    if (rule->count || n == 0) return wanted > (double)n ? (size_t)wanted : n;
    wanted = fmax(rule->least, (double)n);
    if (half > rule->precision)
        wanted = fmax(wanted, ceil((double)n * half * half / (rule->precision * rule->precision)));
    wanted = fmin(wanted, rule->most);
    double one = seconds / (double)n, late = fmax(ceil(rule->seconds / one), rule->least_late);
    return (size_t)fmax(fmin(wanted, late), (double)n);
}

bool samples_settled(const struct sample *samples, size_t n, double part)
{
    if (n < 3) return false;
    double low = samples[n - 1].ns, high = low;
    for (size_t i = n - 3; i < n; i++) {
        low = fmin(low, samples[i].ns);
        high = fmax(high, samples[i].ns);
    }
    return high <= low * (1 + part);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void samples_sort(double *values, size_t n)
{
    if (n) qsort(values, n, sizeof *values, compare); /* without values there may be no array */
}

double samples_percentile(const double *sorted, size_t n, double part)
{
    double at = part * (double)(n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= n) return sorted[n - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

size_t samples_label_outliers(struct sample *samples, size_t n)
{
    double *logs = n < FENCE_LEAST ? NULL : malloc(n * sizeof *logs);
    size_t count = 0;
    if (!logs) return 0; /* labels are a comment; without memory there is none */
    for (size_t i = 0; i < n; i++) logs[i] = log(samples[i].ns);
    samples_sort(logs, n);
    double low = samples_percentile(logs, n, 0.25), high = samples_percentile(logs, n, 0.75);
    double reach = 1.5 * (high - low);
    free(logs);
    for (size_t i = 0; i < n; i++) {
        double value = log(samples[i].ns);
        samples[i].outlier = value < low - reach || value > high + reach;
        count += samples[i].outlier;
    }
    return count;
}
