/* The sampler: distributions against their definition (fixed seeds, so a failure repeats),
 * boundaries of the filters, ties, NaN, bans, reproducibility, and the time for a full vocabulary.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "infer/sampler.h"
#include "ops/ops.h"
#include "support/effort.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { FULL_VOCAB = 201088, DRAWS = 100000, DRAWS_LEAST = 5000 };

static int draws;

static struct sampler_params with(double temperature, int64_t top_k, double top_p, double min_p)
{
    struct sampler_params params;
    sampler_params_init(&params);
    params.temperature = temperature, params.top_k = top_k, params.top_p = top_p,
    params.min_p = min_p;
    params.seed = 1234;
    return params;
}

static struct sampler *create(struct sampler_params params, int64_t vocab,
                              const unsigned char *banned)
{
    struct sampler *s;
    if (sampler_create(&params, vocab, banned, &s) != SOL_OK) fail_msg("%s", sol_last_error());
    return s;
}

static int32_t next(struct sampler *s, const float *logits)
{
    int32_t token = -1;
    if (sampler_next(s, logits, &token) != SOL_OK) fail_msg("%s", sol_last_error());
    return token;
}

/* Logits with these probabilities. */
static void logits_of(const double *p, size_t n, float *logits)
{
    for (size_t i = 0; i < n; i++) logits[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
}

/* Draws many times; chi-square against `expected` (which need not add up to 1), and never anything
 * of probability 0. The bound is about five standard deviations. */
static void check_distribution(struct sampler_params params, const float *logits, size_t n,
                               const unsigned char *banned, const double *expected)
{
    struct sampler *s = create(params, (int64_t)n, banned);
    size_t *seen = calloc(n, sizeof *seen);
    double total = 0, chi = 0;
    int bins = 0;
    assert_non_null(seen);
    for (int i = 0; i < draws; i++) {
        int32_t token = next(s, logits);
        assert_in_range(token, 0, n - 1);
        seen[token]++;
    }
    for (size_t i = 0; i < n; i++) total += expected[i];
    for (size_t i = 0; i < n; i++) {
        double want = draws * expected[i] / total, difference = (double)seen[i] - want;
        if (want == 0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        chi += difference * difference / want;
        bins++;
    }
    double freedom = bins - 1;
    if (chi > freedom + 5 * sqrt(2 * freedom) + 10)
        fail_msg("chi-square %.1f of %.0f", chi, freedom);
    free(seen);
    sampler_destroy(s);
}

static void test_plain(void **state)
{
    (void)state;
    static const double p[] = {0.4, 0.05, 0.3, 0, 0.15, 0.1};
    double sharper[COUNT(p)], flatter[COUNT(p)], without[COUNT(p)];
    float logits[COUNT(p)];
    for (size_t i = 0; i < COUNT(p); i++) {
        sharper[i] = p[i] * p[i];
        flatter[i] = sqrt(p[i]);
        without[i] = i == 0 || i == 4 ? 0 : p[i];
    }
    logits_of(p, COUNT(p), logits);
    check_distribution(with(1, 0, 1, 0), logits, COUNT(p), NULL, p);
    check_distribution(with(0.5, 0, 1, 0), logits, COUNT(p), NULL, sharper);
    check_distribution(with(2, 0, 1, 0), logits, COUNT(p), NULL, flatter);
    check_distribution(with(1, 0, 1, 0), logits, COUNT(p),
                       (const unsigned char[]){1, 0, 0, 0, 7, 0}, without);
    for (size_t i = 0; i < COUNT(p); i++) logits[i] += 1000; /* only differences count */
    check_distribution(with(1, COUNT(p), 1, 0), logits, COUNT(p), NULL, p);
}

/* Several blocks, the last one incomplete. */
static void test_many_blocks(void **state)
{
    (void)state;
    enum { N = 1000 };
    static float logits[N];
    static double p[N], kept[N];
    static unsigned char banned[N];
    struct rng rng;
    rng_seed(&rng, 8);
    double largest = 0;
    for (int i = 0; i < N; i++) {
        p[i] = exp(rng_normal(&rng));
        banned[i] = i % 7 == 0 || (i >= 256 && i < 512);
        if (banned[i]) p[i] = 0;
        if (p[i] > largest) largest = p[i];
        logits[i] = banned[i] ? 50.0f : (float)log(p[i]);
    }
    check_distribution(with(1, 0, 1, 0), logits, N, banned, p);
    for (int i = 0; i < N; i++) kept[i] = p[i] >= 0.05 * largest ? p[i] : 0;
    check_distribution(with(1, 0, 1, 0.05), logits, N, banned, kept);
    check_distribution(with(1, N - 1, 1, 0.05), logits, N, banned, kept);
    check_distribution(with(1, 0, 1 - 1e-12, 0.05), logits, N, banned, kept);
}

static void test_filters(void **state)
{
    (void)state;
    static const double p[] = {0.05, 0.4, 0.15, 0.3, 0.1};
    static const struct {
        int64_t top_k;
        double top_p, min_p;
        double expected[COUNT(p)];
    } cases[] = {
        {1, 1, 0, {0, 1, 0, 0, 0}},
        {2, 1, 0, {0, 0.4, 0, 0.3, 0}},
        {4, 1, 0, {0, 0.4, 0.15, 0.3, 0.1}},
        {5, 1, 0, {0.05, 0.4, 0.15, 0.3, 0.1}},
        {99, 1, 0, {0.05, 0.4, 0.15, 0.3, 0.1}},
        {0, 1e-9, 0, {0, 1, 0, 0, 0}},
        {0, 0.39, 0, {0, 1, 0, 0, 0}},
        {0, 0.41, 0, {0, 0.4, 0, 0.3, 0}}, /* the one that crosses the bound is in */
        {0, 0.69, 0, {0, 0.4, 0, 0.3, 0}},
        {0, 0.71, 0, {0, 0.4, 0.15, 0.3, 0}},
        {0, 0.96, 0, {0.05, 0.4, 0.15, 0.3, 0.1}},
        {0, 1, 0.74, {0, 0.4, 0, 0.3, 0}},
        {0, 1, 0.76, {0, 1, 0, 0, 0}},
        {0, 1, 1, {0, 1, 0, 0, 0}},
        {2, 0.56, 0, {0, 1, 0, 0, 0}}, /* top_p is of what top_k left: 0.4 of 0.7 is enough */
        {2, 0.58, 0, {0, 0.4, 0, 0.3, 0}},
        {0, 0.9, 0.3, {0, 0.4, 0.15, 0.3, 0}},
        {3, 0.99, 0.5, {0, 0.4, 0, 0.3, 0}},
    };
    float logits[COUNT(p)];
    logits_of(p, COUNT(p), logits);
    for (size_t i = 0; i < COUNT(cases); i++)
        check_distribution(with(1, cases[i].top_k, cases[i].top_p, cases[i].min_p), logits,
                           COUNT(p), NULL, cases[i].expected);
}

/* Equal logits: the lower id is first, so it survives the cut. */
static void test_ties(void **state)
{
    (void)state;
    static const float zeros[] = {-1, 0.0f, -0.0f, 0.0f, -0.0f, -2};
    check_distribution(with(1, 2, 1, 0), zeros, 6, NULL, (const double[]){0, 1, 1, 0, 0, 0});
    check_distribution(with(1, 0, 0.3, 0), zeros, 6, NULL, (const double[]){0, 1, 1, 0, 0, 0});
    check_distribution(with(1, 3, 1, 1), zeros, 6, NULL, (const double[]){0, 1, 1, 1, 0, 0});

    enum { N = 2000 };
    static float logits[N];
    struct sampler *greedy = create(with(0, 0, 1, 0), N, NULL);
    for (int first = 0; first < N; first += 37) {
        for (int i = 0; i < N; i++) logits[i] = i >= first && i % 3 == first % 3 ? 2.5f : -3.0f;
        assert_int_equal(next(greedy, logits), first);
    }
    sampler_destroy(greedy);
}

static void test_nan_and_infinity(void **state)
{
    (void)state;
    static const float some[] = {NAN, 1, -NAN, 1, -INFINITY, NAN};
    static const struct sampler_params modes[] = {{0, 0, 1, 0, 1},   {1, 0, 1, 0, 1},
                                                  {1, 3, 1, 0, 1},   {1, 0, 0.9, 0, 1},
                                                  {1, 0, 1, 0.1, 1}, {1, 4, 0.9, 0.1, 1}};
    static const float none[] = {NAN, -INFINITY, NAN},
                       infinite[] = {5, INFINITY, FLT_MAX, INFINITY};
    for (size_t i = 0; i < COUNT(modes); i++) {
        struct sampler *s = create(modes[i], 6, NULL);
        for (int k = 0; k < 200; k++) assert_int_equal(next(s, some) & ~2, 1); /* 1 or 3 */
        sampler_destroy(s);

        int32_t token;
        s = create(modes[i], 3, NULL);
        assert_int_equal(sampler_next(s, none, &token), SOL_E_ARGUMENT);
        sampler_destroy(s);
        s = create(modes[i], 3, (const unsigned char[]){1, 1, 1});
        assert_int_equal(sampler_next(s, infinite, &token), SOL_E_ARGUMENT);
        sampler_destroy(s);
        s = create(modes[i], 4, NULL);
        assert_int_equal(next(s, infinite), 1);
        sampler_destroy(s);
        s = create(modes[i], 4, (const unsigned char[]){0, 1, 0, 1});
        assert_int_equal(next(s, infinite), 2);
        sampler_destroy(s);
    }
}

static void test_extreme_temperatures(void **state)
{
    (void)state;
    static const float logits[] = {1, 3, 2.999f, -40000};
    static const double even[] = {1, 1, 1, 0.960788};
    check_distribution(with(1e6, 0, 1, 0), logits, 4, NULL, even);
    static const double coldest[] = {DBL_TRUE_MIN, DBL_MIN, 1e-300, 1e-30, 1e-6};
    for (size_t i = 0; i < COUNT(coldest); i++) {
        struct sampler *s = create(with(coldest[i], 0, i % 2 ? 0.9 : 1, 0), 4, NULL);
        for (int k = 0; k < 50; k++) assert_int_equal(next(s, logits), 1);
        sampler_destroy(s);
    }
}

static void test_reproducible(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float logits[N];
    struct rng rng;
    rng_seed(&rng, 77);
    for (int i = 0; i < N; i++) logits[i] = 3 * rng_normal(&rng);
    const struct sampler_params modes[] = {with(1, 0, 1, 0), with(0.7, 40, 1, 0),
                                           with(1, 0, 0.9, 0.01)};
    for (size_t m = 0; m < COUNT(modes); m++) {
        struct sampler_params other = modes[m];
        other.seed++;
        struct sampler *a = create(modes[m], N, NULL), *b = create(modes[m], N, NULL);
        struct sampler *c = create(other, N, NULL);
        int differences = 0;
        for (int i = 0; i < 300; i++) {
            int32_t token = next(a, logits);
            assert_int_equal(token, next(b, logits));
            differences += token != next(c, logits);
        }
        assert_true(differences > 100);
        sampler_destroy(a), sampler_destroy(b), sampler_destroy(c);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    static const struct sampler_params bad[] = {
        {-1, 0, 1, 0, 0},  {NAN, 0, 1, 0, 0},  {INFINITY, 0, 1, 0, 0}, {1, -1, 1, 0, 0},
        {1, 0, 0, 0, 0},   {1, 0, 1.01, 0, 0}, {1, 0, NAN, 0, 0},      {1, 0, 1, -0.1, 0},
        {1, 0, 1, 1.1, 0}, {1, 0, 1, NAN, 0},
    };
    struct sampler *s;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(sampler_create(&bad[i], 10, NULL, &s), SOL_E_ARGUMENT);
        assert_null(s);
    }
    struct sampler_params good;
    sampler_params_init(&good);
    assert_int_equal(sampler_create(&good, 0, NULL, &s), SOL_E_ARGUMENT);
    sampler_destroy(NULL);
}

/* Prints the times; the bound is loose, since test machines are slow, busy or sanitized. */
static void test_full_vocabulary(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double temperature, top_p, min_p;
        int64_t top_k;
    } modes[] = {{"greedy", 0, 1, 0, 0},        {"plain", 1, 1, 0, 0},
                 {"min_p 0.05", 1, 1, 0.05, 0}, {"top_k 40", 1, 1, 0, 40},
                 {"top_p 0.95", 1, 0.95, 0, 0}, {"top_k 50000", 1, 1, 0, 50000}};
    float *logits = malloc(FULL_VOCAB * sizeof *logits);
    struct rng rng;
    assert_non_null(logits);
    rng_seed(&rng, 4);
    for (int i = 0; i < FULL_VOCAB; i++) logits[i] = 2 * rng_normal(&rng);
    for (int i = 0; i < 50; i++) logits[i * 4000] = 18 - 0.2f * (float)i; /* a few likely ones */
    for (size_t m = 0; m < COUNT(modes); m++) {
        struct sampler *s =
            create(with(modes[m].temperature, modes[m].top_k, modes[m].top_p, modes[m].min_p),
                   FULL_VOCAB, NULL);
        double best = 1e9;
        for (int i = 0; i < 10; i++) {
            struct timespec a, b;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
            next(s, logits);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
            double us =
                1e6 * (double)(b.tv_sec - a.tv_sec) + 1e-3 * (double)(b.tv_nsec - a.tv_nsec);
            if (us < best) best = us;
        }
        printf("             %-12s %7.0f us\n", modes[m].name, best);
        assert_true(best < 500000);
        sampler_destroy(s);
    }
    free(logits);
}

/* What is asked of op sample gives the token that the sampler itself would take. */
static void test_request(void **state)
{
    (void)state;
    enum { VOCAB = 700 };
    static const struct sampler_params modes[] = {
        {0, 0, 1, 0, 7}, {1, 0, 1, 0, 7}, {0.3, 0, 1, 0, 7}, {2, 0, 1, 0.1, 7}};
    static const struct sampler_params more[] = {{1, 3, 1, 0, 7}, {1, 0, 0.9, 0, 7}};
    unsigned char banned[VOCAB] = {0};
    uint32_t bits[(VOCAB + 31) / 32];
    float logits[VOCAB];
    struct rng rng;
    struct sample_draw draw;
    rng_seed(&rng, 3);
    for (int i = 0; i < VOCAB; i++) banned[i] = rng_range(&rng, 0, 3) == 0;
    for (size_t m = 0; m < COUNT(modes); m++) {
        struct sampler *itself = create(modes[m], VOCAB, banned);
        struct sampler *asked = create(modes[m], VOCAB, banned);
        sampler_banned(asked, bits);
        for (int i = 0; i < VOCAB; i++) assert_int_equal(bits[i / 32] >> i % 32 & 1, banned[i]);
        for (int k = 0; k < 100; k++) {
            int32_t token = -9;
            for (int i = 0; i < VOCAB; i++) logits[i] = 2 * rng_normal(&rng);
            assert_true(sampler_request(asked, &draw));
            op_sample.reference(NULL, &(struct sample_args){.n = 1,
                                                            .vocab = VOCAB,
                                                            .logits = matrix_f32(logits, 1, VOCAB),
                                                            .banned = bits,
                                                            .draws = &draw,
                                                            .token = &token});
            assert_int_equal(token, next(itself, logits));
        }
        sampler_destroy(itself);
        sampler_destroy(asked);
    }
    for (size_t m = 0; m < COUNT(more); m++) {
        struct sampler *s = create(more[m], VOCAB, NULL);
        assert_false(sampler_request(s, &draw));
        sampler_destroy(s);
    }
}

/* Alike logits and the same noise mostly give the same token: Gumbel noise in common does so in at
 * least (1 - d) / (1 + d) of draws of distributions d apart. With noise of their own 14 of 500
 * did. */
static void test_common_noise(void **state)
{
    (void)state;
    enum { VOCAB = 3000, ROUNDS = 500 };
    static float ours[VOCAB], theirs[VOCAB];
    struct sampler *s = create(with(1, 0, 1, 0), VOCAB, NULL);
    struct rng rng;
    int same = 0;
    double apart = 0;
    rng_seed(&rng, 6);
    for (int round = 0; round < ROUNDS; round++) {
        double p = 0, q = 0, differences = 0;
        int32_t token = -9;
        for (int i = 0; i < VOCAB; i++) {
            ours[i] = 2.5f * rng_normal(&rng);
            theirs[i] = ours[i] + 0.3f * rng_normal(&rng);
            p += exp((double)ours[i]), q += exp((double)theirs[i]);
        }
        for (int i = 0; i < VOCAB; i++)
            differences += fabs(exp((double)ours[i]) / p - exp((double)theirs[i]) / q) / 2;
        apart += (1 - differences) / (1 + differences) / ROUNDS;
        const struct sample_draw draw = sampler_foresee(s, 0);
        op_sample.reference(NULL, &(struct sample_args){.n = 1,
                                                        .vocab = VOCAB,
                                                        .logits = matrix_f32(theirs, 1, VOCAB),
                                                        .draws = &draw,
                                                        .token = &token});
        same += token == next(s, ours);
    }
    print_message("%d of %d the same, %.0f at least expected\n", same, (int)ROUNDS, apart * ROUNDS);
    assert_true(same > apart * ROUNDS);
    sampler_destroy(s);
}

/* What is foreseen is what is asked for when its turn comes. */
static void test_foresee(void **state)
{
    (void)state;
    static const struct sampler_params modes[] = {{0, 0, 1, 0, 7}, {0.3, 0, 1, 0.1, 7}};
    for (size_t m = 0; m < COUNT(modes); m++) {
        struct sampler *s = create(modes[m], 10, NULL);
        struct sample_draw foreseen[5], draw;
        for (int i = 0; i < 5; i++) foreseen[i] = sampler_foresee(s, i);
        for (int i = 0; i < 5; i++) {
            assert_true(sampler_request(s, &draw));
            assert_memory_equal(&draw, &foreseen[i], sizeof draw);
            assert_int_equal(draw.key == 0, m == 0);
        }
        sampler_destroy(s);
    }
}

/* What is allowed for the moment draws as what is not banned for good. */
static void test_allowed(void **state)
{
    (void)state;
    enum { VOCAB = 700 };
    static const struct sampler_params settings[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0, .top_p = 1},
        {.temperature = 2, .top_p = 0.9},
        {.temperature = 1, .top_k = 20, .top_p = 0.8, .min_p = 0.01},
    };
    struct rng rng;
    float logits[VOCAB];
    int taken = 0;
    rng_seed(&rng, 3);
    for (size_t round = 0; round < 40; round++) {
        struct sampler *a, *b;
        struct sample_draw draw;
        uint32_t bits[(VOCAB + 31) / 32] = {0}, list[(VOCAB + 31) / 32];
        unsigned char banned[VOCAB];
        for (int i = 0; i < VOCAB; i++) {
            logits[i] = rng_normal(&rng) * 3;
            banned[i] = i && rng_range(&rng, 0, (int64_t)round) > 0;
            if (!banned[i]) bits[i / 32] |= 1u << i % 32;
        }
        const struct sampler_params *params = &settings[round % COUNT(settings)];
        assert_int_equal(sampler_create(params, VOCAB, NULL, &a), SOL_OK);
        assert_int_equal(sampler_create(params, VOCAB, banned, &b), SOL_OK);
        sampler_allow(a, bits);
        assert_true(sampler_is_restricted(a) && !sampler_is_restricted(b));
        for (int i = 0; i < 50; i++) {
            int32_t x, y;
            assert_int_equal(sampler_next(a, logits, &x), SOL_OK);
            assert_int_equal(sampler_next(b, logits, &y), SOL_OK);
            assert_int_equal(x, y);
            assert_false(banned[x]);
        }
        /* By the op with a list, the next token is the same too. */
        sampler_list(a, list);
        if (sampler_request(a, &draw)) {
            int32_t x = -9, y;
            draw.list = 0;
            op_sample.reference(NULL, &(struct sample_args){.n = 1,
                                                            .vocab = VOCAB,
                                                            .logits = matrix_f32(logits, 1, VOCAB),
                                                            .lists = list,
                                                            .draws = &draw,
                                                            .token = &x});
            assert_int_equal(sampler_next(b, logits, &y), SOL_OK);
            assert_int_equal(x, y);
            taken++;
        }
        memset(bits, 0, sizeof bits);
        int32_t none;
        assert_int_equal(sampler_next(a, logits, &none), SOL_E_ARGUMENT);
        sampler_allow(a, NULL);
        assert_int_equal(sampler_next(a, logits, &none), SOL_OK);
        sampler_destroy(a);
        sampler_destroy(b);
    }
    assert_int_equal(taken, 20); /* those without top_k and top_p */
}

int main(void)
{
    draws = (int)effort("draws", DRAWS, DRAWS_LEAST);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_nan_and_infinity),
        cmocka_unit_test(test_extreme_temperatures),
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_common_noise),
        cmocka_unit_test(test_foresee),
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_full_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
