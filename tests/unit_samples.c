#include "stats/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "bench/figures.h"
#include "bench/rating.h"

enum { MANY = 64 };

/* Times around 1 ms with this relative spread. */
static void draw(struct sample *samples, size_t n, double spread, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (size_t i = 0; i < n; i++)
        samples[i] = (struct sample){.ns = 1e6 * exp(spread * (double)rng_normal(&rng))};
}

static const struct stop_rule rule = {
    .least = 6, .most = 40, .precision = 0.005, .seconds = 60, .least_late = 5};

static size_t stops_at(const struct stop_rule *r, const struct sample *samples,
                       enum stop_reason *why)
{
    for (size_t n = 1; n <= MANY; n++) {
        *why = samples_stop(r, samples, n, 0);
        if (*why != STOP_NOT) return n;
    }
    return 0;
}

static void test_stop(void **state)
{
    (void)state;
    struct sample samples[MANY];
    enum stop_reason why;
    draw(samples, MANY, 1e-4, 1);
    assert_int_equal(stops_at(&rule, samples, &why), 6);
    assert_int_equal(why, STOP_PRECISION);
    /* A spread of 1 % needs about (2 * 0.01 / 0.005)^2 = 16 and a little more. */
    draw(samples, MANY, 0.01, 2);
    size_t n = stops_at(&rule, samples, &why);
    assert_int_equal(why, STOP_PRECISION);
    assert_in_range(n, 8, 32);
    struct figure figure;
    assert_int_equal(samples_figure(samples, n, 1, &figure), SOL_OK);
    assert_true(figure.half <= 0.005);
    assert_int_equal(samples_figure(samples, n - 1, 1, &figure), SOL_OK);
    assert_true(figure.half > 0.005);
    /* 20 % will not do with 40: it stops when the spread is known to be steady, or at 40. */
    draw(samples, MANY, 0.2, 3);
    n = stops_at(&rule, samples, &why);
    assert_true(why == STOP_NOISE || (why == STOP_MOST && n == 40));
    assert_true(n >= 12);
    struct stop_rule fixed = {.count = 3};
    assert_int_equal(stops_at(&fixed, samples, &why), 3);
    assert_int_equal(why, STOP_COUNT);
    assert_int_equal(samples_stop(&rule, samples, 5, 61), STOP_TIME);
    assert_int_equal(samples_stop(&rule, samples, 4, 61), STOP_NOT);
}

static void test_noise_is_steady(void **state)
{
    (void)state;
    struct sample samples[MANY];
    enum stop_reason why;
    for (size_t i = 0; i < MANY; i++) samples[i] = (struct sample){.ns = i % 2 ? 1e6 : 1.5e6};
    size_t n = stops_at(&rule, samples, &why);
    assert_int_equal(why, STOP_NOISE);
    assert_in_range(n, 12, 39);
}

/* Disturbed repetitions ask for one more each, and stay. */
static void test_repeats(void **state)
{
    (void)state;
    struct sample samples[MANY];
    enum stop_reason why;
    draw(samples, MANY, 1e-4, 1);
    samples[1].cause = samples[3].cause = "throttled";
    assert_int_equal(stops_at(&rule, samples, &why), 8);
    for (size_t i = 0; i < MANY; i++) samples[i].cause = "throttled";
    assert_int_equal(stops_at(&rule, samples, &why), 11);
}

/* Energy is known of some repetitions only. */
static void test_energy(void **state)
{
    (void)state;
    struct sample samples[] = {
        {.ns = 1, .joules = NAN}, {.ns = 1, .joules = 6}, {.ns = 1, .joules = 2}};
    struct figure got;
    assert_int_equal(samples_energy(samples, 3, 2, &got), SOL_OK);
    assert_int_equal(got.count, 2);
    assert_true(got.value == 2 && isnan(got.half));
    assert_int_equal(samples_energy(samples, 1, 2, &got), SOL_OK);
    assert_int_equal(got.count, 0);
}

static void test_settled(void **state)
{
    (void)state;
    struct sample samples[] = {{.ns = 200}, {.ns = 100}, {.ns = 100.9}, {.ns = 100.5}};
    assert_false(samples_settled(samples, 2, 0.01));
    assert_false(samples_settled(samples, 3, 0.01));
    assert_true(samples_settled(samples, 4, 0.01));
    assert_false(samples_settled(samples, 4, 0.005));
}

static void test_outliers(void **state)
{
    (void)state;
    struct sample samples[12];
    for (size_t i = 0; i < 12; i++) samples[i] = (struct sample){.ns = 100 + (double)i};
    assert_int_equal(samples_label_outliers(samples, 12), 0);
    samples[4].ns = 200;
    assert_int_equal(samples_label_outliers(samples, 12), 1);
    assert_true(samples[4].outlier && !samples[3].outlier);
    samples[4].ns = 50;
    assert_int_equal(samples_label_outliers(samples, 12), 1);
    assert_int_equal(samples_label_outliers(samples, 3), 0);
}

static void test_percentile(void **state)
{
    (void)state;
    double values[] = {4, 1, 3, 2, 5};
    samples_sort(values, 5);
    assert_true(samples_percentile(values, 5, 0) == 1);
    assert_true(samples_percentile(values, 5, 0.5) == 3);
    assert_true(fabs(samples_percentile(values, 5, 0.9) - 4.6) < 1e-12);
    assert_true(samples_percentile(values, 5, 1) == 5);
    assert_true(samples_percentile(values, 1, 0.99) == 1);
}

