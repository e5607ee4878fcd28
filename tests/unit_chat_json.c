/* JSON of conversations: numbers as openai-harmony's reader has them, and printing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/json.h"
#include "chat/numbers.h"
#include "support/effort.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* What goes in comes out as serde_json 1.0.140 prints it (tools/chat/compare.py draws more). */
static void test_printed(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-0", "-0.0"},
        {"1e2", "100.0"},
        {"1.50", "1.5"},
        {"1e16", "1e16"},
        {"1e15", "1000000000000000.0"},
        {"1234567890123456.5", "1234567890123456.5"},
        {"0.00001", "0.00001"},
        {"0.000001", "1e-6"},
        {"1.5E-7", "1.5e-7"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "1.8446744073709552e19"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"-9223372036854775809", "-9.223372036854776e18"},
        {"1e-400", "0.0"},
        {"5e-324", "5e-324"},
        {"0e999999999999", "0.0"},
        {"1.7976931348623157e308", "1.7976931348623157e308"},
        {"[true,false,null,\"\\u001f\\\"\\\\\\n\\u007f\\u00e9/\"]",
         "[true,false,null,\"\\u001f\\\"\\\\\\n\x7f\xc3\xa9/\"]"},
        {"{\"b\" : 1, \"a\":{},\"c\":[]}", "{\"b\":1,\"a\":{},\"c\":[]}"},
        {"\"a\\u0000b\"", "\"a\\u0000b\""},
        {"\"12\"", "\"12\""},
        {"\"-1e5 [\\\"0\"", "\"-1e5 [\\\"0\""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        struct text_buffer to = {0};
        json_t *json;
        snprintf(text, sizeof text, "[%s]", cases[i][0]);
        if (chat_json_read(text, strlen(text), "f", &json) != SOL_OK)
            fail_msg("%s", sol_last_error());
        chat_json_print(json_array_get(json, 0), &to);
        assert_int_equal(to.length, strlen(cases[i][1]));
        assert_memory_equal(to.data, cases[i][1], to.length);
        text_buffer_free(&to);
        json_decref(json);
    }
}

static void test_no_numbers(void **state)
{
    (void)state;
    static const char *const cases[] = {"",    "-",  "01", "1.",    ".5",    "1e",
                                        "1e+", "+1", "a",  "1e309", "-1e999"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t length;
        assert_int_equal(number_read(cases[i], strlen(cases[i]), &length).kind, NUMBER_NONE);
    }
}

/* Whatever double: the printed text gives it back, and no shorter one does. */
static void test_shortest(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    for (int64_t n = effort("doubles", 20000, 2000); n > 0; n--) {
        uint64_t bits = rng_next(&rng);
        char text[NUMBER_TEXT_MAX + 1], shorter[64];
        double value;
        memcpy(&value, &bits, sizeof value);
        if (n % 3 == 0) value = (double)rng_range(&rng, -100000, 100000) / 1000;
        if (!isfinite(value)) continue;
        size_t length = number_print(value, text), digits = 0;
        assert_true(length <= NUMBER_TEXT_MAX);
        text[length] = 0;
        assert_true(strtod(text, NULL) == value);
        const char *end = strchr(text, 'e');
        const char *from = text + strspn(text, "-0.");
        for (const char *at = from; *at && at != end; at++) digits += *at >= '0' && *at <= '9';
        while (digits > 1 && from[digits - 1] == '0') digits--; /* "1000.0" */
        if (digits < 3 || digits > 17) continue;
        snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, value);
        if (strchr(text, '.') && !strstr(text, ".0")) assert_true(strtod(shorter, NULL) != value);
    }
}

/* Up to 15 digits and small exponents the quick rule is exact. */
static void test_read_exactly(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 4);
    for (int64_t n = effort("numbers", 20000, 2000); n > 0; n--) {
        char text[64];
        size_t length;
        snprintf(text, sizeof text, "%lld.%llde%lld", (long long)rng_range(&rng, -9999999, 9999999),
                 (long long)rng_range(&rng, 0, 9999999), (long long)rng_range(&rng, -15, 22));
        struct number number = number_read(text, strlen(text), &length);
        assert_int_equal(length, strlen(text));
        assert_int_equal(number.kind, NUMBER_REAL);
        assert_true(number.real == strtod(text, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_printed),
        cmocka_unit_test(test_no_numbers),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_read_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
