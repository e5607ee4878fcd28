/* Tasks of CORE: Python's random numbers, nanochat's prompts (tests/data/core.json, made by
 * tools/core_vectors.py), where answers are, and what is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "tok/tokenizer.h"
#include "train/core_tasks.h"
#include "train/python_random.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define DATA     SOL_SOURCE_DIR "/tests/data/"

static char path[] = "/tmp/sol-train-core-XXXXXX";
static struct tokenizer *tokenizer;

/* ---- random numbers; the values are CPython 3.11's ---- */

static void test_random(void **state)
{
    (void)state;
    struct python_random r;
    python_random_seed(&r, 3);
    assert_int_equal(python_random_below(&r, 1), 0);
    assert_int_equal(python_random_below(&r, 2), 0);
    assert_int_equal(python_random_below(&r, 3), 1);
    assert_int_equal(python_random_below(&r, 1000), 937);
    assert_int_equal(python_random_below(&r, 1u << 31), 2036044446);
    assert_int_equal(python_random_below(&r, UINT32_MAX), 2687448230u);

    uint32_t got[10];
    static const uint32_t ten[] = {18, 50, 80, 20, 35, 41, 38, 96, 33, 81};
    python_random_seed(&r, 1250);
    assert_int_equal(python_random_sample(&r, 100, 10, got), SOL_OK);
    assert_memory_equal(got, ten, sizeof ten);
    static const uint32_t six[] = {331, 970, 154, 404, 666, 49};
    python_random_seed(&r, 7);
    assert_int_equal(python_random_sample(&r, 1000, 6, got), SOL_OK);
    assert_memory_equal(got, six, sizeof six);
    static const uint32_t all[] = {1, 2, 4, 0, 3};
    python_random_seed(&r, 8);
    assert_int_equal(python_random_sample(&r, 5, 5, got), SOL_OK);
    assert_memory_equal(got, all, sizeof all);
    static const uint32_t shuffled[] = {0, 3, 7, 2, 1, 6, 4, 5, 8, 9};
    python_random_seed(&r, 1337);
    python_random_shuffle(&r, 10, got);
    assert_memory_equal(got, shuffled, sizeof shuffled);
}

/* ---- tasks ---- */

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static struct core_task *open_task(const struct core_options *o)
{
    struct core_task *t;
    if (core_task_open(path, o, &t) != SOL_OK) fail_msg("%s", sol_last_error());
    return t;
}

static enum core_kind kind_of(const char *name)
{
    static const char *const names[] = {"multiple_choice", "schema", "language_modeling"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return (enum core_kind)i;
    fail_msg("no kind %s", name);
    return CORE_SCHEMA;
}

static void check_prompts(const struct core_task *t, size_t index, const json_t *wanted)
{
    struct core_prompts got;
    size_t i;
    const json_t *text;
    assert_int_equal(core_task_prompts(t, index, &got), SOL_OK);
    assert_int_equal(got.count, json_array_size(wanted));
    json_array_foreach(wanted, i, text) assert_string_equal(got.texts[i], json_string_value(text));
    core_prompts_free(&got);
}

static void test_prompts(void **state)
{
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(DATA "core.json", 0, &error), *item, *line, *prompts;
    size_t i, k, n = 0;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        json_array_foreach(json_object_get(item, "items"), k, line)
        {
            json_dumpf(line, file, 0);
            putc('\n', file);
        }
        assert_int_equal(fclose(file), 0);
        struct core_options o = {
            .kind = kind_of(json_string_value(json_object_get(item, "kind"))),
            .few_shot = (uint32_t)json_integer_value(json_object_get(item, "few_shot")),
            .delimiter = json_string_value(json_object_get(item, "delimiter"))};
        struct core_task *t = open_task(&o);
        assert_int_equal(core_task_count(t), json_array_size(json_object_get(item, "items")));
        json_array_foreach(json_object_get(item, "prompts"), k, prompts)
        {
            size_t index = (size_t)json_integer_value(json_array_get(prompts, 0));
            check_prompts(t, index, json_array_get(prompts, 1));
            n++;
        }
        core_task_close(t);
    }
    assert_true(n >= 13);
    json_decref(root);
}

/* ---- answers ---- */

/* What the answer's tokens say. */
static void expect_answer(const struct core_sequence *s, const char *wanted)
{
    char text[200];
    size_t length = 0;
    assert_int_equal(s->ids.ids[0], tokenizer_bos(tokenizer));
    assert_in_range(s->begin, 1, s->end);
    assert_int_equal(s->end, s->ids.count);
    for (size_t i = s->begin; i < s->end; i++) {
        struct token_bytes bytes = tokenizer_bytes(tokenizer, s->ids.ids[i]);
        memcpy(text + length, bytes.data, bytes.length);
        length += bytes.length;
    }
    text[length] = 0;
    assert_string_equal(text, wanted);
}

static struct core_example example_of(const struct core_task *t, size_t index, size_t max_tokens)
{
    struct core_example e;
    if (core_task_example(t, index, tokenizer, tokenizer_bos(tokenizer), max_tokens, &e) != SOL_OK)
        fail_msg("%s", sol_last_error());
    return e;
}

/* A model to which tokens that begin with `likes` are worth `cheap` nats and others 4, and which
 * would say each token that comes, but the last where it is not `right`. */
struct fake {
    char likes;
    double cheap;
    bool right;
};

