/* Configurations and the git side of sol opt. The verbs are tested as a user runs them
 * (cli_opt.sh). */
#include "opt/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "opt/baseline.h"
#include "opt/put.h"

/* ---- configuration ---- */

static enum sol_status parse(const char *text, struct opt_config *out)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return opt_config_from_json(json, "test", out);
}

static void presets_are_valid(void **state)
{
    (void)state;
    for (size_t i = 0; opt_presets[i]; i++) {
        json_t *json;
        struct opt_config c;
        assert_int_equal(opt_config_preset(opt_presets[i], "a b'c", &json), SOL_OK);
        assert_int_equal(opt_config_from_json(json, opt_presets[i], &c), SOL_OK);
        assert_null(strstr(c.benchmark, "@MODEL@"));
        if (strcmp(opt_presets[i], "make") != 0)
            assert_non_null(strstr(c.benchmark, "'a b'\\''c'"));
        opt_config_free(&c);
    }
    json_t *json;
    assert_int_equal(opt_config_preset("llama", NULL, &json), SOL_E_ARGUMENT);
    assert_null(json);
}

static void configuration_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"[]", "not a JSON object"},
        {"{}", "\"benchmark\" is missing"},
        {"{\"benchmark\": null, \"correctness\": \"a\", \"perplexity\": null}", "is null"},
        {"{\"benchmark\": \" \", \"correctness\": \"a\", \"perplexity\": null}", "a command"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\"}", "\"perplexity\" is missing"},
        {"{\"benchmark\": \"a\", \"correctness\": null, \"perplexity\": null}", "same_output"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": \"p\"}",
         "perplexity_value"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"metrics\": [1]}",
         "list of texts"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"min_pairs\": 5}",
         "from 6"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"min_pairs\": 7.5}",
         "whole"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"min_pairs\": 50, "
         "\"max_pairs\": 40}",
         "more than"},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"bild\": \"\"}",
         "did you mean \"build\""},
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, "
         "\"same_output\": 1}",
         "true or false"},
    };
    struct opt_config c;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(parse(wrong[i].text, &c), SOL_E_FORMAT);
        if (!strstr(sol_last_error(), wrong[i].message))
            fail_msg("%s: %s", wrong[i].text, sol_last_error());
        assert_null(c.json);
    }
    assert_int_equal(parse("{\"benchmark\": \"a\", \"correctness\": \"b\", \"perplexity\": null, "
                           "\"expect\": [\"gemm\"], \"perplexity_percent\": 0.2}",
                           &c),
                     SOL_OK);
    assert_string_equal(c.correctness, "b");
    assert_null(c.build);
    assert_int_equal(c.expect.count, 1);
    assert_true(c.perplexity_percent == 0.2 && c.min_pairs == 6 && c.timeout_s == 3600);
    opt_config_free(&c);
}

/* ---- a git tree ---- */

struct fixture {
    char folder[64], path[80];
    struct opt_tree tree;
    char base[OPT_HASH_SIZE];
};

