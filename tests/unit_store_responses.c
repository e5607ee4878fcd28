/* Stored responses: whose they are, how long and how many are kept, and what a dead process leaves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "store/responses.h"
#include "support/temp_folder.h"

static const struct responses_limits generous = {1 << 30, 3600};

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct responses *opened(const char *where, const struct responses_limits *limits)
{
    struct responses *r;
    must(responses_open(where, limits, &r));
    return r;
}

static void put(struct responses *r, const char *id, const char *owner, enum response_row row,
                const char *object)
{
    const struct stored_response s = {.id = id,
                                      .owner = owner,
                                      .date = "2026-11-24",
                                      .input = "[]",
                                      .object = object,
                                      .row = row,
                                      .created = (int64_t)time(NULL)};
    must(responses_put(r, &s, 1));
}

/* The object; "" where there is none for this owner. */
static const char *got(struct responses *r, const char *owner, const char *id)
{
    static char object[256];
    struct stored_response s;
    struct arena *arena;
    bool found;
    must(arena_create(1 << 12, &arena));
    must(responses_get(r, arena, owner, id, &s, &found));
    snprintf(object, sizeof object, "%s%s", found && s.lost ? "lost " : "", found ? s.object : "");
    arena_destroy(arena);
    return object;
}

static void test_kept(void **state)
{
    (void)state;
    bool found;
    struct responses *r = opened(temp_folder(), &generous);
    put(r, "a", "ann", RESPONSE_WHOLE, "{\"a\":1}");
    put(r, "b", "bob", RESPONSE_BEGUN, "{\"b\":0}");
    assert_string_equal(got(r, "ann", "a"), "{\"a\":1}");
    assert_string_equal(got(r, "bob", "a"), "");
    assert_string_equal(got(r, "", "a"), "");
    assert_string_equal(got(r, "bob", "b"), "{\"b\":0}");
    put(r, "b", "bob", RESPONSE_ENDED, "{\"b\":1}");
    assert_string_equal(got(r, "bob", "b"), "{\"b\":1}");
    must(responses_delete(r, "ann", "b", &found));
    assert_false(found);
    must(responses_delete(r, "bob", "b", &found));
    assert_true(found);
    put(r, "b", "bob", RESPONSE_ENDED, "{\"b\":2}"); /* it was deleted meanwhile */
    assert_string_equal(got(r, "bob", "b"), "");
    responses_close(r);
    r = opened(temp_folder(), &generous);
    assert_string_equal(got(r, "ann", "a"), "{\"a\":1}");
    static const char *const files[] = {"responses.db", "responses.db-wal", "responses.db-shm"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", temp_folder(), files[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 077, 0);
    }
    responses_close(r);
    responses_close(NULL);
}

static void test_in_memory(void **state)
{
    (void)state;
    struct responses *r = opened(NULL, &generous);
    put(r, "m", "", RESPONSE_WHOLE, "{}");
    assert_string_equal(got(r, "", "m"), "{}");
    responses_close(r);
    r = opened(NULL, &generous);
    assert_string_equal(got(r, "", "m"), "");
    responses_close(r);
}

/* The newest stay, however many come. */
static void test_bounded(void **state)
{
    (void)state;
    const struct responses_limits small = {20000, 3600};
    struct responses *r = opened(NULL, &small);
    char id[16], object[200];
    memset(object, 'x', sizeof object - 1);
    object[sizeof object - 1] = '\0';
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "%d", i);
        put(r, id, "", RESPONSE_WHOLE, object);
        assert_string_equal(got(r, "", id), object);
    }
    assert_string_equal(got(r, "", "0"), "");
    assert_string_equal(got(r, "", "500"), "");
    assert_string_equal(got(r, "", "960"), object);
    responses_close(r);
}

static void test_old_ones_go(void **state)
{
    (void)state;
    struct responses *r = opened(NULL, &generous);
    struct stored_response old = {.id = "old",
                                  .owner = "",
                                  .date = "",
                                  .input = "[]",
                                  .object = "{}",
                                  .created = (int64_t)time(NULL) - 4000};
    must(responses_put(r, &old, 1));
    assert_string_equal(got(r, "", "old"), "");
    responses_close(r);
}

/* A batch is stored whole or not at all. */
static void test_batch(void **state)
{
    (void)state;
    struct responses *r = opened(NULL, &generous);
    struct stored_response all[3];
    for (int i = 0; i < 3; i++)
        all[i] = (struct stored_response){.id = i ? "twice" : "once",
                                          .owner = "",
                                          .date = "",
                                          .input = "[]",
                                          .object = "{}",
                                          .created = (int64_t)time(NULL)};
    assert_int_not_equal(responses_put(r, all, 3), SOL_OK);
    assert_string_equal(got(r, "", "once"), "");
    must(responses_put(r, all, 2));
    assert_string_equal(got(r, "", "once"), "{}");
    responses_close(r);
}

/* One that was begun by a process which is gone. */
static void test_lost(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct responses *r;
        if (responses_open(temp_folder(), &generous, &r) != SOL_OK) _exit(1);
        put(r, "lost", "ann", RESPONSE_BEGUN, "{}");
        put(r, "whole", "ann", RESPONSE_WHOLE, "{}");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct responses *r = opened(temp_folder(), &generous);
    put(r, "mine", "ann", RESPONSE_BEGUN, "{}");
    assert_string_equal(got(r, "ann", "lost"), "lost {}");
    assert_string_equal(got(r, "ann", "whole"), "{}");
    assert_string_equal(got(r, "ann", "mine"), "{}");
    responses_close(r);
}

static void test_not_ours(void **state)
{
    (void)state;
    struct responses *r;
    char path[128];
    snprintf(path, sizeof path, "%s/other", temp_folder());
    r = opened(path, &generous);
    responses_close(r);
    snprintf(path, sizeof path, "%s/other/responses.db", temp_folder());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("this is no database at all, and long enough to be read as one if it were", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/other", temp_folder());
    assert_int_equal(responses_open(path, &generous, &r), SOL_E_FORMAT);
    assert_null(r);
    assert_non_null(strstr(sol_last_error(), "responses.db"));
    assert_int_not_equal(responses_open("/proc/none", &generous, &r), SOL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),     cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_bounded),  cmocka_unit_test(test_old_ones_go),
        cmocka_unit_test(test_batch),    cmocka_unit_test(test_lost),
        cmocka_unit_test(test_not_ours),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_remove);
}