static void test_rating(void **state)
{
    (void)state;
    const char *spark = "NVIDIA GB10", *model = "gpt-oss 20.91B";
    const struct rating *r = rating_find(NULL, spark, model, "pp2048");
    assert_non_null(r);
    assert_string_equal(rating_name(r, 1999), "below");
    assert_string_equal(rating_name(r, 2000), "baseline");
    assert_string_equal(rating_name(r, 2500), "good");
    assert_string_equal(rating_name(r, 3611), "excellent");
    r = rating_find(NULL, spark, model, "tg128");
    assert_non_null(r);
    assert_string_equal(rating_name(r, 79.7), "good");
    assert_null(rating_find(NULL, spark, model, "tg128 @ d4096"));
    assert_null(rating_find(NULL, spark, model, "tg128 x8"));
    assert_null(rating_find(NULL, spark, model, "pp512"));
    assert_null(rating_find(NULL, spark, "gpt-oss 116.8B", "pp2048"));
    assert_null(rating_find(NULL, "AMD EPYC", model, "pp2048"));
    assert_non_null(rating_find(NULL, spark, "", "matmul compute %"));
    /* as llama-bench names models and imports name tests */
    assert_non_null(rating_find(NULL, spark, "gpt-oss 20B MXFP4 MoE", "pp2048"));
    assert_non_null(rating_find(NULL, spark, "gpt-oss-20b-mxfp4.gguf", "tg32 (n_threads 4)"));
    assert_null(rating_find(NULL, spark, "gpt-oss 120B MXFP4 MoE", "pp2048"));
    assert_null(rating_find(NULL, spark, "gpt-oss", "pp2048"));
}

static enum sol_status table_of(const char *text, struct rating_table **out)
{
    char path[] = "/tmp/sol-rating-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    enum sol_status status = rating_table_open(path, out);
    unlink(path);
    return status;
}

static void test_rating_file(void **state)
{
    (void)state;
    struct rating_table *table;
    assert_int_equal(table_of("[{\"device\": \"epyc\", \"metric\": \"pp512\", \"baseline\": 1,"
                              " \"good\": 2, \"excellent\": 3}]",
                              &table),
                     SOL_OK);
    const struct rating *r = rating_find(table, "AMD EPYC", "any", "pp512");
    assert_non_null(r);
    assert_string_equal(r->unit, "t/s");
    rating_table_close(table);
    static const char falling[] = "[{\"device\": \"x\", \"metric\": \"tg\", \"baseline\": 3,"
                                  " \"good\": 2, \"excellent\": 4}]";
    const char *const wrong[] = {"{}", "[1]", "[{\"device\": \"x\"}]", "[", "", falling};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(table_of(wrong[i], &table), SOL_E_FORMAT);
        assert_null(table);
    }
    assert_int_equal(rating_table_open("/nowhere/ratings.json", &table), SOL_E_IO);
}

/* What is expected comes true: as many as are asked for, what the interval needs, what time allows.
 */
static void test_expected(void **state)
{
    (void)state;
    struct sample samples[40];
    struct stop_rule r = {
        .least = 6, .most = 40, .precision = 0.01, .seconds = 60, .least_late = 5};
    for (int i = 0; i < 40; i++) samples[i] = (struct sample){.ns = 100 + 0.1 * (i * 17 % 40)};
    assert_int_equal(samples_expected(&(struct stop_rule){.count = 9}, samples, 2, 1), 9);
    assert_int_equal(samples_expected(&r, samples, 1, 0.1), 6);
    size_t n = samples_expected(&r, samples, 10, 1);
    assert_true(n > 10 && n < 40);
    struct figure figure;
    assert_int_equal(samples_figure(samples, n, 1, &figure), SOL_OK);
    assert_true(figure.half < 1.1 * r.precision);
    assert_int_equal(samples_expected(&r, samples, 8, 48), 10); /* 6 s each */
    assert_int_equal(samples_expected(&r, samples, 2, 100), 5); /* late, but not with so few */
    r.precision = 1e-6;
    assert_int_equal(samples_expected(&r, samples, 10, 1), 40);
}

/* 1 GB at 10 GB/s takes 100 ms at least. */
static void test_impossible(void **state)
{
    (void)state;
    struct ceiling ceiling = {.memory.best = 1e10, .arithmetic[NUMERICS_EXACT].best = 1e12};
    struct bench_result r = {.cost.bytes = 1e9, .speed.value = 96e6, .tokens = 1};
    assert_true(fabs(bench_speed(&ceiling, &r).limit - 1e8) < 1);
    assert_string_equal(bench_bound(&ceiling, &r), "memory");
    assert_false(bench_impossible(&ceiling, &r));
    r.speed.value = 95e6;
    assert_true(bench_impossible(&ceiling, &r));
    ceiling.memory.best = 0; /* not measured */
    assert_false(bench_impossible(&ceiling, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop),        cmocka_unit_test(test_noise_is_steady),
        cmocka_unit_test(test_repeats),     cmocka_unit_test(test_energy),
        cmocka_unit_test(test_settled),     cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_percentile),  cmocka_unit_test(test_rating),
        cmocka_unit_test(test_rating_file), cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