static bool correct(const struct core_example *e, struct fake fake)
{
    for (size_t k = 0; k < e->count; k++) {
        struct core_sequence *s = &e->sequences[k];
        s->nll = 0;
        s->likely = fake.right;
        for (size_t i = s->begin; i < s->end; i++)
            s->nll +=
                tokenizer_bytes(tokenizer, s->ids.ids[i]).data[0] == fake.likes ? fake.cheap : 4;
    }
    return core_example_right(e);
}

static void test_multiple_choice(void **state)
{
    (void)state;
    struct core_options o = {CORE_MULTIPLE_CHOICE, 0, " ", 0};
    write_file("{\"query\": \"Q\", \"choices\": [\"x1\", \"y222\", \"z\"], \"gold\": 1}\n");
    struct core_task *t = open_task(&o);
    struct core_example e = example_of(t, 0, 0);
    assert_int_equal(e.count, 3);
    assert_int_equal(e.gold, 1);
    /* they begin where the tokens differ: " y" is one, " x" and " z" are two */
    for (size_t i = 0; i < 3; i++) assert_int_equal(e.sequences[i].begin, e.sequences[0].begin);
    assert_true(correct(&e, (struct fake){.likes = '2', .cheap = 1})); /* the mean counts */
    assert_false(correct(&e, (struct fake){.likes = '1', .cheap = 1}));
    assert_false(
        correct(&e, (struct fake){.likes = 'Q', .cheap = 1})); /* all are equal: the first */

    /* of a sequence that is too long the end is kept */
    size_t longest = e.sequences[1].ids.count;
    assert_true(longest > e.sequences[0].ids.count && longest > e.sequences[2].ids.count);
    struct core_example cut = example_of(t, 0, longest - 1);
    assert_true(cut.cropped && !e.cropped);
    for (size_t i = 0; i < 3; i++) {
        const struct core_sequence *whole = &e.sequences[i], *s = &cut.sequences[i];
        size_t n = i == 1;
        assert_int_equal(s->ids.count, whole->ids.count - n);
        assert_int_equal(s->begin, whole->begin - n);
        assert_int_equal(s->end, whole->end - n);
        assert_memory_equal(s->ids.ids, whole->ids.ids + n, s->ids.count * sizeof(int32_t));
    }
    core_example_free(&cut);
    core_example_free(&e);

    assert_int_not_equal(core_task_example(t, 0, tokenizer, 0, 1, &e), SOL_OK);
    assert_null(e.sequences);
    core_task_close(t);
}

static void test_schema(void **state)
{
    (void)state;
    struct core_options o = {CORE_SCHEMA, 0, " ", 0};
    write_file("{\"context_options\": [\"The ferry\", \"The two pears\"], \"continuation\": \"was "
               "late\", \"gold\": 0}\n");
    struct core_task *t = open_task(&o);
    struct core_example e = example_of(t, 0, 0);
    assert_int_equal(e.count, 2);
    expect_answer(&e.sequences[0], " was late");
    expect_answer(&e.sequences[1], " was late");
    assert_true(correct(&e, (struct fake){.likes = ' ', .cheap = 1}));
    core_example_free(&e);
    core_task_close(t);
}

static void test_language_modelling(void **state)
{
    (void)state;
    struct core_options o = {CORE_LANGUAGE_MODELING, 0, " ", 0};
    write_file("{\"context\": \"The clock struck  \", \"continuation\": \"noon\"}\n");
    struct core_task *t = open_task(&o);
    struct core_example e = example_of(t, 0, 0);
    assert_int_equal(e.count, 1);
    expect_answer(&e.sequences[0], " noon");
    assert_true(correct(&e, (struct fake){.right = true}));
    assert_false(correct(&e, (struct fake){.right = false}));
    core_example_free(&e);
    core_task_close(t);

    /* a context whose last token changes with the answer */
    o.delimiter = "";
    write_file("{\"context\": \"th\", \"continuation\": \"e\"}\n");
    t = open_task(&o);
    assert_int_equal(core_task_example(t, 0, tokenizer, 0, 0, &e), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "item 0: the tokens of its context"));
    core_task_close(t);
}

static void refused(struct core_options o, const char *text, enum sol_status wanted,
                    const char *message)
{
    struct core_task *t;
    write_file(text);
    assert_int_equal(core_task_open(path, &o, &t), wanted);
    if (!strstr(sol_last_error(), message)) fail_msg("'%s', not '%s'", sol_last_error(), message);
    assert_null(t);
}

static void test_errors(void **state)
{
    (void)state;
    const struct core_options mc = {CORE_MULTIPLE_CHOICE, 0, " ", 0},
                              lm = {CORE_LANGUAGE_MODELING, 0, " ", 0};
    struct core_options few = lm;
    refused(mc, "{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 1}\n", SOL_E_FORMAT,
            "line 1: an item has query");
    refused(mc, "{\"query\": \"a\", \"choices\": [3], \"gold\": 0}\n", SOL_E_FORMAT,
            "line 1: an item has query");
    refused(lm, "{\"context\": \"a\", \"continuation\": \"b\"}\n{\n", SOL_E_FORMAT, "line 2: ");
    refused(lm, "", SOL_E_ARGUMENT, "0 items");
    few.few_shot = 1;
    refused(few, "{\"context\": \"a\", \"continuation\": \"b\"}\n", SOL_E_ARGUMENT,
            "1 items; 1 others");
    assert_true(core_centered(0.25, 25) == 0.0 && core_centered(1.0, 25) == 1.0);
}

static int set_up(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    return tokenizer_open(DATA "tokenizer_small.json", &tokenizer) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_multiple_choice),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_language_modelling),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
