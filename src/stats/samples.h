/* Repetitions of one measurement: when there are enough of them, which are outliers, what lies at a
 * percentile. Times are compared as ratios, so the arithmetic is on their logarithms. */
#ifndef STATS_SAMPLES_H
#define STATS_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "stats/figure.h"

struct sample {
    double ns;          /* of one repetition, or of what the metric's unit says */
    double joules;      /* of it, or of the mean of those up to it; NaN unknown */
    int64_t started_ns; /* since 1970 */
    int start;          /* the process start that it is of */
    bool warmup;        /* not counted */
    bool outlier;       /* outside Tukey's fences; counted */
    const char *cause; /* outside disturbance that made another repetition necessary; counted too */
};

/* When to stop repeating. */
struct stop_rule {
    int count;        /* exactly so many; 0: by precision */
    int least, most;  /* by precision: repetitions at least (6) and at most */
    double precision; /* figure.half to be reached: 0.005 */
    double seconds; /* of timed repetitions; then no more are begun, once there are `least_late` */
    int least_late;
};

enum stop_reason {
    STOP_NOT,         /* go on */
    STOP_COUNT,       /* as many as were asked for */
    STOP_PRECISION,   /* the interval is narrow enough */
    STOP_NOISE,       /* the spread no longer changes and the interval cannot get narrow in time */
    STOP_MOST,        /* by precision, but `most` were reached */
    STOP_TIME,        /* `seconds` are over */
    STOP_INTERRUPTED, /* by the user */
};
const char *stop_reason_name(enum stop_reason reason); /* "precision" */

/* `samples` without warm-ups. Those with a cause ask for one more each, five at most.
 */
enum stop_reason samples_stop(const struct stop_rule *rule, const struct sample *samples, size_t n,
                              double seconds);

/* How many there will be when samples_stop says so, at least `n` and as far as the first `n` and
 * the `seconds` that they took tell: the half of the interval shrinks with the root. */
size_t samples_expected(const struct stop_rule *rule, const struct sample *samples, size_t n,
                        double seconds);

/* Their figure, each time divided by `per`: a repetition's tokens for ns per token. */
enum sol_status samples_figure(const struct sample *samples, size_t n, double per,
                               struct figure *out);
/* The same of `joules`, where it is known. */
enum sol_status samples_energy(const struct sample *samples, size_t n, double per,
                               struct figure *out);

/* Whether the last three differ by at most `part` (0.01). */
bool samples_settled(const struct sample *samples, size_t n, double part);

/* Marks those beyond 1.5 interquartile ranges outside the quartiles of the logarithms. Does nothing
 * for fewer than 4. Returns how many there are. */
size_t samples_label_outliers(struct sample *samples, size_t n);

/* The value below which `part` (0.5, 0.99) of `sorted` lies, linear between neighbours. n >= 1. */
double samples_percentile(const double *sorted, size_t n, double part);
void samples_sort(double *values, size_t n);

#endif
