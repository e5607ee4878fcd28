/* Configurations and the git side of sol opt. The verbs are tested as a user runs them
 * (cli_opt.sh). */
#include "lab/opt_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lab/opt_tree.h"

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
        {"{\"benchmark\": \"a\", \"correctness\": \"a\", \"perplexity\": null, \"min_pairs\": 50}",
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
    assert_int_equal(opt_tree_snapshot(&f->tree, f->base, left_out, &exclude, out), SOL_OK);
    json_decref(left_out);
}

static void snapshots_and_diffs(void **state)
{
    struct fixture *f = *state;
    struct opt_snapshot now;
    char hash[OPT_HASH_SIZE], *diff;
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
    assert_int_equal(opt_tree_diff(&f->tree, f->base, now.hash, &diff), SOL_OK);
    assert_int_equal(opt_tree_apply(&f->tree, f->base, diff, hash), SOL_OK);
    assert_string_equal(hash, now.hash);
    free(diff);
    /* The user's index is as it was. */
    shell(f, "test \"$(git diff --cached --name-only)\" = a");

    char commit[OPT_HASH_SIZE], parent[OPT_HASH_SIZE];
    assert_int_equal(opt_tree_commit(&f->tree, now.files, "a message\n", commit), SOL_OK);
    assert_int_equal(opt_tree_parent(&f->tree, commit, parent), SOL_OK);
    assert_string_equal(parent, f->base);
    json_t *differing;
    assert_int_equal(opt_tree_changed(&f->tree, commit, now.hash, &differing), SOL_OK);
    assert_int_equal(json_array_size(differing), 0);
    json_decref(differing);
    shell(f, "git reset -q --soft HEAD~1");
    assert_int_equal(opt_tree_revert(&f->tree, f->base, now.files), SOL_OK);
    shell(f, "git diff --quiet HEAD && git diff --cached --quiet && test -e mine && test ! -e "
             "'d/\"n\"' && test \"$(readlink l)\" = a");
    opt_snapshot_free(&now);
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
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, build, &linked, 60), SOL_OK);
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, build, &linked, 60), SOL_OK);
    snprintf(path, sizeof path, "test \"$(wc -l < '%s/count')\" = 1", f->tree.baseline);
    shell(f, path);
    snprintf(path, sizeof path, "test \"$(cat '%s/models/m')\" = m", f->tree.baseline);
    shell(f, path);
    /* Another commit, another command, a build that was stopped: each time anew. */
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, "false", &none, 60), SOL_E_MISMATCH);
    assert_non_null(strstr(sol_last_error(), "building the baseline"));
    snprintf(path, sizeof path, "echo 'building %s 0' > '%s/baseline.state'", f->base,
             f->tree.work);
    shell(f, path);
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, "test ! -e out && cp a out", &none, 60),
                     SOL_OK);
    snprintf(path, sizeof path, "rm -rf '%s'", f->tree.baseline);
    shell(f, path);
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, build, &none, 60), SOL_OK);
    assert_int_equal(opt_tree_baseline(&f->tree, f->base, "true", &outside, 60), SOL_E_FORMAT);
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
        cmocka_unit_test_setup_teardown(baseline_is_built_once_and_again_when_torn, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_at_a_time, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
