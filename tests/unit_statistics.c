#include "stats/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

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

static void test_sample_shift(void **state)
{
    (void)state;
    size_t i;
    json_t *wanted;
    json_array_foreach(vectors("samples"), i, wanted)
    {
        double x[512], y[512];
        struct shift got;
        size_t n = numbers(wanted, "x", x), m = numbers(wanted, "y", y);
        assert_int_equal(shift_samples(x, n, y, m, &got), SOL_OK);
        check_shift(wanted, &got);
        /* The other way round is the same with the other sign. */
        struct shift back;
        assert_int_equal(shift_samples(y, m, x, n, &back), SOL_OK);
        assert_near(back.p, got.p, 1e-12);
        assert_near(back.estimate, -got.estimate, 1e-15);
        if (got.has_interval) assert_near(back.low, -got.high, 1e-15);
    }
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
    assert_int_equal(shift_samples(few, 3, few, 3, &got), SOL_OK);
    assert_false(got.has_interval);
    assert_near(got.p, 1, 1e-12);
    assert_int_equal(shift_paired(zeros, 8, &got), SOL_OK);
    assert_near(got.p, 1, 0);
    assert_true(got.has_interval && got.low == 0 && got.high == 0);
    assert_int_equal(shift_paired(wild, 2, &got), SOL_E_ARGUMENT);
    assert_int_equal(shift_paired(few, 0, &got), SOL_E_INTERNAL);
    assert_int_equal(shift_samples(few, 5, few, SHIFT_VALUES_MAX + 1, &got), SOL_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values), cmocka_unit_test(test_odd_count),
        cmocka_unit_test(test_few),          cmocka_unit_test(test_large_offsets),
        cmocka_unit_test(test_t_quantiles),  cmocka_unit_test(test_paired_shift),
        cmocka_unit_test(test_sample_shift), cmocka_unit_test(test_holm_and_rates),
        cmocka_unit_test(test_random_flips), cmocka_unit_test(test_shift_limits),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(all);
    return failures;
}
