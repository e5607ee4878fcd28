#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- the width of text ---- */

static size_t widest_line(const char *text)
{
    size_t widest = 0;
    for (; *text; text += strcspn(text, "\n") + 1) {
        size_t length = strcspn(text, "\n");
        if (length > widest) widest = length;
    }
    return widest;
}

static char *printed(const struct table *table, enum table_format format)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    table_print(table, format, to);
    fclose(to);
    return text;
}

/* 12 columns of numbers, a kernel's name and a text; `none` is empty. */
static struct table *broad(void)
{
    struct table *table;
    assert_int_equal(table_create("test|=kernel|>t/s|>---sd|>--n|>-median ns per token|>none|"
                                  ">GB/s|>% of limit|~why",
                                  &table),
                     SOL_OK);
    for (int i = 0; i < 3; i++) {
        table_cell(table, "pp%d", 512 << i);
        table_cell(table, "void library::attention_kernel_of_some_length<%d, float>(Args)", i);
        table_cell(table, "%d.25", 12345 + i);
        table_cell(table, "0.12345678");
        table_cell(table, "40");
        table_cell(table, "81234.5");
        table_cell(table, "%s", i ? "-" : "");
        table_cell(table, "3350.1");
        table_cell(table, "71.3");
        table_cell(table, "a text that says why this kernel was chosen and no other one");
    }
    return table;
}

static void test_fits_80_columns(void **state)
{
    (void)state;
    struct table *table = broad();
    char *text = printed(table, TABLE_TEXT);
    assert_true(widest_line(text) <= 80);
    assert_non_null(strstr(text, "12345.25")); /* what matters stays */
    assert_non_null(strstr(text, "% of"));
    assert_null(strstr(text, "0.12345678"));        /* the least important one is gone */
    assert_non_null(strstr(text, "(left out: sd")); /* and named */
    assert_non_null(strstr(text, "empty: none; --wide shows all)"));
    for (int i = 0; i < 3; i++) { /* kernels can still be told apart */
        char argument[16];
        snprintf(argument, sizeof argument, "..%d", i);
        assert_non_null(strstr(text, argument));
    }
    free(text);
    text = printed(table, TABLE_TEXT); /* the same note is said once */
    assert_null(strstr(text, "--wide"));
    free(text);
    table_destroy(table);
}

static void test_wide_and_for_programs(void **state)
{
    (void)state;
    struct table *table = broad();
    static const enum table_format formats[] = {TABLE_CSV, TABLE_MARKDOWN};
    for (size_t i = 0; i < 3; i++) {
        table_wide(i == 2);
        char *text = printed(table, i == 2 ? TABLE_TEXT : formats[i]);
        assert_non_null(strstr(text, "void library::attention_kernel_of_some_length<2, float>("));
        assert_non_null(strstr(text, "0.12345678"));
        assert_non_null(strstr(text, "none"));
        assert_non_null(strstr(text, "median ns per token"));
        assert_non_null(strstr(text, "why this kernel was chosen and no other one"));
        assert_null(strstr(text, "left out"));
        free(text);
    }
    table_wide(false);
    table_destroy(table);
}

static void test_texts_fold(void **state)
{
    (void)state;
    struct table *table;
    assert_int_equal(table_create("rule|~fires when|>gain", &table), SOL_OK);
    table_cell(table, "gap.host");
    table_cell(table, "launches that come after the previous kernel ended leave gaps of 2 %% of a "
                      "step or more of it");
    table_cell(table, "12");
    assert_printed(
        table, TABLE_TEXT,
        "rule      fires when                                                        gain\n"
        "gap.host  launches that come after the previous kernel ended leave gaps of    12\n"
        "          2 % of a step or more of it\n");
    table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_markdown),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_incomplete_and_empty),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_fits_80_columns),
        cmocka_unit_test(test_wide_and_for_programs),
        cmocka_unit_test(test_texts_fold),
    };
    /* On a terminal tables would be as wide as it is. */
    FILE *out = isatty(STDOUT_FILENO) ? popen("cat", "w") : NULL;
    if (out) dup2(fileno(out), STDOUT_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
