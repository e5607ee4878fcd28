#include "stats/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/rng.h"
#include "stats/figure.h"
#include "stats/start_noise.h"
#include "stats/statistics_shift.h"
#include "stats/statistics_tests.h"

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.12g is not within %g of %.12g", value, tolerance, expected);
}

/* 2 4 4 4 5 5 7 9: mean 5, squares of the deviations 9 1 1 1 0 0 4 16 = 32, sd sqrt(32/7), t(7)
 * = 2.364624. */
static void test_known_values(void **state)
{
    (void)state;
    const double values[] = {9, 2, 5, 4, 4, 7, 4, 5};
    struct statistics s;
    assert_int_equal(statistics_of(values, 8, &s), SOL_OK);
    assert_int_equal(s.count, 8);
    assert_near(s.mean, 5, 1e-12);
    assert_near(s.median, 4.5, 1e-12);
    assert_near(s.min, 2, 0);
    assert_near(s.max, 9, 0);
    assert_near(s.sd, 2.138089935, 1e-9);
    assert_near(s.standard_error, 0.755928946, 1e-9);
    assert_true(s.has_interval);
    assert_near(s.ci_low, 5 - 1.787487745, 1e-6);
    assert_near(s.ci_high, 5 + 1.787487745, 1e-6);
    assert_near(values[0], 9, 0); /* the caller's order stays */
}

/* 1 2 3 4 10: mean 4, squares 9 4 1 0 36 = 50, sd sqrt(12.5), error sqrt(2.5), t(4) = 2.776445. */
static void test_odd_count(void **state)
{
    (void)state;
    const double values[] = {10, 1, 3, 2, 4};
    struct statistics s;
    assert_int_equal(statistics_of(values, 5, &s), SOL_OK);
    assert_near(s.median, 3, 1e-12);
    assert_near(s.sd, 3.535533906, 1e-9);
    assert_near(s.standard_error, 1.581138830, 1e-9);
    assert_near(s.ci_high - s.mean, 4.389945, 1e-5);
}

static void test_few(void **state)
{
    (void)state;
    const double values[] = {3, 5};
    struct statistics s;
    assert_int_equal(statistics_of(values, 0, &s), SOL_E_INTERNAL);
    assert_int_equal(statistics_of(values, 1, &s), SOL_OK);
    assert_near(s.mean, 3, 0);
    assert_near(s.median, 3, 0);
    assert_near(s.sd, 0, 0);
    assert_false(s.has_interval);
    assert_int_equal(statistics_of(values, 2, &s), SOL_OK);
    assert_near(s.mean, 4, 0);
    assert_near(s.sd, sqrt(2), 1e-12);
    assert_near(s.ci_high - s.mean, 12.706205, 1e-5); /* the error is 1 */
}

