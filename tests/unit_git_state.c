/* What differs from a commit, told without running what the tree says (cli_permission.sh has more
 * traps). */
#include "store/git_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/sol-git-state-XXXXXX";

/* In the tree. */
static void sh(const char *command)
{
    char text[1000];
    snprintf(text, sizeof text, "cd %s && { %s; } >/dev/null 2>&1", folder, command);
    if (system(text) != 0) fail_msg("failed: %s", command); /* NOLINT(cert-env33-c) */
}

static struct git_state state_of(const char *below)
{
    char path[300];
    struct git_state state;
    snprintf(path, sizeof path, "%s/%s", folder, below);
    git_state_read(path, &state);
    return state;
}

static void expect_clean(const char *below)
{
    struct git_state s = state_of(below);
    assert_true(s.has_commit && s.has_dirty);
    assert_string_equal(s.dirty, "");
}

/* `out` is what differs. */
static void expect_dirty(char out[17])
{
    struct git_state top = state_of("tree"), below = state_of("tree/sub");
    assert_true(top.has_dirty && strlen(top.dirty) == 16);
    assert_string_equal(top.dirty, below.dirty);
    strcpy(out, top.dirty);
}

static void make_tree(const char *options)
{
    char command[600];
    snprintf(command, sizeof command,
             "rm -rf tree; git init -q %s tree; cd tree; git config user.email t@example.org; git "
             "config user.name t; mkdir sub; seq 10 >one; seq 20 >sub/two; printf 'a\\r\\n' >ends; "
             "git add -A; git commit -qm first",
             options);
    sh(command);
}

static void test_changes(void **state)
{
    (void)state;
    char first[17], again[17], other[17];
    make_tree("");
    expect_clean("tree");
    expect_clean("tree/sub");
    sh("cd tree; touch -d 2001-01-01 one sub/two"); /* no change of content */
    expect_clean("tree");
    sh("cd tree; seq 11 >one");
    expect_dirty(first);
    expect_dirty(again);
    assert_string_equal(first, again);
    sh("cd tree; seq 12 >one");
    expect_dirty(other);
    assert_string_not_equal(first, other);
    sh("cd tree; seq 10 >one; seq 3 >new");
    expect_dirty(other);
    sh("cd tree; echo new >>.git/info/exclude");
    expect_clean("tree");
    sh("cd tree; git config core.autocrlf true; touch -d 2002-01-01 ends; chmod +x one; git config "
       "core.filemode false");
    expect_clean("tree");
    sh("cd tree; git worktree add -q ../other; seq 5 >../other/one");
    expect_clean("tree");
    assert_int_equal(strlen(state_of("other").dirty), 16);
    sh("rm -rf other");
}

static void test_nothing_runs(void **state)
{
    (void)state;
    char first[17];
    make_tree("");
    sh("cd tree; echo '* filter=x diff=x' >.git/info/attributes; git config filter.x.clean 'touch "
       "../ran; cat'; git config diff.x.textconv 'touch ../ran; cat'; git config diff.external "
       "'touch ../ran'; git config core.fsmonitor 'touch ../ran'; seq 11 >one; touch sub/two");
    expect_dirty(first);
    sh("[ ! -e ran ]");
    sh("cd tree; git status; [ -e ../ran ]"); /* git would */
}

static void test_others(void **state)
{
    (void)state;
    char first[17];
    assert_false(state_of(".").has_commit);
    sh("git init -q none");
    assert_false(state_of("none").has_commit); /* nothing is committed */
    make_tree("--object-format=sha256");
    struct git_state s = state_of("tree");
    assert_int_equal(strlen(s.commit), 64);
    expect_clean("tree");
    sh("cd tree; seq 11 >one");
    expect_dirty(first);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command); /* NOLINT(cert-env33-c): the test's own folder */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_nothing_runs),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
