/* Verdicts, blame, records and processes; and the lab on its own recorded noise: how often it finds
 * a difference where there is none, and how often one that was planted. */
#include "compare/compare.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare/metrics.h"
#include "compare/noise.h"
#include "compare/report.h"
#include "stats/statistics_tests.h"

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.12g is not within %g of %.12g", value, tolerance, expected);
}

/* ---- verdicts ---- */

static struct shift shift_of(double low, double estimate, double high)
{
    return (struct shift){
        .estimate = estimate, .low = low, .high = high, .has_interval = true, .p = 0.01};
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        double low, estimate, high, p;
        enum verdict wanted;
    } cases[] = {
        {-0.004, 0.001, 0.006, 0.6, VERDICT_SAME},
        {0.002, 0.004, 0.006, 0.001, VERDICT_SAME}, /* there, but too small to count */
        {0.006, 0.009, 0.02, 0.001, VERDICT_INCONCLUSIVE},
        {0.011, 0.02, 0.03, 0.001, VERDICT_SLOWER},
        {0.001, 0.02, 0.05, 0.03, VERDICT_SLOWER},
        {0.001, 0.02, 0.05, 0.06, VERDICT_INCONCLUSIVE}, /* p after Holm */
        {-0.03, -0.02, -0.011, 0.001, VERDICT_FASTER},
        {-0.03, 0.001, 0.03, 0.9, VERDICT_INCONCLUSIVE},
        {-0.001, 0.02, 0.05, 0.01, VERDICT_INCONCLUSIVE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shift s = shift_of(cases[i].low, cases[i].estimate, cases[i].high);
        enum verdict got = verdict_of(&s, cases[i].p, 0.01);
        if (got != cases[i].wanted)
            fail_msg("case %zu: %s instead of %s", i, verdict_name(got),
                     verdict_name(cases[i].wanted));
    }
    struct shift few = {.estimate = 0.5, .low = -INFINITY, .high = INFINITY, .p = 0.06};
    assert_int_equal(verdict_of(&few, 0.06, 0.01), VERDICT_INCONCLUSIVE);
    assert_false(verdict_precise(&few, 0.01));
    assert_int_equal(verdict_needed(&few, 5, 0.01), 0);
    for (int v = 0; v < VERDICT_COUNT; v++)
        for (int w = 0; w < v; w++)
            assert_int_not_equal(verdict_exit_status(v), verdict_exit_status(w));
}

/* Half of the interval 0.04, shift 0.02 >= delta: it must shrink to 0.02, so four times as many. */
static void test_needed(void **state)
{
    (void)state;
    struct shift wide = shift_of(-0.02, 0.02, 0.06), small = shift_of(-0.02, 0.002, 0.02);
    assert_int_equal(verdict_needed(&wide, 10, 0.01), 40);
    assert_int_equal(verdict_needed(&small, 10, 0.01), (int)ceil(10 * 0.02 * 0.02 / 0.008 / 0.008));
    struct shift done = shift_of(0.018, 0.02, 0.022);
    assert_true(verdict_precise(&done, 0.01));
    assert_false(verdict_precise(&wide, 0.01));
    assert_int_equal(verdict_needed(&done, 10, 0.01), 12); /* never less than there are */
}

/* ---- the lab on recorded noise ---- */

enum { TRIALS = 400 };

struct tally {
    size_t verdicts[VERDICT_COUNT], small_p, pairs;
};

static void load_noise(const char *field, double values[512], struct noise *out)
{
    json_error_t error;
    json_t *file = json_load_file(SOL_SOURCE_DIR "/tests/data/noise.json", 0, &error);
    json_t *list = json_object_get(file, field);
    size_t n = json_array_size(list);
    assert_true(n >= 400 && n <= 512);
    for (size_t i = 0; i < n; i++) values[i] = json_number_value(json_array_get(list, i));
    *out = (struct noise){values, n};
    json_decref(file);
}