static void shell(const struct fixture *f, const char *command)
{
    struct process_result p;
    assert_int_equal(opt_tree_must(f->path, "test", command, 60, &p), SOL_OK);
    process_result_free(&p);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    strcpy(f->folder, "/tmp/sol-unit-opt-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->path, sizeof f->path, "%s/it's", f->folder);
    char command[256];
    struct process_result p;
    snprintf(command, sizeof command, "mkdir \"%s\" && command -v git", f->path);
    if (process_run(command, 60, &p) != SOL_OK) return -1;
    bool has_git = p.exit_status == 0;
    process_result_free(&p);
    if (has_git) {
        shell(f, "git init -q && git config user.email t@example.org && git config user.name t");
        shell(f, "printf 'one\\n' > a && printf 'two\\n' > 'b c' && ln -s a l && git add -A && git "
                 "commit -qm first");
        assert_int_equal(opt_tree_open(f->path, f->folder, &f->tree), SOL_OK);
        assert_int_equal(opt_tree_lock(&f->tree), SOL_OK);
        assert_int_equal(opt_tree_head(&f->tree, f->base), SOL_OK);
        *state = f;
        return 0;
    }
    printf("skipped: no git\n");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    struct process_result p;
    opt_tree_close(&f->tree);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    if (process_run(command, 60, &p) == SOL_OK) process_result_free(&p);
    free(f);
    return 0;
}

static void take(const struct fixture *f, struct opt_snapshot *out)
{
    static const struct string_list exclude = {{"*.o", "build/"}, 2};
    json_t *left_out = json_pack("[s]", "mine");
    if (opt_tree_snapshot(&f->tree, f->base, left_out, &exclude, out) != SOL_OK)
        fail_msg("%s", sol_last_error());
    json_decref(left_out);
}

static void snapshots_and_diffs(void **state)
{
    struct fixture *f = *state;
    struct opt_snapshot now;
    struct mapped_file diff;
    char hash[OPT_HASH_SIZE];
    if (!f->base[0]) skip();
    take(f, &now);
    assert_int_equal(json_array_size(now.files), 0);
    opt_snapshot_free(&now);
    /* Staged, unstaged, removed, added, of another kind, with odd bytes, and what does not count.
     */
    shell(f, "echo 1 > a && git add a && echo 2 > a && rm 'b c' && ln -sf 'b c' l && mkdir d build "
             "&& printf '\\000\\377x' > 'd/\"n\"' && touch mine x.o build/y sol-opt.json && chmod "
             "+x a");
    take(f, &now);
    char *names = json_dumps(now.files, JSON_COMPACT);
    assert_string_equal(names, "[\"a\",\"b c\",\"d/\\\"n\\\"\",\"l\"]");
    free(names);
    names = json_dumps(now.staged_files, JSON_COMPACT);
    assert_string_equal(names, "[\"a\"]");
    free(names);
    assert_int_equal(opt_tree_diff(&f->tree, f->base, now.hash, &diff), SOL_OK);
    assert_int_equal(opt_tree_apply(&f->tree, f->base, diff.data, diff.size, hash), SOL_OK);
    assert_string_equal(hash, now.hash);
    mapped_file_close(&diff);
    /* The user's index is as it was. */
    shell(f, "test \"$(git diff --cached --name-only)\" = a && git show :a | grep -qx 1");
    opt_snapshot_free(&now);
}

/* Exactly the measured tree is committed, whatever the files and the index hold by then. */
static void commits_what_was_measured(void **state)
{
    struct fixture *f = *state;
    struct opt_snapshot now;
    char commit[OPT_HASH_SIZE], parent[OPT_HASH_SIZE];
    json_t *differing;
    if (!f->base[0]) skip();
    shell(f, "echo 2 > a && git rm -q 'b c' && mkdir d && echo n > d/n");
    take(f, &now);
    shell(f, "echo 3 > a && echo 4 > l2 && git add a l2");
    assert_int_equal(
        opt_put_commit(&f->tree, f->base, now.hash, "subject\n\niteration: x\n", commit), SOL_OK);
    assert_int_equal(opt_tree_parent(&f->tree, commit, parent), SOL_OK);
    assert_string_equal(parent, f->base);
    assert_int_equal(opt_tree_changed(&f->tree, commit, now.hash, &differing), SOL_OK);
    assert_int_equal(json_array_size(differing), 0);
    json_decref(differing);
    shell(f, "grep -qx 3 a && git show :a | grep -qx 3 && git show :l2 | grep -qx 4");
    assert_int_equal(opt_put_staged(&f->tree, now.files, now.hash), SOL_OK);
    shell(f, "git show :a | grep -qx 2 && git show :d/n && test \"$(git diff --cached "
             "--name-only)\" = l2");
    shell(f, "git reset -q --hard HEAD~1");

    /* A hook that adds something, and one that refuses. */
    shell(f, "printf '#!/bin/sh\\necho 9 > a; git add a\\n' > .git/hooks/pre-commit && chmod +x "
             ".git/hooks/pre-commit");
    assert_int_equal(
        opt_put_commit(&f->tree, f->base, now.hash, "subject\n\niteration: x\n", commit),
        SOL_E_MISMATCH);
    assert_non_null(strstr(sol_last_error(), "a hook"));
    assert_int_equal(opt_tree_head(&f->tree, commit), SOL_OK);
    assert_string_equal(commit, f->base);
    shell(f, "printf '#!/bin/sh\\necho no; exit 1\\n' > .git/hooks/pre-commit");
    assert_int_equal(
        opt_put_commit(&f->tree, f->base, now.hash, "subject\n\niteration: x\n", commit), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "no"));
    opt_snapshot_free(&now);
}

static void put_back(const struct fixture *f, const struct opt_snapshot *now)
{
    assert_int_equal(opt_put_files(&f->tree, now->files, f->base, now->hash), SOL_OK);
    assert_int_equal(opt_put_staged(&f->tree, now->files, f->base), SOL_OK);
    assert_int_equal(opt_put_staged(&f->tree, now->staged_files, f->base), SOL_OK);
}

