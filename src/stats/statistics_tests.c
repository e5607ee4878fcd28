#include "stats/statistics_tests.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static bool comes_before(const double *p, size_t a, size_t b)
{
    return p[a] != p[b] ? p[a] < p[b] : a < b;
}

void statistics_holm(const double *p, size_t n, double *adjusted)
{
    for (size_t i = 0; i < n; i++) {
        /* max over all p[j] <= p[i] of p[j] times the count of those not smaller; ties by place. */
        double worst = 0;
        for (size_t j = 0; j < n; j++) {
            if (p[j] > p[i]) continue;
            size_t before = 0;
            for (size_t k = 0; k < n; k++) before += comes_before(p, k, j);
            worst = fmax(worst, p[j] * (double)(n - before));
        }
        adjusted[i] = fmin(worst, 1);
    }
}

static double log_chance(size_t hits, size_t trials, double rate)
{
    double k = (double)hits, n = (double)trials;
    double ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
    return ways + (hits ? k * log(rate) : 0) + (hits < trials ? (n - k) * log1p(-rate) : 0);
}

double statistics_binomial(size_t hits, size_t trials, double rate)
{
    /* Chances that are equal on paper differ by rounding. */
    double limit = log_chance(hits, trials, rate) + 1e-7, sum = 0;
    for (size_t k = 0; k <= trials; k++) {
        double chance = log_chance(k, trials, rate);
        if (chance <= limit) sum += exp(chance);
    }
    return fmin(sum, 1);
}

double statistics_binomial_more(size_t hits, size_t trials, double rate)
{
    double sum = 0;
    for (size_t k = hits; k <= trials; k++) sum += exp(log_chance(k, trials, rate));
    return fmin(sum, 1);
}

/* The share of Student's distribution beyond |t|, integrated by Simpson's rule over the angle
 * atan(t / sqrt(df)), in which the density is a power of the cosine. */
double statistics_t_p(double t, double df)
{
    enum { STEPS = 2000 };
    double from = atan(fabs(t) / sqrt(df)), step = (M_PI / 2 - from) / STEPS, sum = 0;
    for (int i = 0; i <= STEPS; i++) {
        double weight = i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2;
        sum += weight * pow(fmax(cos(from + i * step), 0), df - 1);
    }
    double norm = lgamma((df + 1) / 2) - lgamma(df / 2) - log(M_PI) / 2;
    return fmin(2 * exp(norm) * sum * step / 3, 1);
}

/* The rate at which `hits` or more (or `hits` or fewer) of `trials` have a chance of 2.5 %. */
static double rate_limit(size_t hits, size_t trials, bool more)
{
    double low = 0, high = 1;
    for (int i = 0; i < 60; i++) {
        double rate = (low + high) / 2;
        double chance = more ? statistics_binomial_more(hits, trials, rate)
                             : 1 - statistics_binomial_more(hits + 1, trials, rate);
        if ((chance < 0.025) == more)
            low = rate;
        else
            high = rate;
    }
    return (low + high) / 2;
}

void statistics_rate_interval(size_t hits, size_t trials, double *low, double *high)
{
    *low = hits ? rate_limit(hits, trials, true) : 0;
    *high = hits < trials ? rate_limit(hits, trials, false) : 1;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double statistics_quantile(double *values, size_t n, double q)
{
    qsort(values, n, sizeof *values, compare_doubles);
    double at = q * (double)(n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= n) return values[n - 1];
    return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}
