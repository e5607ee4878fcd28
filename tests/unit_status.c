#include "base/status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_set_and_prefix(void **state)
{
    (void)state;
    assert_int_equal(status_set(SOL_E_FORMAT, "byte %d is %s", 7, "wrong"), SOL_E_FORMAT);
    assert_string_equal(sol_last_error(), "byte 7 is wrong");
    assert_int_equal(status_prefix(SOL_E_FORMAT, "file '%s'", "a.gguf"), SOL_E_FORMAT);
    assert_string_equal(sol_last_error(), "file 'a.gguf': byte 7 is wrong");
}

/* The message may be an argument of its own successor. */
static void test_set_from_itself(void **state)
{
    (void)state;
    status_set(SOL_E_IO, "inner");
    status_set(SOL_E_IO, "outer (%s)", sol_last_error());
    assert_string_equal(sol_last_error(), "outer (inner)");
}

static void test_long_messages_are_cut(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    status_set(SOL_E_IO, "%s", text);
    size_t length = strlen(sol_last_error());
    assert_in_range(length, 500, sizeof text - 2);
    status_prefix(SOL_E_IO, "%s", "file");
    assert_int_equal(strlen(sol_last_error()), length);
    assert_memory_equal(sol_last_error(), "file: xxx", 9);
    status_prefix(SOL_E_IO, "%s", text);
    assert_int_equal(strlen(sol_last_error()), length);
}

static enum sol_status passes_on(enum sol_status status, int *after)
{
    SOL_TRY(status);
    ++*after;
    return SOL_OK;
}

static void test_try(void **state)
{
    (void)state;
    int after = 0;
    assert_int_equal(passes_on(SOL_E_MEMORY, &after), SOL_E_MEMORY);
    assert_int_equal(after, 0);
    assert_int_equal(passes_on(SOL_OK, &after), SOL_OK);
    assert_int_equal(after, 1);
}

static void *other_thread(void *arg)
{
    char *seen = arg;
    snprintf(seen, 64, "[%s]", sol_last_error());
    status_set(SOL_E_INTERNAL, "from the other thread");
    return NULL;
}

static void test_per_thread(void **state)
{
    (void)state;
    char seen[64];
    pthread_t thread;
    status_set(SOL_E_IO, "from the main thread");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
    pthread_join(thread, NULL);
    assert_string_equal(seen, "[]");
    assert_string_equal(sol_last_error(), "from the main thread");
}

/* Distinct names and exit statuses; values out of range are survived. */
static void test_codes(void **state)
{
    (void)state;
    for (int a = 0; a < SOL_STATUS_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(sol_status_name((enum sol_status)a),
                                    sol_status_name((enum sol_status)b));
            assert_int_not_equal(status_exit_code((enum sol_status)a),
                                 status_exit_code((enum sol_status)b));
        }
    }
    assert_string_equal(sol_status_name(SOL_E_FORMAT), "format");
    assert_int_equal(status_exit_code(SOL_OK), 0);
    assert_int_equal(status_exit_code(SOL_E_ARGUMENT), 2);
    assert_int_equal(status_exit_code(SOL_E_INTERRUPTED), 130);
    assert_non_null(sol_status_name((enum sol_status)99));
    assert_int_equal(status_exit_code((enum sol_status)99), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_prefix),
        cmocka_unit_test(test_set_from_itself),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_per_thread),
        cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
