#include "base/escape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_text(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain \t\n ~", "plain \t\n ~"},
        {"\033[31m\r\a", "\\x1b[31m\\x0d\\x07"},
        {"\x7f", "\\u007f"},
        {"na\xc3\xafve \xe6\x97\xa5 \xf0\x9f\x99\x82",
         "na\xc3\xafve \xe6\x97\xa5 \xf0\x9f\x99\x82"},
        {"\xc2\x9b\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa9", "\\u009b\\u202e\\u2066\xe2\x80\xa9"},
        {"\x9b\xff\xc3", "\\x9b\\xff\\xc3"},                   /* no UTF-8, and its start alone */
        {"\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80"}, /* overlong, a surrogate */
        {"\xe2\x80", "\\xe2\\x80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[100];
        escape_text(out, sizeof out, cases[i].text);
        assert_string_equal(out, cases[i].shown);
    }
}

static void test_room(void **state)
{
    char out[6];
    (void)state;
    escape_text(out, sizeof out, "ab\033c"); /* an escape is whole or not there */
    assert_string_equal(out, "ab");
    escape_text(out, sizeof out, "a\033");
    assert_string_equal(out, "a\\x1b");
}

static void test_line(void **state)
{
    (void)state;
    char *line = escape_line("a\nb\tc\033");
    assert_non_null(line);
    assert_string_equal(line, "a b c\\x1b");
    free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
