#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_printed(const struct table *table, enum table_format format,
                           const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    table_print(table, format, to);
    fclose(to);
    assert_string_equal(text, expected);
    free(text);
}

static struct table *sample(void)
{
    struct table *table;
    assert_int_equal(table_create("op|>us|note", &table), SOL_OK);
    assert_int_equal(table_cell(table, "%s", "gemm"), SOL_OK);
    assert_int_equal(table_cell(table, "%.1f", 12.25), SOL_OK);
    assert_int_equal(table_cell(table, "a, \"b\""), SOL_OK);
    assert_int_equal(table_cell(table, "r\xc3\xb4pe"), SOL_OK); /* four characters, five bytes */
    assert_int_equal(table_cell(table, "3"), SOL_OK);
    assert_int_equal(table_cell(table, "x|y"), SOL_OK);
    return table;
}

static void test_text(void **state)
{
    (void)state;
    struct table *table = sample();
    assert_printed(table, TABLE_TEXT,
                   "op      us  note\n"
                   "gemm  12.2  a, \"b\"\n"
                   "r\xc3\xb4pe     3  x|y\n");
    table_destroy(table);
}

static void test_markdown(void **state)
{
    (void)state;
    struct table *table = sample();
    assert_printed(table, TABLE_MARKDOWN,
                   "| op | us | note |\n"
                   "| --- | ---: | --- |\n"
                   "| gemm | 12.2 | a, \"b\" |\n"
                   "| r\xc3\xb4pe | 3 | x\\|y |\n");
    table_destroy(table);
}

static void test_csv(void **state)
{
    (void)state;
    struct table *table = sample();
    assert_printed(table, TABLE_CSV,
                   "op,us,note\n"
                   "gemm,12.2,\"a, \"\"b\"\"\"\n"
                   "r\xc3\xb4pe,3,x|y\n");
    table_destroy(table);
}

static void test_incomplete_and_empty(void **state)
{
    (void)state;
    struct table *table;
    assert_int_equal(table_create("a|b", &table), SOL_OK);
    assert_printed(table, TABLE_CSV, "a,b\n");
    assert_int_equal(table_cell(table, "1"), SOL_OK);
    assert_printed(table, TABLE_CSV, "a,b\n1,\n");
    table_destroy(table);
    table_destroy(NULL);
}

static void test_growth(void **state)
{
    (void)state;
    struct table *table;
    char expected[8000] = "n\n";
    assert_int_equal(table_create(">n", &table), SOL_OK);
    for (int i = 1000; i < 2000; i++) {
        assert_int_equal(table_cell(table, "%d", i), SOL_OK);
        snprintf(expected + strlen(expected), 8, "%d\n", i);
    }
    assert_printed(table, TABLE_CSV, expected);
    table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),   cmocka_unit_test(test_markdown),
        cmocka_unit_test(test_csv),    cmocka_unit_test(test_incomplete_and_empty),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
