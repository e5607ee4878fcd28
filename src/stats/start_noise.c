#include "stats/start_noise.h"

#include <math.h>

#include "stats/statistics.h"
#include "stats/statistics_tests.h"

static double sum_of_squares(const double *values, size_t n)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) mean += log(values[i]) / (double)n;
    for (size_t i = 0; i < n; i++) squares += pow(log(values[i]) - mean, 2);
    return squares;
}

void start_noise_pool(struct start_noise *noise, const struct start_noise *other)
{
    double df = noise->df + other->df;
    if (!(df > 0)) return;
    double squares = noise->df * noise->sd * noise->sd + other->df * other->sd * other->sd;
    *noise = (struct start_noise){sqrt(squares / df), fmin(df, START_NOISE_DF_MAX)};
}

void start_noise_add(struct start_noise *noise, const double *values, size_t count)
{
    if (count < 2) return;
    double df = (double)(count - 1);
    start_noise_pool(noise, &(struct start_noise){sqrt(sum_of_squares(values, count) / df), df});
}

struct start_noise start_noise_aged(const struct start_noise *noise, int64_t age_ns)
{
    double days = 1e-9 * (double)age_ns / 86400;
    double left = fmin(fmax(1 - days / START_NOISE_DAYS, 0), 1);
    return (struct start_noise){noise->sd, noise->df * left};
}

/* Repetitions of a single start say how well its own figure is known, which comes on top. */
static double within(const struct figure *f)
{
    return f->starts == 1 && f->half > 0 ? pow(f->half / 1.96, 2) : 0;
}

void start_noise_shift(const struct start_side sides[2], const struct start_noise *known,
                       struct shift *out)
{
    double df = known->df, squares = df * known->sd * known->sd, inside = 0;
    *out = (struct shift){.estimate = log(sides[1].figure->value / sides[0].figure->value),
                          .low = -(double)INFINITY,
                          .high = (double)INFINITY,
                          .p = 1};
    for (int i = 0; i < 2; i++) {
        size_t n = sides[i].figure->starts;
        squares += sum_of_squares(sides[i].medians, n);
        df += (double)(n - 1);
        inside += within(sides[i].figure);
    }
    if (df < 1) return;
    double trust = fmin(df, START_NOISE_DF_TRUST), error = sqrt(2 * squares / df + inside);
    double half = statistics_t95((size_t)trust) * error;
    out->low = out->estimate - half;
    out->high = out->estimate + half;
    out->has_interval = true;
    out->p = error > 0 ? statistics_t_p(out->estimate / error, floor(trust)) : out->estimate == 0;
}