/* Rounding must not make a spread where there is none, nor hide one far from zero. */
static void test_large_offsets(void **state)
{
    (void)state;
    const double same[] = {0.1, 0.1, 0.1}, far[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    struct statistics s;
    assert_int_equal(statistics_of(same, 3, &s), SOL_OK);
    assert_near(s.sd, 0, 1e-15);
    assert_int_equal(statistics_of(far, 3, &s), SOL_OK);
    assert_near(s.sd, 1, 1e-6);
}

static void test_t_quantiles(void **state)
{
    (void)state;
    assert_true(isinf(statistics_t95(0)));
    assert_near(statistics_t95(1), 12.7062, 1e-4);
    assert_near(statistics_t95(30), 2.042272, 1e-6);
    assert_near(statistics_t95(31), 2.039513, 1e-5);
    assert_near(statistics_t95(40), 2.021075, 1e-5);
    assert_near(statistics_t95(120), 1.979930, 1e-5);
    assert_near(statistics_t95(1000000), 1.959966, 1e-5);
    for (size_t v = 1; v < 200; v++) assert_true(statistics_t95(v) > statistics_t95(v + 1));
}

/* ---- against scipy and R: tests/data/statistics.json, made by tools/statistics_vectors.py ---- */

static json_t *all; /* released in main */

static json_t *vectors(const char *section)
{
    json_error_t error;
    if (!all) all = json_load_file(SOL_SOURCE_DIR "/tests/data/statistics.json", 0, &error);
    json_t *list = json_object_get(all, section);
    assert_true(json_array_size(list) > 0);
    return list;
}

static double number(json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static size_t numbers(json_t *object, const char *key, double values[512])
{
    json_t *list = json_object_get(object, key);
    size_t count = json_array_size(list);
    assert_true(count <= 512);
    for (size_t i = 0; i < count; i++) values[i] = json_number_value(json_array_get(list, i));
    return count;
}

static void check_shift(json_t *wanted, const struct shift *got)
{
    double p = number(wanted, "p");
    if (fabs(got->p - p) > 1e-9 * p + 1e-12)
        fail_msg("%s: p %.12g instead of %.12g", json_string_value(json_object_get(wanted, "name")),
                 got->p, p);
    if (!json_object_get(wanted, "low")) return;
    assert_true(got->has_interval);
    assert_near(got->estimate, number(wanted, "estimate"), 1e-9);
    assert_near(got->low, number(wanted, "low"), 1e-9);
    assert_near(got->high, number(wanted, "high"), 1e-9);
}

static void test_paired_shift(void **state)
{
    (void)state;
    size_t i;
    json_t *wanted;
    json_array_foreach(vectors("paired"), i, wanted)
    {
        double d[512];
        struct shift got;
        struct sign_flip flip;
        size_t n = numbers(wanted, "d", d);
        assert_int_equal(shift_paired(d, n, &got), SOL_OK);
        check_shift(wanted, &got);
        assert_int_equal(got.exact, n <= SHIFT_EXACT_PAIRED);
        if (!json_object_get(wanted, "sign_flip")) continue;
        assert_int_equal(shift_sign_flip(d, n, 1, &flip), SOL_OK);
        assert_true(flip.exact);
        assert_near(flip.p, number(wanted, "sign_flip"), 1e-12);
    }
}

/* The figure of one start; NaN where scipy's binomial leaves no interval. */
static void test_figures(void **state)
{
    (void)state;
    size_t i;
    json_t *wanted;
    json_array_foreach(vectors("median"), i, wanted)
    {
        double values[512];
        struct figure got;
        size_t n = numbers(wanted, "values", values);
        assert_int_equal(figure_of_one(values, n, &got), SOL_OK);
        assert_near(got.value, number(wanted, "median"), 1e-15);
        assert_int_equal(got.count, n);
        assert_int_equal(got.starts, 1);
        assert_int_equal(isnan(got.low), n < FIGURE_LEAST);
        if (n < FIGURE_LEAST) continue;
        assert_near(got.low, number(wanted, "low"), 1e-15);
        assert_near(got.high, number(wanted, "high"), 1e-15);
        struct figure rate = figure_per_second(&got);
        assert_near(rate.value * got.value, 1e9, 1e-3);
        assert_near(rate.low * got.high, 1e9, 1e-3);
    }
    json_array_foreach(vectors("t"), i, wanted) assert_near(
        statistics_t_p(number(wanted, "t"), number(wanted, "df")), number(wanted, "p"), 1e-9);
}

/* Starts count, not repetitions: six starts whose repetitions agree perfectly. */
static void test_figure_of_starts(void **state)
{
    (void)state;
    enum { STARTS = 6, EACH = 4 };
    struct figure_value values[STARTS * EACH];
    struct figure got;
    for (int i = 0; i < STARTS * EACH; i++)
        values[i] = (struct figure_value){100 + i % STARTS, i % STARTS};
    assert_int_equal(figure_of(values, STARTS * EACH, &got), SOL_OK);
    assert_int_equal(got.starts, STARTS);
    assert_int_equal(got.count, STARTS * EACH);
    assert_near(got.value, 102.5, 0);
    assert_near(got.low, 100, 0);
    assert_near(got.high, 105, 0);
    assert_false(figure_is_wide(&got));                                         /* 2.5 / 102.5 */
    for (int i = 0; i < EACH; i++) values[(STARTS - 1) * EACH + i].value = 120; /* the last start */
    assert_int_equal(figure_of(values, STARTS * EACH, &got), SOL_OK);
    assert_true(figure_is_wide(&got));
    assert_int_equal(figure_of(values, (STARTS - 1) * EACH, &got), SOL_OK);
    assert_true(isnan(got.low) && !figure_is_wide(&got));
    assert_int_equal(figure_of(values, 0, &got), SOL_OK);
    assert_true(isnan(got.value));
    figure_set_limit(&got, 5, false);
    assert_true(isnan(got.reached));
}

/* Noise that is drawn from a normal distribution: an interval of 95 % holds the truth at least so
 * often, whether starts are many, or few beside what is known. */
static void test_start_noise(void **state)
{
    (void)state;
    static const struct {
        size_t starts;
        double df;
    } cases[] = {{6, 0}, {3, 0}, {1, 30}, {1, 6}, {3, 10}};
    enum { TRIALS = 4000 };
    struct rng rng;
    rng_seed(&rng, 5);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t missed = 0, n = cases[c].starts;
        for (int trial = 0; trial < TRIALS; trial++) {
            struct start_noise known = {0};
            double medians[2][32], before[32];
            struct figure figures[2];
            size_t n_before = (size_t)cases[c].df;
            for (size_t i = 0; i < n_before; i++) before[i] = exp(0.1 * rng_normal(&rng));
            if (n_before) start_noise_add(&known, before, n_before);
            for (int side = 0; side < 2; side++) {
                struct figure_value values[32];
                for (size_t i = 0; i < n; i++) {
                    medians[side][i] = exp(0.1 * rng_normal(&rng));
                    values[i] = (struct figure_value){medians[side][i], (int)i};
                }
                assert_int_equal(figure_of(values, n, &figures[side]), SOL_OK);
            }
            const struct start_side sides[2] = {{&figures[0], medians[0]},
                                                {&figures[1], medians[1]}};
            struct shift shift;
            start_noise_shift(sides, &known, &shift);
            assert_true(shift.has_interval);
            missed += shift.low > 0 || shift.high < 0;
        }
        double rate = (double)missed / TRIALS;
        if (!(rate < 0.05)) fail_msg("case %zu: %g missed", c, rate);
    }
}

/* One start against one, with nothing known: no interval. Old knowledge fades. */
static void test_start_noise_unknown(void **state)
{
    (void)state;
    const double one[] = {1}, two[] = {2}, day = 86400e9;
    struct figure old_figure, new_figure;
    struct shift shift;
    figure_of_one(one, 1, &old_figure);
    figure_of_one(two, 1, &new_figure);
    const struct start_side sides[2] = {{&old_figure, one}, {&new_figure, two}};
    start_noise_shift(sides, &(struct start_noise){0}, &shift);
    assert_false(shift.has_interval);
    assert_near(shift.p, 1, 0);
    assert_near(shift.estimate, log(2), 1e-15);
    struct start_noise known = {0.1, 20};
    start_noise_shift(sides, &known, &shift);
    assert_true(shift.has_interval && shift.low > 0);
    struct start_noise aged = start_noise_aged(&known, (int64_t)(15 * day));
    assert_near(aged.df, 10, 1e-9);
    assert_near(aged.sd, 0.1, 0);
    assert_near(start_noise_aged(&known, (int64_t)(31 * day)).df, 0, 0);
    start_noise_pool(&known, &(struct start_noise){0.2, 20});
    assert_near(known.sd, sqrt(0.025), 1e-12);
    assert_near(known.df, START_NOISE_DF_MAX, 0);
}

static void test_holm_and_rates(void **state)
{
    (void)state;
    size_t i;
    json_t *wanted;
    json_array_foreach(vectors("holm"), i, wanted)
    {
        double p[512], adjusted[512], got[512];
        size_t n = numbers(wanted, "p", p);
        numbers(wanted, "adjusted", adjusted);
        statistics_holm(p, n, got);
        for (size_t k = 0; k < n; k++) assert_near(got[k], adjusted[k], 1e-12);
    }
    json_array_foreach(vectors("binomial"), i, wanted)
    {
        size_t hits = (size_t)number(wanted, "hits"), trials = (size_t)number(wanted, "trials");
        double rate = number(wanted, "rate"), low, high;
        assert_near(statistics_binomial(hits, trials, rate), number(wanted, "p"), 1e-10);
        assert_near(statistics_binomial_more(hits, trials, rate), number(wanted, "more"), 1e-10);
        statistics_rate_interval(hits, trials, &low, &high);
        assert_near(low, number(wanted, "low"), 1e-8);
        assert_near(high, number(wanted, "high"), 1e-8);
    }
    json_array_foreach(vectors("quantile"), i, wanted)
    {
        double values[512];
        size_t n = numbers(wanted, "values", values);
        assert_near(statistics_quantile(values, n, number(wanted, "q")), number(wanted, "value"),
                    1e-12);
    }
}

/* Random flips agree with all flips, give the same each time, and never a p of 0. */
static void test_random_flips(void **state)
{
    (void)state;
    double d[21];
    struct sign_flip exact, random, again;
    for (int i = 0; i < 20; i++) d[i] = 0.01 * ((i * 37) % 19 - 7);
    d[20] = 0; /* changes no sum, but asks for random flips */
    assert_int_equal(shift_sign_flip(d, 20, 1, &exact), SOL_OK);
    assert_int_equal(shift_sign_flip(d, 21, 1, &random), SOL_OK);
    assert_int_equal(shift_sign_flip(d, 21, 1, &again), SOL_OK);
    assert_true(exact.exact && !random.exact);
    assert_near(random.p, exact.p, 5 * sqrt(exact.p / SIGN_FLIP_DRAWS));
    assert_near(random.p, again.p, 0);
    double same[40];
    for (int i = 0; i < 40; i++) same[i] = 1;
    assert_int_equal(shift_sign_flip(same, 40, 1, &random), SOL_OK);
    assert_near(random.p, 1e-5, 1e-12);
    assert_near(random.resolution, 1e-5, 1e-12);
    assert_int_equal(shift_sign_flip(same, 6, 1, &exact), SOL_OK);
    assert_near(exact.p, 0.03125, 1e-12);
}

/* Too few for an interval, nothing but zeros, and what is refused. */
static void test_shift_limits(void **state)
{
    (void)state;
    const double few[] = {1, 2, 3, 4, 5}, zeros[8] = {0}, wild[] = {1, NAN};
    struct shift got;
    assert_int_equal(shift_paired(few, 5, &got), SOL_OK);
    assert_false(got.has_interval);
    assert_true(isinf(got.low) && isinf(got.high));
    assert_near(got.p, 0.0625, 1e-12);
    assert_int_equal(shift_paired(zeros, 8, &got), SOL_OK);
    assert_near(got.p, 1, 0);
    assert_true(got.has_interval && got.low == 0 && got.high == 0);
    assert_int_equal(shift_paired(wild, 2, &got), SOL_E_ARGUMENT);
    assert_int_equal(shift_paired(few, 0, &got), SOL_E_INTERNAL);
    static const double many[SHIFT_VALUES_MAX + 1];
    assert_int_equal(shift_paired(many, SHIFT_VALUES_MAX + 1, &got), SOL_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_odd_count),
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_large_offsets),
        cmocka_unit_test(test_t_quantiles),
        cmocka_unit_test(test_paired_shift),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_figure_of_starts),
        cmocka_unit_test(test_start_noise),
        cmocka_unit_test(test_start_noise_unknown),
        cmocka_unit_test(test_holm_and_rates),
        cmocka_unit_test(test_random_flips),
        cmocka_unit_test(test_shift_limits),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(all);
    return failures;
}