static void files_become_folders_and_back(void **state)
{
    struct fixture *f = *state;
    struct opt_snapshot now;
    if (!f->base[0]) skip();
    shell(f, "mkdir e && echo 1 > e/x && git add e && git commit -qm second");
    assert_int_equal(opt_tree_head(&f->tree, f->base), SOL_OK);
    shell(f,
          "rm -r a e && mkdir -p a/deep/er && echo 1 > a/deep/er/x && echo 2 > e && git add -A a");
    take(f, &now);
    assert_int_equal(json_array_size(now.files), 4);
    put_back(f, &now);
    shell(f, "git diff --quiet HEAD && git diff --cached --quiet HEAD && test -f a && test -f e/x");
    assert_int_equal(opt_put_files(&f->tree, now.files, now.hash, f->base), SOL_OK);
    shell(f, "test -f a/deep/er/x && grep -qx 2 e");
    /* A file that is not recorded is in the way: nothing of it is touched. */
    shell(f, "echo precious > a/mine");
    assert_int_equal(opt_put_files(&f->tree, now.files, f->base, now.hash), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "in its place"));
    shell(f, "grep -qx precious a/mine && rm -r a");
    put_back(f, &now);
    shell(f, "git diff --quiet HEAD");
    opt_snapshot_free(&now);

    /* A folder became a link that leads outside. */
    shell(f, "mkdir ../outside && echo victim > ../outside/x && rm -r e && ln -s ../outside e");
    take(f, &now);
    json_t *names = json_pack("[s]", "e/x"), *bad = json_pack("[s]", "../outside/x");
    assert_int_equal(opt_put_files(&f->tree, names, f->base, now.hash), SOL_E_ARGUMENT);
    assert_int_equal(opt_put_files(&f->tree, bad, f->base, now.hash), SOL_E_FORMAT);
    shell(f, "git commit -qm gone --allow-empty");
    assert_int_equal(opt_put_files(&f->tree, bad, "HEAD", now.hash), SOL_E_FORMAT);
    shell(f, "grep -qx victim ../outside/x");
    put_back(f, &now);
    shell(f, "grep -qx victim ../outside/x && grep -qx 1 e/x && test ! -L e");
    json_decref(names);
    json_decref(bad);
    opt_snapshot_free(&now);
}

static void special_trees(void **state)
{
    struct fixture *f = *state;
    static const struct string_list none = {{NULL}, 0};
    struct opt_snapshot now;
    json_t *nothing = json_array();
    if (!f->base[0]) skip();
    /* Hooks and a monitor that a tree's configuration names do not run. */
    shell(f,
          "for h in post-checkout post-index-change reference-transaction; do printf '#!/bin/sh\\n"
          "touch ../canary\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done; git config "
          "core.fsmonitor 'touch ../canary; false'");
    shell(f, "echo 5 > a; rm -f ../canary");
    take(f, &now);
    put_back(f, &now);
    opt_snapshot_free(&now);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, NULL, &none, 60), SOL_OK);
    shell(f, "test ! -e ../canary; git config --unset core.fsmonitor; rm .git/hooks/*");
    /* Files that a sparse tree leaves out are not deleted ones. */
    shell(f,
          "mkdir in out && echo 1 > in/x && echo 1 > out/x && git add in out && git commit -qm two "
          "&& git sparse-checkout set in && test ! -e out/x");
    assert_int_equal(opt_tree_head(&f->tree, f->base), SOL_OK);
    take(f, &now);
    assert_int_equal(json_array_size(now.files), 0);
    assert_int_equal(json_array_size(now.staged_files), 0);
    opt_snapshot_free(&now);
    shell(f, "echo 2 > in/x && git add in/x && echo 3 > in/x");
    take(f, &now);
    assert_int_equal(json_array_size(now.files), 1);
    put_back(f, &now);
    shell(f, "git diff --quiet HEAD && git diff --cached --quiet && test ! -e out/x && git "
             "sparse-checkout disable");
    opt_snapshot_free(&now);
    /* Line ends. */
    shell(
        f,
        "echo '*.txt text eol=crlf' > .gitattributes && printf '1\\n2\\n' > t.txt && git add -A && "
        "git commit -qm three && rm t.txt && git checkout -q t.txt && grep -q \"$(printf '\\r')\" "
        "t.txt");
    assert_int_equal(opt_tree_head(&f->tree, f->base), SOL_OK);
    shell(f, "printf '1\\r\\n3\\r\\n' > t.txt");
    take(f, &now);
    put_back(f, &now);
    shell(f, "git diff --quiet HEAD && test $(wc -c < t.txt) = 6");
    opt_snapshot_free(&now);
    /* A submodule at another commit. */
    shell(f,
          "git clone -q . ../sub && git -c protocol.file.allow=always submodule --quiet add ../sub "
          "sub && git commit -qm four");
    assert_int_equal(opt_tree_head(&f->tree, f->base), SOL_OK);
    take(f, &now);
    assert_int_equal(json_array_size(now.files), 0);
    opt_snapshot_free(&now);
    shell(f, "cd sub && git -c user.name=t -c user.email=t commit -q --allow-empty -m x");
    assert_int_equal(opt_tree_snapshot(&f->tree, f->base, nothing, &none, &now), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "submodule sub"));
    json_decref(nothing);
}

