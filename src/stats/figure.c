#include "stats/figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "stats/statistics.h"

static const double unknown = (double)NAN;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_start(const void *a, const void *b)
{
    const struct figure_value *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static double median_of(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* Which value from either end of n sorted ones, counted from 1, bounds the median in at least 95 %
 * of all cases: a coin thrown n times shows fewer heads in at most 2.5 %. n >= FIGURE_LEAST. */
static size_t bound_of(size_t n)
{
    double log_chance = -(double)n * log(2), sum = 0; /* of k heads; of k or fewer */
    size_t k = 0;
    while ((sum += exp(log_chance)) <= 0.025) {
        log_chance += log((double)(n - k) / (double)(k + 1));
        k++;
    }
    return k;
}

static void set_interval(struct figure *f, const double *sorted, size_t n)
{
    if (n < FIGURE_LEAST) return;
    size_t bound = bound_of(n);
    f->low = sorted[bound - 1];
    f->high = sorted[n - bound];
    f->half = (f->high - f->low) / 2 / f->value;
}

static enum sol_status no_memory(size_t count)
{
    return status_set(SOL_E_MEMORY, "no memory for %zu measurements", count);
}

enum sol_status figure_medians(struct figure_value *values, size_t count, double *medians,
                               size_t *starts)
{
    double *room = malloc((count + 1) * sizeof *room);
    if (!room) return no_memory(count);
    *starts = 0;
    qsort(values, count, sizeof *values, by_start);
    for (size_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && values[end].start == values[begin].start; end++)
            room[end - begin] = values[end].value;
        medians[(*starts)++] = median_of(room, end - begin);
    }
    free(room);
    return SOL_OK;
}

/* `points`: what the estimate is the median of. */
static void estimate(struct figure *f, double *points, size_t n)
{
    f->value = median_of(points, n);
    set_interval(f, points, n);
}

enum sol_status figure_of(struct figure_value *values, size_t count, struct figure *out)
{
    *out = (struct figure){count,   0,       unknown, unknown, unknown, unknown,
                           unknown, unknown, unknown, unknown, unknown};
    if (count == 0) return SOL_OK;
    double *all = malloc(2 * count * sizeof *all);
    struct statistics summary;
    if (!all) return no_memory(count);
    double *medians = all + count;
    for (size_t i = 0; i < count; i++) all[i] = values[i].value;
    enum sol_status status = statistics_of(all, count, &summary);
    if (status == SOL_OK) status = figure_medians(values, count, medians, &out->starts);
    if (status == SOL_OK) {
        out->least = summary.min;
        out->most = summary.max;
        if (summary.has_interval) out->sd = summary.sd / summary.mean;
        if (out->starts > 1)
            estimate(out, medians, out->starts);
        else
            estimate(out, all, count);
    }
    free(all);
    return status;
}

enum sol_status figure_of_one(const double *values, size_t count, struct figure *out)
{
    struct figure_value *all = calloc(count + 1, sizeof *all);
    if (!all) return no_memory(count);
    for (size_t i = 0; i < count; i++) all[i].value = values[i];
    enum sol_status status = figure_of(all, count, out);
    free(all);
    return status;
}

void figure_set_limit(struct figure *f, double limit, bool rate)
{
    f->limit = limit > 0 && isfinite(limit) ? limit : unknown;
    f->reached = rate ? f->value / f->limit : f->limit / f->value;
    if (!isfinite(f->reached)) f->reached = unknown;
}

struct figure figure_per_second(const struct figure *ns)
{
    struct figure rate = *ns;
    rate.value = 1e9 / ns->value;
    rate.low = 1e9 / ns->high;
    rate.high = 1e9 / ns->low;
    rate.least = 1e9 / ns->most;
    rate.most = 1e9 / ns->least;
    rate.limit = 1e9 / ns->limit;
    return rate;
}

struct figure figure_scaled(const struct figure *figure, double factor)
{
    struct figure f = *figure;
    double *const parts[] = {&f.value, &f.low, &f.high, &f.least, &f.most, &f.limit};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] *= factor;
    return f;
}

char *figure_percent_text(double fraction, char text[24])
{
    double percent = 100 * fraction;
    if (isnan(percent))
        snprintf(text, 24, "-");
    else
        snprintf(text, 24, "%.*f", percent < 1 ? 2 : percent < 10 ? 1 : 0, fmin(percent, 1e9));
    return text;
}

bool figure_is_wide(const struct figure *f)
{
    return f->half > FIGURE_WIDE_PERCENT * 0.01;
}
