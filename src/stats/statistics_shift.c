/* Distributions of rank sums are made by adding one value after the other: the weight of a sum is
 * half of what it was without the value and half of what is left when it takes part. Ranks are
 * doubled, so that the mean ranks of ties are integers too. What is kept are probabilities, not
 * counts, which would not fit a double beyond 1000 values.
 *
 * Intervals come from the distribution without ties, which with ties is a little too wide. */
#include "stats/statistics_shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static const double tail = 0.025; /* on each side of an interval */
static const double tail_quantile = 1.959963984540054;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_sorted(const double *sorted, size_t n)
{
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static double upper_normal(double z)
{
    return 0.5 * erfc(z / sqrt(2));
}

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for the statistics");
}

static enum sol_status check_values(const double *values, size_t n)
{
    if (n == 0) return status_set(SOL_E_INTERNAL, "statistics of no values");
    if (n > SHIFT_VALUES_MAX)
        return status_set(SOL_E_UNSUPPORTED, "%zu values are more than the %d that are compared", n,
                          SHIFT_VALUES_MAX);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return status_set(SOL_E_ARGUMENT, "a measurement is not a finite number");
    return SOL_OK;
}

/* ---- ranks ---- */

struct ranked {
    double value;
    size_t index;
};

static int compare_ranked(const void *a, const void *b)
{
    return compare_doubles(&((const struct ranked *)a)->value, &((const struct ranked *)b)->value);
}

/* doubled[i]: twice the rank of values[i], 2 for the smallest; ties get their mean. */
static enum sol_status rank_values(const double *values, size_t n, size_t *doubled)
{
    struct ranked *order = malloc((n + 1) * sizeof *order);
    if (!order) return no_memory();
    for (size_t i = 0; i < n; i++) order[i] = (struct ranked){values[i], i};
    qsort(order, n, sizeof *order, compare_ranked);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && order[end].value == order[first].value;) end++;
        for (size_t i = first; i < end; i++) doubled[order[i].index] = first + end + 1;
    }
    free(order);
    return SOL_OK;
}

/* ---- distributions ---- */

/* *out[s], to be freed: the probability that the doubled ranks of a random half sum to s; *top is
 * the largest sum. */
static enum sol_status signed_distribution(const size_t *doubled, size_t n, double **out,
                                           size_t *top)
{
    size_t all = 0, sum = 0;
    for (size_t i = 0; i < n; i++) all += doubled[i];
    double *weights = calloc(all + 1, sizeof *weights);
    *out = weights;
    *top = all;
    if (!weights) return no_memory();
    weights[0] = 1;
    for (size_t i = 0; i < n; i++) {
        size_t rank = doubled[i];
        sum += rank;
        for (size_t s = sum + 1; s-- > 0;)
            weights[s] = (weights[s] + (s >= rank ? weights[s - rank] : 0)) / 2;
    }
    return SOL_OK;
}

/* Twice the smaller tail, which includes `observed`. */
static double two_sided(const double *weights, size_t top, size_t observed)
{
    double below = 0, above = 0;
    for (size_t s = 0; s <= observed && s <= top; s++) below += weights[s];
    for (size_t s = observed; s <= top; s++) above += weights[s];
    double p = 2 * fmin(below, above);
    return p < 1 ? p : 1;
}

/* How many of the smallest candidates an interval leaves out: the largest c with P(sum < c) <=
 * tail, the sums counted from `least` in steps of 2 (of doubled ranks). */
static size_t left_out(const double *weights, size_t top, size_t least)
{
    double below = 0;
    size_t count = 0;
    for (size_t s = least; s <= top; s += 2) {
        below += weights[s];
        if (below > tail) break;
        count++;
    }
    return count;
}

/* `sorted` candidates of the shift; the interval leaves out `out` of them at each end, 0: it has
 * no end. */
static void set_interval(struct shift *shift, const double *sorted, size_t count, size_t out)
{
    shift->estimate = median_of_sorted(sorted, count);
    shift->has_interval = out > 0 && 2 * out <= count + 1;
    shift->low = shift->has_interval ? sorted[out - 1] : -INFINITY;
    shift->high = shift->has_interval ? sorted[count - out] : INFINITY;
}

/* The same from a mean and a standard deviation of the sum, for many values. */
static size_t left_out_normal(double mean, double sd)
{
    double out = floor(mean - tail_quantile * sd + 0.5);
    return out > 0 ? (size_t)out : 0;
}

static double two_sided_normal(double observed, double mean, double sd)
{
    if (sd <= 0) return 1;
    double off = fabs(observed - mean) - 0.5; /* the sum moves in steps of 1 */
    double p = 2 * upper_normal(off > 0 ? off / sd : 0);
    return fmax(fmin(p, 1), 1e-300);
}

/* ---- pairs ---- */