/* What stands in the way is named; what a killed git left of ours is not in the way. */
static void locks_are_named(void **state)
{
    struct fixture *f = *state;
    struct opt_snapshot now;
    if (!f->base[0]) skip();
    shell(f, "echo 5 > a");
    char command[4300];
    snprintf(command, sizeof command, "touch '%s/index.lock'", f->tree.work);
    shell(f, command);
    take(f, &now);
    shell(f, "touch .git/index.lock");
    assert_int_equal(opt_put_check(&f->tree), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), ".git/index.lock exists"));
    assert_int_equal(opt_put_staged(&f->tree, now.files, f->base), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), ".git/index.lock exists"));
    shell(f, "rm .git/index.lock; touch .git/MERGE_HEAD");
    assert_int_equal(opt_put_check(&f->tree), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "a merge"));
    shell(f, "rm .git/MERGE_HEAD");
    assert_int_equal(opt_put_check(&f->tree), SOL_OK);
    opt_snapshot_free(&now);
}

/* Another worktree of the user's, away for a moment, keeps its index. */
static void worktrees_of_others_stay(void **state)
{
    struct fixture *f = *state;
    static const struct string_list none = {{NULL}, 0};
    char command[4300];
    if (!f->base[0]) skip();
    shell(f,
          "git worktree add -q --detach ../w && cd ../w && echo s > staged && git add staged && mv "
          "../w ../away");
    assert_int_equal(opt_baseline_make(&f->tree, f->base, NULL, &none, 60), SOL_OK);
    snprintf(command, sizeof command, "rm -rf '%s'*", f->tree.baseline);
    shell(f, command);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, NULL, &none, 60), SOL_OK);
    shell(f, "mv ../away ../w && cd ../w && test \"$(git diff --cached --name-only)\" = staged");
}

static void baseline_is_built_once_and_again_when_torn(void **state)
{
    struct fixture *f = *state;
    static const struct string_list none = {{NULL}, 0}, linked = {{"models/m"}, 1},
                                    outside = {{"../m"}, 1};
    if (!f->base[0]) skip();
    const char *build = "cp a out && echo x >> count";
    char path[4200];
    shell(f, "mkdir -p models && echo m > models/m");
    assert_int_equal(opt_baseline_make(&f->tree, f->base, build, &linked, 60), SOL_OK);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, build, &linked, 60), SOL_OK);
    snprintf(path, sizeof path, "test \"$(wc -l < '%s/count')\" = 1", f->tree.baseline);
    shell(f, path);
    snprintf(path, sizeof path, "test \"$(cat '%s/models/m')\" = m", f->tree.baseline);
    shell(f, path);
    /* Another commit, another command, a build that was stopped: each time anew. */
    assert_int_equal(opt_baseline_make(&f->tree, f->base, "false", &none, 60), SOL_E_MISMATCH);
    assert_non_null(strstr(sol_last_error(), "building the baseline"));
    snprintf(path, sizeof path, "echo 'building %s 0' > '%s/baseline.state'", f->base,
             f->tree.work);
    shell(f, path);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, "test ! -e out && cp a out", &none, 60),
                     SOL_OK);
    snprintf(path, sizeof path, "rm -rf '%s'", f->tree.baseline);
    shell(f, path);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, build, &none, 60), SOL_OK);
    assert_int_equal(opt_baseline_make(&f->tree, f->base, "true", &outside, 60), SOL_E_FORMAT);
}

static void one_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct opt_tree other;
    if (!f->base[0]) skip();
    assert_int_equal(opt_tree_open(f->path, f->folder, &other), SOL_OK);
    assert_int_equal(opt_tree_lock(&other), SOL_E_ARGUMENT);
    opt_tree_close(&other);
    assert_int_equal(opt_tree_open("/", f->folder, &other), SOL_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_valid),
        cmocka_unit_test(configuration_is_checked),
        cmocka_unit_test_setup_teardown(snapshots_and_diffs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(commits_what_was_measured, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_become_folders_and_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(special_trees, set_up, tear_down),
        cmocka_unit_test_setup_teardown(locks_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(worktrees_of_others_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(baseline_is_built_once_and_again_when_torn, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_at_a_time, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
