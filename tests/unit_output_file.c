/* What becomes of a file that exists when another one is written in its place. */
#include "format/output_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

static char work[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(work, "/tmp/sol-output-XXXXXX");
    return mkdtemp(work) ? chdir(work) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    output_folder_discard(work);
    return 0;
}

static void put(const char *path, const char *text, mode_t mode)
{
    assert_int_equal(output_file_text(path, text, strlen(text)), SOL_OK);
    assert_int_equal(chmod(path, mode), 0);
}

static void assert_holds(const char *path, const char *text)
{
    char got[64] = "";
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    assert_int_equal(fread(got, 1, sizeof got - 1, from), strlen(text));
    fclose(from);
    assert_string_equal(got, text);
}

static int names(void)
{
    int n = 0;
    FILE *list = popen("ls -A | wc -l", "r");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%d", &n), 1);
    pclose(list);
    return n;
}

static void test_kept(void **state)
{
    (void)state;
    struct stat info;
    char value[8] = "";
    put("a", "old", 0640);
    bool owner = chown("a", 1234, 1235) == 0; /* as root */
    bool attribute = setxattr("a", "user.note", "mine", 4, 0) == 0;
    assert_int_equal(output_file_text("a", "new", 3), SOL_OK);
    assert_holds("a", "new");
    assert_int_equal(stat("a", &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    if (owner) assert_int_equal(info.st_uid, 1234);
    if (owner) assert_int_equal(info.st_gid, 1235);
    if (attribute) assert_int_equal(getxattr("a", "user.note", value, sizeof value), 4);
    assert_int_equal(names(), 1);
    unlink("a");
}

static void test_refused(void **state)
{
    (void)state;
    struct output_file *file;
    put("a", "old", 0444);
    assert_int_equal(output_file_text("a", "new", 3), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "0444"));
    chmod("a", 0644);
    assert_int_equal(output_file_create("a", 0, OUTPUT_NEW, &file), SOL_E_ARGUMENT);
    assert_int_equal(link("a", "b"), 0);
    assert_int_equal(output_file_text("a", "new", 3), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "2 names"));
    assert_holds("a", "old");
    assert_int_equal(mkfifo("f", 0600), 0);
    assert_int_equal(output_file_text("f", "new", 3), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "FIFO that nobody reads"));
    assert_int_equal(output_file_create("f", 0, 0, &file), SOL_E_IO);
    assert_int_equal(output_file_create("/dev/null", 0, 0, &file), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "any order"));
    assert_int_equal(output_file_text("/dev/null", "new", 3), SOL_OK);
    assert_int_equal(output_file_text(".", "new", 3), SOL_E_IO);
    assert_int_equal(output_file_text("", "new", 3), SOL_E_ARGUMENT);
    assert_int_equal(output_file_text("none/", "new", 3), SOL_E_IO);
    assert_int_equal(names(), 3);
    unlink("a");
    unlink("b");
    unlink("f");
}

static void test_links(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(symlink("target", "link"), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    assert_int_equal(output_file_text("link", "one", 3), SOL_OK);
    assert_holds("target", "one");
    assert_int_equal(output_file_text("link", "two", 3), SOL_OK);
    assert_holds("target", "two");
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(output_file_text("loop", "one", 3), SOL_E_IO);
    unlink("link");
    unlink("loop");
    unlink("target");
}

/* Another program takes the name while the file is written: nobody loses anything. */
static void test_taken_meanwhile(void **state)
{
    (void)state;
    struct output_file *file;
    assert_int_equal(output_file_create("a", 0, OUTPUT_NEW, &file), SOL_OK);
    assert_int_equal(output_file_write(file, 0, "hours", 5), SOL_OK);
    put("a", "theirs", 0600);
    assert_int_equal(output_file_commit(file), SOL_E_ARGUMENT);
    output_file_destroy(file);
    assert_holds("a", "theirs");
    const char *part = strstr(sol_last_error(), "is in '");
    assert_non_null(part);
    char name[64] = "";
    assert_int_equal(sscanf(part, "is in '%63[^']", name), 1);
    assert_holds(name, "hours");
    unlink(name);
    unlink("a");
    assert_int_equal(output_file_create("a", 0, 0, &file), SOL_OK);
    put("a", "theirs", 0600);
    assert_int_equal(output_file_commit(file), SOL_OK); /* replaced, with the mode that it got */
    output_file_destroy(file);
    struct stat info;
    assert_int_equal(stat("a", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(names(), 1);
    unlink("a");
}

static void test_given_up(void **state)
{
    (void)state;
    struct output_file *file;
    struct output_folder *folder;
    assert_int_equal(output_file_create("a", 100, 0, &file), SOL_OK);
    output_file_destroy(file);
    output_file_destroy(NULL);
    assert_int_equal(output_folder_create("d/", &folder), SOL_OK);
    assert_int_equal(names(), 1);
    output_folder_destroy(folder);
    output_folder_destroy(NULL);
    assert_int_equal(names(), 0);
}

/* The folder of a run that goes on stays; an empty one keeps its mode. */
static void test_folders(void **state)
{
    (void)state;
    struct output_folder *one, *two;
    struct stat info;
    assert_int_equal(mkdir("d", 0750), 0);
    assert_int_equal(output_folder_create("d", &one), SOL_OK);
    assert_int_equal(output_folder_create("d", &two), SOL_OK);
    assert_int_equal(names(), 3);
    assert_int_equal(output_folder_commit(one), SOL_OK);
    output_folder_destroy(one);
    assert_int_equal(stat("d", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0750);
    output_folder_destroy(two);
    assert_true(output_folder_is_empty("d"));
    assert_int_equal(names(), 1);
    rmdir("d");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_links),    cmocka_unit_test(test_taken_meanwhile),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
