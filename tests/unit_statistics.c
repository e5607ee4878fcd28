#include "lab/statistics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values), cmocka_unit_test(test_odd_count),
        cmocka_unit_test(test_few),          cmocka_unit_test(test_large_offsets),
        cmocka_unit_test(test_t_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