static enum sol_status paired_interval(const double *d, size_t n, struct shift *out)
{
    size_t count = n * (n + 1) / 2, at = 0, skipped = 0;
    double *means = malloc(count * sizeof *means), *weights = NULL;
    size_t *ranks = malloc(n * sizeof *ranks);
    enum sol_status status = means && ranks ? SOL_OK : no_memory();
    if (status != SOL_OK) goto done;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) means[at++] = (d[i] + d[j]) / 2;
    qsort(means, count, sizeof *means, compare_doubles);
    if (n <= SHIFT_EXACT_PAIRED) {
        size_t top;
        for (size_t i = 0; i < n; i++) ranks[i] = 2 * (i + 1);
        status = signed_distribution(ranks, n, &weights, &top);
        if (status != SOL_OK) goto done;
        skipped = left_out(weights, top, 0);
    } else {
        double v = (double)n;
        skipped = left_out_normal(v * (v + 1) / 4, sqrt(v * (v + 1) * (2 * v + 1) / 24));
    }
    set_interval(out, means, count, skipped);
done:
    free(means);
    free(weights);
    free(ranks);
    return status;
}

static enum sol_status signed_rank_p(const double *d, size_t n, struct shift *out)
{
    double *sizes = malloc(n * sizeof *sizes), *weights = NULL;
    size_t *ranks = malloc(n * sizeof *ranks), used = 0, positive = 0, top;
    enum sol_status status = sizes && ranks ? SOL_OK : no_memory();
    if (status != SOL_OK) goto done;
    for (size_t i = 0; i < n; i++)
        if (d[i] != 0) sizes[used++] = fabs(d[i]);
    out->p = 1;
    out->exact = used <= SHIFT_EXACT_PAIRED;
    if (used == 0) goto done;
    status = rank_values(sizes, used, ranks);
    if (status != SOL_OK) goto done;
    double squares = 0;
    for (size_t i = 0, k = 0; i < n; i++) {
        if (d[i] == 0) continue;
        positive += d[i] > 0 ? ranks[k] : 0;
        squares += (double)ranks[k] * (double)ranks[k];
        k++;
    }
    if (out->exact) {
        status = signed_distribution(ranks, used, &weights, &top);
        if (status == SOL_OK) out->p = two_sided(weights, top, positive);
    } else {
        double v = (double)used;
        out->p = two_sided_normal((double)positive / 2, v * (v + 1) / 4, sqrt(squares) / 4);
    }
done:
    free(sizes);
    free(weights);
    free(ranks);
    return status;
}

enum sol_status shift_paired(const double *differences, size_t n, struct shift *out)
{
    *out = (struct shift){.p = 1};
    SOL_TRY(check_values(differences, n));
    SOL_TRY(paired_interval(differences, n, out));
    return signed_rank_p(differences, n, out);
}

/* ---- sign flips of the mean ---- */

/* sums[pattern]: of `n` <= 10 values, those whose bit is set turned round. */
static void signed_sums(const double *d, size_t n, double *sums)
{
    for (size_t pattern = 0; pattern < (size_t)1 << n; pattern++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += pattern >> i & 1 ? -d[i] : d[i];
        sums[pattern] = sum;
    }
}

static void flip_all(const double *d, size_t n, double limit, struct sign_flip *out)
{
    enum { HALF = SIGN_FLIP_EXACT / 2 };
    double first[1 << HALF], second[1 << HALF];
    size_t low = n < HALF ? n : HALF, high = n - low, count = 0;
    signed_sums(d, low, first);
    signed_sums(d + low, high, second);
    for (size_t i = 0; i < (size_t)1 << low; i++)
        for (size_t j = 0; j < (size_t)1 << high; j++) count += fabs(first[i] + second[j]) >= limit;
    double patterns = ldexp(1, (int)n);
    *out = (struct sign_flip){(double)count / patterns, 2 / patterns, true};
}

static void flip_random(const double *d, size_t n, uint64_t seed, double limit,
                        struct sign_flip *out)
{
    struct rng rng;
    size_t count = 0;
    rng_seed(&rng, seed);
    for (int draw = 0; draw < SIGN_FLIP_DRAWS; draw++) {
        double sum = 0;
        uint64_t bits = 0;
        for (size_t i = 0; i < n; i++, bits >>= 1) {
            if (i % 64 == 0) bits = rng_next(&rng);
            sum += bits & 1 ? -d[i] : d[i];
        }
        count += fabs(sum) >= limit;
    }
    double all = SIGN_FLIP_DRAWS + 1.0;
    *out = (struct sign_flip){((double)count + 1) / all, 1 / all, false};
}

enum sol_status shift_sign_flip(const double *differences, size_t n, uint64_t seed,
                                struct sign_flip *out)
{
    *out = (struct sign_flip){.p = 1};
    SOL_TRY(check_values(differences, n));
    double sum = 0, sizes = 0;
    for (size_t i = 0; i < n; i++) {
        sum += differences[i];
        sizes += fabs(differences[i]);
    }
    /* Sums that are equal on paper differ by rounding. */
    double limit = fabs(sum) - 1e-12 * sizes;
    if (n <= SIGN_FLIP_EXACT)
        flip_all(differences, n, limit, out);
    else
        flip_random(differences, n, seed, limit, out);
    return SOL_OK;
}