static struct tally compare_noise(const struct noise *noise, double factor, double delta,
                                  size_t max_pairs)
{
    struct tally tally = {{0}, 0, 0};
    struct rng rng;
    rng_seed(&rng, 20261121);
    for (int i = 0; i < TRIALS; i++) {
        struct compare_result r;
        assert_int_equal(noise_compare(noise, &rng, factor, delta, max_pairs, &r), SOL_OK);
        tally.verdicts[r.verdict]++;
        tally.small_p += r.metrics[0].shift.p <= 0.05;
        tally.pairs += r.pairs;
        compare_result_free(&r);
    }
    return tally;
}

static void show(const char *what, const struct tally *t)
{
    printf("%s: of %d same %zu, faster %zu, slower %zu, inconclusive %zu; p <= 0.05 in %zu; "
           "%.1f pairs each\n",
           what, TRIALS, t->verdicts[VERDICT_SAME], t->verdicts[VERDICT_FASTER],
           t->verdicts[VERDICT_SLOWER], t->verdicts[VERDICT_INCONCLUSIVE], t->small_p,
           (double)t->pairs / TRIALS);
}

/* A p of 10 pairs is 0.05 or less with a chance of 50/1024 when there is nothing: neither much more
 * nor much less often may it happen. */
static void test_p_values(void **state)
{
    (void)state;
    static const char *const fields[] = {"cpu_us", "ns_per_token"};
    for (int f = 0; f < 2; f++) {
        double values[512];
        struct noise noise;
        load_noise(fields[f], values, &noise);
        struct tally t = compare_noise(&noise, 1, 1e-9, 10);
        assert_int_equal(t.pairs, 10 * TRIALS);
        double chance = statistics_binomial(t.small_p, TRIALS, 50.0 / 1024);
        if (chance < 0.01)
            fail_msg("%s: p <= 0.05 in %zu of %d: chance %.2g", fields[f], t.small_p, TRIALS,
                     chance);
    }
}

/* The whole procedure, with its many looks at the data: false alarms are not above 5 %. */
static void test_false_alarms(void **state)
{
    (void)state;
    static const char *const fields[] = {"cpu_us", "ns_per_token"};
    for (int f = 0; f < 2; f++) {
        double values[512];
        struct noise noise;
        load_noise(fields[f], values, &noise);
        struct tally t = compare_noise(&noise, 1, 0.01, 40);
        size_t alarms = t.verdicts[VERDICT_FASTER] + t.verdicts[VERDICT_SLOWER];
        show(fields[f], &t);
        assert_true(statistics_binomial_more(alarms, TRIALS, 0.05) > 0.05);
        assert_true(t.verdicts[VERDICT_SAME] > 0);
    }
}

/* Planted slow-downs of 1, 2 and 5 % with a smallest effect of 1 %. On a quiet machine the noise is
 * less than that of either record. */
static void test_power(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        double factor;
        size_t at_least; /* of TRIALS called slower; about 5 standard errors below what came out */
    } cases[] = {
        {"cpu_us", 1.01, 200},       {"cpu_us", 1.02, 390},       {"cpu_us", 1.05, 399},
        {"ns_per_token", 1.01, 100}, {"ns_per_token", 1.02, 170}, {"ns_per_token", 1.05, 265},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double values[512];
        char label[64];
        struct noise noise;
        load_noise(cases[i].field, values, &noise);
        struct tally t = compare_noise(&noise, cases[i].factor, 0.01, 40);
        snprintf(label, sizeof label, "%s, %.0f %% slower", cases[i].field,
                 100 * (cases[i].factor - 1));
        show(label, &t);
        assert_true(t.verdicts[VERDICT_SLOWER] >= cases[i].at_least);
        assert_int_equal(t.verdicts[VERDICT_FASTER], 0);
        /* What is twice the smallest effect or more never passes for the same. */
        if (cases[i].factor > 1.015) assert_int_equal(t.verdicts[VERDICT_SAME], 0);
    }
}

