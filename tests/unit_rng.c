#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Splitmix64 of seed 0 is published (first output e220a8397b1dcdaf); the four words are the state.
 */
static void test_seed_and_stream_are_fixed(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 0);
    assert_int_equal(rng.state[0], 0xe220a8397b1dcdafu);
    assert_int_equal(rng.state[1], 0x6e789e6aa1b965f4u);
    /* xoshiro256++ of state 1,2,3,4: rotl(1 + 4, 23) + 1 */
    struct rng plain = {{1, 2, 3, 4}};
    assert_int_equal(rng_next(&plain), 41943041);
    assert_int_equal(rng_next(&plain), 58720359);
    assert_int_equal(rng_next(&plain), 3588806011781223);
}

/* Splitmix64's published stream, and an exponential distribution: mean 1, and shares above some
 * values. */
static void test_noise(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0;
    int above[3] = {0};
    assert_int_equal(rng_splitmix(0, 0), 0xe220a8397b1dcdafu);
    assert_int_equal(rng_splitmix(0, 1), 0x6e789e6aa1b965f4u);
    for (uint64_t i = 0; i < N; i++) {
        const double v = rng_noise(42, i), x = rng_exponential(v);
        assert_true(v > 0 && v < 1 && fabs(x + log1p(-v)) <= 1e-12 * x);
        sum += x;
        for (int k = 0; k < 3; k++) above[k] += x > k + 1;
    }
    assert_true(fabs(sum / N - 1) < 0.01);
    for (int k = 0; k < 3; k++) assert_true(fabs(above[k] / (double)N - exp(-k - 1)) < 0.003);
    assert_true(rng_exponential(0x1p-53) > 0 && rng_exponential(1 - 0x1p-53) < 37);
}

/* The known answers that its authors publish. */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t key[2], counter[4], out[4];
    } known[] = {
        {{0, 0}, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0xa4093822, 0x299f31d0},
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

/* The same on every machine and with every compiler: bits, not tolerances. */
static void test_normal_is_reproducible(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 42);
    uint32_t hash = 0;
    for (int i = 0; i < 100000; i++) {
        float value = rng_normal(&rng);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        hash = hash * 31 + bits;
    }
    assert_int_equal(hash, 0xe237b374u);
}

enum { NORMALS = 200000 };

static void check_moments(const float *values)
{
    enum { N = NORMALS };
    double sum = 0, square = 0, fourth = 0;
    int beyond_two = 0;
    for (int i = 0; i < N; i++) {
        double x = (double)values[i];
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
        beyond_two += fabs(x) > 2;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(square / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
    assert_true(fabs((double)beyond_two / N - 0.0455) < 0.003);
}

static void test_normal_moments(void **state)
{
    (void)state;
    static float values[NORMALS], many[NORMALS + 1];
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < NORMALS; i++) values[i] = rng_normal(&rng);
    check_moments(values);

    rng_seed(&rng, 7);
    many[NORMALS - 1] = many[NORMALS] = 5;
    rng_normals(&rng, 4, many, NORMALS - 1);
    assert_true(many[NORMALS - 1] == 5 && many[NORMALS] == 5);
    double products = 0; /* of the two of a pair */
    for (int i = 0; i < NORMALS - 1; i++) {
        many[i] /= 4;
        if (i % 2 == 0) assert_true(many[i] == values[i / 2]);
        if (i % 2) products += (double)many[i] * (double)many[i - 1];
    }
    assert_true(fabs(products / (NORMALS / 2)) < 0.01);
    many[NORMALS - 1] = 0;
    check_moments(many);
}

static void test_uniform(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    double sum = 0, low = 1, high = 0;
    for (int i = 0; i < 100000; i++) {
        double x = rng_uniform(&rng);
        assert_true(x >= 0 && x < 1);
        sum += x;
        if (x < low) low = x;
        if (x > high) high = x;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.01);
    assert_true(low < 0.001 && high > 0.999);
}

static void test_range(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    int counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        int64_t x = rng_range(&rng, -3, 3);
        assert_true(x >= -3 && x <= 3);
        counts[x + 3]++;
    }
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], 9500, 10500);
    assert_int_equal(rng_range(&rng, 9, 9), 9);
    int negative = 0;
    for (int i = 0; i < 1000; i++) negative += rng_range(&rng, INT64_MIN, INT64_MAX) < 0;
    assert_in_range(negative, 400, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_and_stream_are_fixed),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_normal_is_reproducible),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
