#include "base/notes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static void test_each_once(void **state)
{
    (void)state;
    struct notes notes = {.items = NULL};
    char *text = NULL, about[8];
    size_t size = 0;
    for (int i = 0; i < 9; i++) {
        snprintf(about, sizeof about, "pp%d", i);
        assert_int_equal(notes_add(&notes, about, "did not settle"), SOL_OK);
        assert_int_equal(notes_add(&notes, i % 2 ? "a" : "b", "disturbed"), SOL_OK);
        assert_int_equal(notes_add(&notes, NULL, "no sensors"), SOL_OK);
    }
    FILE *to = open_memstream(&text, &size);
    notes_print(&notes, "note: ", to);
    fclose(to);
    assert_string_equal(text, "note: did not settle (pp0; pp1; pp2; pp3; pp4; pp5 and 3 more)\n"
                              "note: disturbed (b; a)\n"
                              "note: no sensors\n");
    free(text);
    notes_free(&notes);
    notes_free(&notes);
}

/* A warning that every test makes is printed once. */
static void test_warnings(void **state)
{
    (void)state;
    char text[4096] = "";
    int ends[2], old = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    for (int i = 0; i < 5; i++) {
        LOG_WARN("the tuning record is of another driver");
        LOG_WARN("test %d is long", i % 2);
    }
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_string_equal(text, "sol: warning: the tuning record is of another driver\n"
                              "sol: warning: test 0 is long\n"
                              "sol: warning: test 1 is long\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_warnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