/* The number that `inconclusive` asks for does decide, more often than not. */
static void test_needed_decides(void **state)
{
    (void)state;
    double values[512];
    struct noise noise;
    struct rng rng;
    size_t asked = 0, decided = 0;
    load_noise("cpu_us", values, &noise);
    rng_seed(&rng, 5);
    for (int i = 0; i < 100; i++) {
        struct compare_result r;
        assert_int_equal(noise_compare(&noise, &rng, 1.02, 0.01, 8, &r), SOL_OK);
        size_t needed = r.metrics[0].needed;
        compare_result_free(&r);
        if (needed == 0 || needed > 500) continue;
        assert_int_equal(noise_compare(&noise, &rng, 1.02, 0.01, needed, &r), SOL_OK);
        asked++;
        decided += r.verdict != VERDICT_INCONCLUSIVE;
        compare_result_free(&r);
    }
    assert_true(asked >= 10);
    assert_true(2 * decided > asked);
}

/* What --calibrate takes from noise: nothing for identical figures, more for wilder ones. */
static void test_limit(void **state)
{
    (void)state;
    double same[] = {5, 5, 5, 5}, values[512], quiet, wild;
    struct noise none = {same, 4}, noise;
    assert_int_equal(noise_limit(&none, 8, 50, 1, &quiet), SOL_OK);
    assert_near(quiet, 0, 1e-12);
    load_noise("cpu_us", values, &noise);
    assert_int_equal(noise_limit(&noise, 8, 200, 1, &quiet), SOL_OK);
    load_noise("ns_per_token", values, &noise);
    assert_int_equal(noise_limit(&noise, 8, 200, 1, &wild), SOL_OK);
    assert_true(quiet > 0.001 && quiet < 0.02 && wild > 2 * quiet);
}

/* ---- blame ---- */

/* What equal programs differ by makes a comparison that found nothing one of equal programs, and
 * takes nothing from one that found something. */
