#include "base/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/number.h"

static void assert_shown(const struct progress *p, uint64_t done, double seconds,
                         const char *expected)
{
    char text[PROGRESS_TEXT];
    progress_text(p, done, seconds, text);
    assert_string_equal(text, expected);
}

static void test_alone(void **state)
{
    (void)state;
    struct progress p;
    progress_start(&p, "loading", "MiB", 400000);
    assert_shown(&p, 100000, 4, "loading: 100000/400000 MiB (25 %), 25000 MiB/s, 12 s left");
    assert_shown(&p, 1, 1000, "loading: 1/400000 MiB (0 %), 0.001 MiB/s, 111110 h 50 min left");
    assert_shown(&p, 400000, 16, "loading: 400000 MiB, 25000 MiB/s");
    progress_start(&p, "reading", "bytes", 0);
    assert_shown(&p, 7, 2, "reading: 7 bytes, 3.5 bytes/s");
}

/* Time left and share are those of all parts. */
static void test_parts(void **state)
{
    (void)state;
    struct progress_whole whole = {"test", 2, 5, 60, 20, 0};
    struct progress p;
    progress_start(&p, "tg128", "tokens", 200);
    p.whole = &whole;
    assert_shown(&p, 0, 1, "test 2 of 5, tg128");
    assert_shown(&p, 100, 10, "test 2 of 5, tg128: 30 %, 70 s left"); /* 30 s of 100 */
    p.total = 2000; /* more repetitions are needed: the share does not go back */
    assert_shown(&p, 100, 10, "test 2 of 5, tg128: 30 %, 5 min left"); /* 190 s and 60 s */
    p.total = 50;
    assert_shown(&p, 100, 10, "test 2 of 5, tg128: 33 %, 60 s left");
}

/* Of tests that nobody estimated each is as long as those so far. */
static void test_without_estimates(void **state)
{
    (void)state;
    struct progress_whole whole = {"test", 2, 4, -1, 30, 0};
    struct progress p;
    progress_start(&p, "pp512", "tokens", 100);
    p.whole = &whole;
    assert_shown(&p, 50, 5, "test 2 of 4, pp512: 44 %, 45 s left"); /* 35 s of 40, and twice 20 */
    whole = (struct progress_whole){"test", 4, 4, -1, 30, 0};
    assert_shown(&p, 100, 10, "test 4 of 4, pp512: 99 %, 0 s left"); /* not yet at its end */
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {{0, 3, "0"},
                 {2540, 3, "2540"},
                 {14663680, 6, "14663680"},
                 {0.081234, 3, "0.0812"},
                 {1.5, 4, "1.5"},
                 {-12.345, 3, "-12.3"},
                 {1e-7, 3, "0"},
                 {99.96, 3, "100"},
                 {123456.7, 4, "123457"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NUMBER_SIZE];
        assert_string_equal(number_text(cases[i].value, cases[i].digits, text), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_without_estimates),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
