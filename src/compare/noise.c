#include "compare/noise.h"

#include <math.h>
#include <stdlib.h>

#include "stats/statistics_tests.h"

void noise_pair(const struct noise *noise, struct rng *rng, double factor, double pair[2])
{
    size_t at = (size_t)rng_range(rng, 0, (int64_t)noise->n - 2);
    size_t turned = (size_t)rng_range(rng, 0, 1);
    pair[0] = noise->values[at + turned];
    pair[1] = noise->values[at + 1 - turned] * factor;
}

static enum sol_status add_pairs(const struct noise *noise, struct rng *rng, double factor,
                                 size_t max_pairs, struct compare_result *r)
{
    struct compare_metric *m;
    SOL_TRY(compare_add_metric(r, "noise", "", true, false, &m));
    while (r->pairs < max_pairs) {
        double pair[2];
        noise_pair(noise, rng, factor, pair);
        SOL_TRY(compare_add_value(m, 0, pair[0]));
        SOL_TRY(compare_add_value(m, 1, pair[1]));
        r->pairs++;
        if (r->pairs < COMPARE_PAIRS_MIN || r->pairs % 2) continue;
        SOL_TRY(compare_measure(r, m));
        SOL_TRY(compare_conclude(r));
        r->precise = compare_is_decided(r);
        if (r->precise) break;
    }
    return SOL_OK;
}

enum sol_status noise_compare(const struct noise *noise, struct rng *rng, double factor,
                              double delta, size_t max_pairs, struct compare_result *out)
{
    *out = (struct compare_result){
        .live = true, .verdict = VERDICT_INCONCLUSIVE, .delta = delta, .delta_source = "noise"};
    enum sol_status status = add_pairs(noise, rng, factor, max_pairs, out);
    if (status != SOL_OK) compare_result_free(out);
    return status;
}

enum sol_status noise_margin(const struct noise *noise, size_t pairs, uint64_t seed, double *out)
{
    enum { TRIALS = 200 };
    struct rng rng;
    double sizes[TRIALS], *differences = malloc((pairs + 1) * sizeof *differences);
    enum sol_status status =
        differences ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the noise");
    rng_seed(&rng, seed);
    for (int i = 0; i < TRIALS && status == SOL_OK; i++) {
        struct shift shift;
        for (size_t j = 0; j < pairs; j++) {
            double pair[2];
            noise_pair(noise, &rng, 1, pair);
            differences[j] = log(pair[1] / pair[0]);
        }
        status = shift_paired(differences, pairs, &shift);
        sizes[i] = fabs(shift.estimate);
    }
    if (status == SOL_OK) *out = expm1(statistics_quantile(sizes, TRIALS, 0.95));
    free(differences);
    return status;
}

enum sol_status noise_limit(const struct noise *noise, size_t max_pairs, size_t trials,
                            uint64_t seed, double *out)
{
    struct rng rng;
    double *sizes = malloc((trials + 1) * sizeof *sizes);
    enum sol_status status =
        sizes ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the calibration");
    rng_seed(&rng, seed);
    for (size_t i = 0; i < trials && status == SOL_OK; i++) {
        struct compare_result result;
        status = noise_compare(noise, &rng, 1, COMPARE_DELTA_PPM * 1e-6, max_pairs, &result);
        if (status != SOL_OK) break;
        sizes[i] = fabs(result.metrics[0].shift.estimate);
        compare_result_free(&result);
    }
    if (status == SOL_OK) *out = expm1(statistics_quantile(sizes, trials, 0.95));
    free(sizes);
    return status;
}