static void test_margin(void **state)
{
    (void)state;
    double values[512], few, many;
    struct noise noise;
    struct compare_result r = {.live = true, .delta = 0.01};
    struct compare_metric *m;
    load_noise("cpu_us", values, &noise);
    assert_int_equal(noise_margin(&noise, 8, 1, &few), SOL_OK);
    assert_int_equal(noise_margin(&noise, 64, 1, &many), SOL_OK);
    assert_true(many > 0 && few > 2 * many);
    assert_int_equal(compare_add_metric(&r, "wall", "s", true, false, &m), SOL_OK);
    m->shift = (struct shift){.estimate = 0.004, .low = -0.015, .high = 0.02, .has_interval = true};
    m->shift.p = 0.4;
    assert_int_equal(compare_conclude(&r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_INCONCLUSIVE);
    m->margin = 0.03;
    assert_int_equal(compare_conclude(&r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_SAME);
    assert_near(compare_same_within(&r), 0.03, 0);
    m->shift.low = 0.011, m->shift.estimate = 0.015, m->shift.p = 0.001;
    assert_int_equal(compare_conclude(&r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_SLOWER);
    compare_result_free(&r);
}

/* By hand: old 100 = a 60 + b 30 + gaps 5 + rest 5; new 130 at half the clock... of which c is new
 * and b is gone. */
static void test_blame_closes(void **state)
{
    (void)state;
    const double a0[] = {60}, b0[] = {30}, a1[] = {90}, c1[] = {20}, old_total[] = {100},
                 new_total[] = {130};
    const struct blame_kernel old_kernels[] = {{"a", "v1", a0}, {"b", "v1", b0}};
    const struct blame_kernel new_kernels[] = {{"a", "v2", a1}, {"c", NULL, c1}};
    struct blame_side old_side = {old_total, 1, old_kernels, 2, 5, 2000};
    struct blame_side new_side = {new_total, 1, new_kernels, 2, 8, 1600};
    struct blame b;
    assert_int_equal(blame_between(&old_side, &new_side, false, &b), SOL_OK);
    assert_int_equal(b.n_parts, 3);
    assert_near(b.delta_ns, 30, 1e-12);
    assert_near(b.gaps_ns, 3, 1e-12);
    assert_near(b.clock_ns, (90 + 20) * 0.2, 1e-12);
    assert_near(b.kernels_ns, (90 * 0.8 - 60) - 30 + 20 * 0.8, 1e-12);
    assert_near(b.kernels_ns + b.gaps_ns + b.clock_ns + b.residual_ns, b.delta_ns, 1e-12);
    assert_string_equal(b.parts[0].name, "b");
    assert_null(b.parts[0].new_variant);
    assert_string_equal(blame_culprit(&b, true)->name, "c"); /* the largest that goes up */
    b.residual_ns = 1.3 * b.delta_ns; /* the kernels were not timed in what was compared */
    assert_null(blame_culprit(&b, true));
    blame_free(&b);
    old_side.gaps_ns = (double)NAN;
    new_side.clock_mhz = 0;
    assert_int_equal(blame_between(&old_side, &new_side, false, &b), SOL_OK);
    assert_false(b.has_gaps || b.has_clock);
    assert_near(b.residual_ns, 30 - (30 - 30 + 20), 1e-12);
    blame_free(&b);
}

/* One kernel is 2 slower in every pair, the other varies by much more. */
static void test_blame_pairs(void **state)
{
    (void)state;
    double big0[8], big1[8], small0[8], small1[8], total0[8], total1[8];
    static const double noise[] = {9, -8, 7, -9, 8, -7, 6, -6};
    for (int i = 0; i < 8; i++) {
        big0[i] = 1000 + noise[i];
        big1[i] = 1000 - noise[(i + 3) % 8];
        small0[i] = 10 + 0.01 * noise[i];
        small1[i] = 12 + 0.01 * noise[(i + 1) % 8];
        total0[i] = big0[i] + small0[i];
        total1[i] = big1[i] + small1[i] + 1;
    }
    const struct blame_kernel old_kernels[] = {{"big", "v", big0}, {"small", "v", small0}};
    const struct blame_kernel new_kernels[] = {{"big", "v", big1}, {"small", "v", small1}};
    struct blame_side old_side = {total0, 8, old_kernels, 2, (double)NAN, 0};
    struct blame_side new_side = {total1, 8, new_kernels, 2, (double)NAN, 0};
    struct blame b;
    assert_int_equal(blame_between(&old_side, &new_side, true, &b), SOL_OK);
    assert_string_equal(blame_culprit(&b, true)->name, "small");
    blame_free(&b);
    new_side.n_runs = 7;
    assert_int_equal(blame_between(&old_side, &new_side, true, &b), SOL_E_INTERNAL);
}

/* ---- records and stored runs ---- */

static void parse(const char *text, struct records *out)
{
    enum sol_status status = records_parse(text, strlen(text), "text", out);
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static void test_records(void **state)
{
    (void)state;
    struct records r;
    /* A prompt of 600 in steps of 512, from before kernels said of how many steps: those of the
     * last one say nothing of it. */
    parse("[{\"n_prompt\": 600, \"n_gen\": 0, \"n_batch\": 512, \"avg_ns\": 6000,"
          "  \"samples_ns\": [6000, 12000], \"kernels\": ["
          "  {\"phase\": \"prompt\", \"op\": \"gemm\", \"variant\": \"x\", \"us_per_step\": 0.88},"
          "  {\"phase\": \"prompt\", \"op\": \"gemm\", \"variant\": \"y\", \"us_per_step\": 0.88},"
          "  {\"phase\": \"prompt\", \"op\": \"rope\", \"variant\": \"x\"}]},"
          " {\"n_prompt\": 600, \"avg_ns\": 1200}]",
          &r);
    assert_int_equal(r.count, 2);
    assert_string_equal(r.items[0].name, "pp600");
    assert_string_equal(r.items[1].name, "pp600 #2");
    assert_int_equal(r.items[0].n_samples, 2);
    assert_near(r.items[0].samples[1].value, 20, 1e-12);
    assert_near(r.items[1].samples[0].value, 2, 1e-12);
    assert_int_equal(r.items[0].n_kernels, 2);
    assert_string_equal(r.items[0].kernels[0].variant, "x + y");
    assert_near(r.items[0].kernels[0].ns_per_token, 0, 0);
    records_free(&r);
    parse(
        "[{\"n_prompt\": 88, \"n_batch\": 512, \"avg_ns\": 6000, \"kernels\": ["
        "  {\"phase\": \"prompt\", \"op\": \"gemm\", \"variant\": \"x\", \"us_per_step\": 0.88}]}]",
        &r);
    assert_near(r.items[0].kernels[0].ns_per_token, 10, 1e-9);
    records_free(&r);
    parse("[{\"n_prompt\": 600, \"n_batch\": 512, \"avg_ns\": 6000, \"kernels\": ["
          "  {\"phase\": \"prompt\", \"op\": \"gemm\", \"variant\": \"x\", \"steps\": 2,"
          "   \"us_per_step\": 3}]}]",
          &r);
    assert_near(r.items[0].kernels[0].ns_per_token, 10, 1e-9);
    records_free(&r);
    /* llama-bench's JSON lines. */
    parse("{\"n_prompt\": 0, \"n_gen\": 128, \"n_depth\": 512, \"avg_ns\": 1e9, \"x\": null}\n"
          "{\"n_prompt\": 512, \"n_gen\": 0, \"n_depth\": 0, \"avg_ns\": 1e9}\n\n",
          &r);
    assert_int_equal(r.count, 2);
    assert_non_null(records_find(&r, "tg128 @ d512"));
    assert_non_null(records_find(&r, "pp512"));
    records_free(&r);
    static const char *const damaged[] = {"",
                                          "[]",
                                          "[1]",
                                          "{}",
                                          "{\"n_gen\": 5}",
                                          "[{\"n_gen\": 5, \"avg_ns\": -1}]",
                                          "[{\"n_gen\": 5,",
                                          "{\"n_gen\": 5, \"samples_ns\": [1, \"a\"]}",
                                          "{\"n_gen\": 1e300, \"avg_ns\": 1}",
                                          "\"text\"",
                                          "{\"n_gen\": 5, \"avg_ns\": 1}\nrubbish"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        assert_int_equal(records_parse(damaged[i], strlen(damaged[i]), "text", &r), SOL_E_FORMAT);
}

static enum sol_status compare_with(const char *a, const char *b, bool across,
                                    struct start_noise known, struct compare_result *out)
{
    static const char *const names[2] = {"a.json", "b.json"};
    struct compare_params p = {.delta = 0.01,
                               .delta_source = "test",
                               .seed = 1,
                               .across_machines = across,
                               .generation_noise = known};
    struct records old_records, new_records;
    parse(a, &old_records);
    parse(b, &new_records);
    enum sol_status status = compare_historical(&p, names, &old_records, &new_records, out);
    records_free(&old_records);
    records_free(&new_records);
    return status;
}

static enum verdict verdict_between(const char *a, const char *b, bool across,
                                    struct start_noise known)
{
    struct compare_result r;
    assert_int_equal(compare_with(a, b, across, known, &r), SOL_OK);
    enum verdict verdict = r.verdict;
    compare_result_free(&r);
    return verdict;
}

#define RUN(cpu, samples)                                                                          \
    "[{\"n_prompt\": 0, \"n_gen\": 1, \"cpu_info\": \"" cpu "\", \"n_threads\": 2,"                \
    "\"machine\": {\"cpu\": \"" cpu "\", \"l2\": 1}, " samples "}]"
/* A start of two repetitions that agree. */
#define START(number, ns)                                                                          \
    "{\"start\": " #number ", \"ns\": " #ns "}, {\"start\": " #number ", \"ns\": " #ns "}"
#define STARTS(a, b, c, d)                                                                         \
    "\"samples\": [{\"ns\": 5, \"warmup\": true}, " START(0, a) "," START(1, b) "," START(         \
        2, c) "," START(3, d) "]"

static const struct start_noise nothing = {0}, quiet = {0.001, 20}, loud = {0.2, 20};

#define SOL_RUN(settings, samples)                                                                 \
    "[{\"sol_version\": \"1\", \"n_prompt\": 0, \"n_gen\": 1, \"settings\": {" settings            \
    "}, " samples "}]"

/* The ratio stays what it is; beside it stands what each GPU does. */
static void test_gpus(void **state)
{
    (void)state;
    struct compare_result r, again;
    const char *one = SOL_RUN("", STARTS(1000, 1001, 1002, 1003));
    const char *two = SOL_RUN("\"gpus\": 2", STARTS(625, 626, 627, 628));
    const char *other = RUN("x", STARTS(625, 626, 627, 628)); /* does not say how many */
    assert_int_equal(compare_with(one, two, false, quiet, &r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_FASTER);
    assert_int_equal(r.metrics[0].gpus[0], 1);
    assert_int_equal(r.metrics[0].gpus[1], 2);
    assert_near(compare_speed_up(&r.metrics[0]), 1001.5 / 626.5, 1e-9);
    assert_near(compare_efficiency(&r.metrics[0]), 1001.5 / 626.5 / 2, 1e-9);
    assert_int_equal(r.n_differences, 1);
    assert_string_equal(r.differences[0].what, "settings.gpus");
    assert_false(r.differences[0].machine);
    r.metrics[0].communication[1] =
        (struct communication_figure){.ranks = 2, .window_ns = 600, .exposed_ns = 60};
    json_t *json = compare_report_json(&r);
    assert_non_null(json);
    const json_t *metric = json_array_get(json_object_get(json, "metrics"), 0);
    assert_near(json_number_value(json_object_get(metric, "efficiency")), 1001.5 / 626.5 / 2, 1e-9);
    assert_near(json_number_value(json_object_get(metric, "exposed_share_new")), 0.1, 1e-9);
    assert_true(json_is_null(json_object_get(metric, "exposed_ns_old")));
    /* What was kept is shown as it was. */
    assert_int_equal(compare_report_read(json, &again), SOL_OK);
    for (int i = 0; i < 2; i++) {
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);
        assert_int_equal(compare_report_write(i ? &again : &r, TABLE_TEXT, to), SOL_OK);
        fclose(to);
        assert_non_null(strstr(text, "1.599"));
        assert_non_null(strstr(text, "79.9"));
        assert_non_null(strstr(text, "0.06 us, 10.0 %"));
        free(text);
    }
    json_decref(json);
    compare_result_free(&again);
    compare_result_free(&r);
    assert_int_equal(compare_with(other, two, true, quiet, &r), SOL_OK);
    assert_true(isnan(compare_speed_up(&r.metrics[0])));
    compare_result_free(&r);
    assert_int_equal(compare_with(two, two, false, quiet, &r), SOL_OK);
    assert_true(isnan(compare_efficiency(&r.metrics[0])));
    compare_result_free(&r);
}

/* What starts differ by decides, not how well repetitions of one agree. */
static void test_historical(void **state)
{
    (void)state;
    struct compare_result r;
    const char *one = RUN("x", "\"samples_ns\": [1000, 1001, 1002, 1003, 1004, 1005]");
    const char *slow = RUN("x", "\"samples_ns\": [1100, 1101, 1102, 1103, 1104]");
    const char *fast = RUN("x", "\"samples_ns\": [900, 901, 902, 903, 904]");
    assert_int_equal(compare_with(one, slow, false, nothing, &r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_INCONCLUSIVE);
    assert_false(r.metrics[0].shift.has_interval);
    assert_near(r.metrics[0].shift.estimate, log(1102 / 1002.5), 1e-9);
    assert_near(r.metrics[0].figure[1].value, 1e9 / 1102, 1e-6);
    assert_near(r.metrics[0].figure[0].value, 1e9 / 1002.5, 1e-6);
    assert_int_equal(r.n_differences, 0);
    compare_result_free(&r);
    assert_int_equal(verdict_between(one, slow, false, quiet), VERDICT_SLOWER);
    assert_int_equal(verdict_between(one, fast, false, quiet), VERDICT_FASTER);
    assert_int_equal(verdict_between(one, slow, false, loud), VERDICT_INCONCLUSIVE);
    assert_int_equal(verdict_between(one, one, false, quiet), VERDICT_SAME);
    /* Several starts of each say it themselves. */
    const char *many = RUN("x", STARTS(1000, 1001, 1002, 1003));
    const char *many_slow = RUN("x", STARTS(1100, 1101, 1102, 1103));
    const char *wild = RUN("x", STARTS(1000, 1900, 1100, 1600));
    assert_int_equal(verdict_between(many, many_slow, false, nothing), VERDICT_SLOWER);
    assert_int_equal(verdict_between(many, many, false, nothing), VERDICT_SAME);
    assert_int_equal(verdict_between(many, wild, false, nothing), VERDICT_INCONCLUSIVE);
    /* What was disturbed decides nothing. */
    const char *noisy = RUN("x", STARTS(1100, 1101, 1102, 1103) ", \"noise\": \"others\"");
    assert_int_equal(verdict_between(many, noisy, false, quiet), VERDICT_INCONCLUSIVE);
    assert_int_equal(verdict_between(noisy, many, false, quiet), VERDICT_INCONCLUSIVE);
    /* Another processor: not a comparison, unless it is asked for. */
    const char *other = RUN("y", "\"samples_ns\": [900, 901, 902, 903, 904]");
    assert_int_equal(compare_with(one, other, false, quiet, &r), SOL_OK);
    assert_int_equal(r.verdict, VERDICT_INVALID);
    assert_int_equal(r.n_differences, 2);
    json_t *json = compare_report_json(&r);
    assert_string_equal(json_string_value(json_object_get(json, "verdict")), "invalid");
    json_decref(json);
    compare_result_free(&r);
    assert_int_equal(verdict_between(one, other, true, quiet), VERDICT_FASTER);
    assert_int_equal(compare_with(one, "{\"n_prompt\": 5, \"avg_ns\": 1}", false, quiet, &r),
                     SOL_E_ARGUMENT);
}

/* A run whose starts are `n` figures of the record, from `at` on. */
static void write_run(const struct noise *noise, size_t at, size_t n, char text[2000])
{
    size_t used = (size_t)snprintf(text, 2000, "[{\"n_gen\": 1, \"samples\": [");
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, 2000 - used, "%s{\"start\": %zu, \"ns\": %.17g}",
                                 i ? ", " : "", i, noise->values[(at + i) % noise->n]);
    snprintf(text + used, 2000 - used, "]}]");
}

/* The same command against itself, as stored runs of one start and of several, with what a third of
 * the record taught before: at most 5 % are wrong. */
static void test_stored_false_alarms(void **state)
{
    (void)state;
    enum { COMPARISONS = 200 };
    static const char *const fields[] = {"ns_per_token", "cpu_us"};
    static const size_t starts[] = {1, 3, 6};
    for (size_t f = 0; f < 2; f++)
        for (size_t s = 0; s < 3; s++) {
            double values[512];
            struct noise noise, rest;
            struct start_noise known = {0};
            struct rng rng;
            size_t wrong = 0;
            load_noise(fields[f], values, &noise);
            rng_seed(&rng, 9 + s);
            start_noise_add(&known, values, noise.n / 3);
            rest = (struct noise){values + noise.n / 3, noise.n - noise.n / 3};
            for (int i = 0; i < COMPARISONS; i++) {
                char a[2000], b[2000];
                int64_t last = (int64_t)rest.n - 1;
                write_run(&rest, (size_t)rng_range(&rng, 0, last), starts[s], a);
                write_run(&rest, (size_t)rng_range(&rng, 0, last), starts[s], b);
                enum verdict v = verdict_between(a, b, false, known);
                wrong += v == VERDICT_FASTER || v == VERDICT_SLOWER;
            }
            if (statistics_binomial_more(wrong, COMPARISONS, 0.05) < 0.01)
                fail_msg("%s, %zu starts: %zu of %d wrong", fields[f], starts[s], wrong,
                         COMPARISONS);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),    cmocka_unit_test(test_needed),
        cmocka_unit_test(test_p_values),    cmocka_unit_test(test_false_alarms),
        cmocka_unit_test(test_power),       cmocka_unit_test(test_needed_decides),
        cmocka_unit_test(test_limit),       cmocka_unit_test(test_blame_closes),
        cmocka_unit_test(test_blame_pairs), cmocka_unit_test(test_records),
        cmocka_unit_test(test_margin),      cmocka_unit_test(test_historical),
        cmocka_unit_test(test_gpus),        cmocka_unit_test(test_stored_false_alarms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
