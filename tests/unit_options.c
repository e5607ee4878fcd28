#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/suggest.h"

struct sample {
    bool verbose, quiet;
    int64_t threads;
    double temperature, share;
    const char *model, *how;
    struct int_list batch;
    struct string_list force;
    int64_t any;
};

static const struct option sample_options[] = {
    {.kind = OPTION_GROUP, .name = "Model"},
    {OPTION_STRING, 'm', "model", "FILE", "the model", offsetof(struct sample, model), 0, 0},
    {.kind = OPTION_GROUP, .name = "Work"},
    {OPTION_FLAG, 'v', "verbose", NULL, "say more", offsetof(struct sample, verbose), 0, 0},
    {OPTION_FLAG, 'q', "quiet", NULL, "say less", offsetof(struct sample, quiet), 0, 0},
    {OPTION_INT, 't', "threads", "N", "threads", offsetof(struct sample, threads), 1, 64},
    {OPTION_FLOAT, 0, "temperature", "T", "heat", offsetof(struct sample, temperature), 0, 2},
    {OPTION_PERCENT, 0, "share", "PERCENT", "part", offsetof(struct sample, share), 0.5, 99},
    {OPTION_STRING, 0, "how", "map|read|auto", "way", offsetof(struct sample, how), 0, 0},
    {OPTION_INT_LIST, 'b', "batch", "LIST", "sizes", offsetof(struct sample, batch), 0, 100000},
    {OPTION_STRINGS, 'f', "force", "OP=V", "variants", offsetof(struct sample, force), 0, 0},
    {OPTION_INT, 0, "any", "N",
     "a number without bounds whose explanation is so long that it does not fit one line of the "
     "help "
     "and has to be wrapped",
     offsetof(struct sample, any), 0, 0},
    {0},
};
static const struct command_spec spec = {
    .name = "sample",
    .summary = "try the parser",
    .arguments = "[FILE...]",
    .notes = "Examples:\n  sol sample -v",
    .options = sample_options,
};

static struct sample got;
static const char *args[16];
static int n_args;
static bool help;

/* Parses words separated by blanks. */
static enum sol_status parse(const char *line)
{
    static char text[512];
    char *argv[16];
    int argc = 0;
    snprintf(text, sizeof text, "sample %s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    got = (struct sample){.threads = 5, .model = "default", .batch = {{9}, 1}};
    return options_parse(&spec, argc, argv, &got, args, &n_args, &help);
}

static void assert_refused(const char *line, const char *part)
{
    if (parse(line) != SOL_E_ARGUMENT) fail_msg("accepted: %s", line);
    if (!strstr(sol_last_error(), part))
        fail_msg("message of '%s' lacks '%s': %s", line, part, sol_last_error());
}

static void assert_batch(const char *line, size_t count, const int64_t *values)
{
    assert_int_equal(parse(line), SOL_OK);
    assert_int_equal(got.batch.count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(got.batch.values[i], values[i]);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(parse(""), SOL_OK);
    assert_int_equal(got.threads, 5);
    assert_string_equal(got.model, "default");
    assert_int_equal(got.batch.count, 1);
    assert_false(got.verbose || help);
    assert_int_equal(n_args, 0);
}

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(parse("--model a.gguf --threads=7 -v"), SOL_OK);
    assert_string_equal(got.model, "a.gguf");
    assert_int_equal(got.threads, 7);
    assert_true(got.verbose);
    assert_int_equal(parse("-mb.gguf -t 3 -vq --temperature 0.5"), SOL_OK);
    assert_string_equal(got.model, "b.gguf");
    assert_int_equal(got.threads, 3);
    assert_true(got.verbose && got.quiet);
    assert_true(got.temperature == 0.5);
    assert_int_equal(parse("-vt8 --any -12 --model=x=y"), SOL_OK);
    assert_int_equal(got.threads, 8);
    assert_int_equal(got.any, -12);
    assert_string_equal(got.model, "x=y");
    assert_int_equal(parse("--model="), SOL_OK);
    assert_string_equal(got.model, "");
}

static void test_arguments(void **state)
{
    (void)state;
    assert_int_equal(parse("one -v - two -- --model -t"), SOL_OK);
    assert_int_equal(n_args, 5);
    const char *expected[] = {"one", "-", "two", "--model", "-t"};
    for (int i = 0; i < 5; i++) assert_string_equal(args[i], expected[i]);
    assert_true(got.verbose);
}

static void test_lists(void **state)
{
    (void)state;
    assert_batch("--batch 1,2,8", 3, (int64_t[]){1, 2, 8});
    assert_batch("--batch 128-512*2", 3, (int64_t[]){128, 256, 512});
    assert_batch("--batch 128-511*2", 2, (int64_t[]){128, 256});
    assert_batch("--batch 1-4+1", 4, (int64_t[]){1, 2, 3, 4});
    assert_batch("--batch 3-5", 3, (int64_t[]){3, 4, 5});
    assert_batch("--batch 0-10+5,7", 4, (int64_t[]){0, 5, 10, 7});
    assert_batch("-b1 -b 2,3 --batch=4", 4, (int64_t[]){1, 2, 3, 4});
    assert_batch("--batch 6-6", 1, (int64_t[]){6});
    assert_int_equal(parse("--batch 1-64"), SOL_OK);
    assert_int_equal(got.batch.count, 64);
    assert_int_equal(parse("-f a=b --force c=d"), SOL_OK);
    assert_int_equal(got.force.count, 2);
    assert_string_equal(got.force.values[1], "c=d");
}

static void test_bad_lists(void **state)
{
    (void)state;
    const char *bad[] = {"1,",
                         ",1",
                         "1,,2",
                         "a",
                         "1-",
                         "4-1",
                         "1-4+0",
                         "1-4*1",
                         "0-8*2",
                         "1-4+",
                         "1-4*x",
                         "1-4+-1",
                         "1.5",
                         "1 ",
                         "1-4-8",
                         "",
                         "99999999999999999999",
                         "1-99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *argv[] = {(char[]){"sample"}, (char[]){"-b"}, (char *)(uintptr_t)bad[i]};
        if (options_parse(&spec, 3, argv, &got, args, &n_args, &help) != SOL_E_ARGUMENT)
            fail_msg("accepted as a list: '%s'", bad[i]);
    }
    assert_refused("-b 1-65", "more than 64");
    assert_refused("-b 1-64 -b 1", "more than 64");
    assert_refused("-b 2-200000*100000", "outside");
    assert_refused("-b 5,100001", "outside");
}

static void test_bad_values(void **state)
{
    (void)state;
    assert_refused("--threads x", "bad value 'x' for --threads");
    assert_refused("-t 3x", "for -t");
    assert_refused("--threads 0", "outside 1 to 64");
    assert_refused("--threads 65", "outside 1 to 64");
    assert_refused("--threads=", "expected an integer");
    assert_refused("--any 9223372036854775808", "expected an integer");
    assert_refused("--temperature nan", "expected a number");
    assert_refused("--temperature 1e999", "expected a number");
    assert_refused("--temperature 2.01", "outside 0 to 2");
    assert_refused("--temperature 1,5", "expected a number");
    assert_refused("--verbose=1", "takes no value");
    assert_refused("--model", "--model needs a value: --model FILE");
    assert_refused("-t", "-t needs a value");
    assert_int_equal(parse("--any 9223372036854775807"), SOL_OK);
    assert_int_equal(got.any, INT64_MAX);
}

static void test_percent(void **state)
{
    (void)state;
    char *argv[] = {(char[]){"sample"}, (char[]){"--share"}, (char[]){"7 %"}};
    assert_int_equal(parse("--share 5%"), SOL_OK);
    assert_true(got.share == 5);
    assert_int_equal(parse("--share=2.5"), SOL_OK);
    assert_true(got.share == 2.5);
    assert_int_equal(options_parse(&spec, 3, argv, &got, args, &n_args, &help), SOL_OK);
    assert_true(got.share == 7);
    assert_refused("--share lots", "expected a percentage such as 5%");
    assert_refused("--share 5%%", "expected a percentage");
    assert_refused("--share=", "expected a percentage");
    assert_refused("--share nan%", "expected a percentage");
    assert_refused("--share 0.4%", "outside 0.5 to 99");
}

static void test_choices(void **state)
{
    (void)state;
    const char *const ways[] = {"map", "read", "auto"};
    for (size_t i = 0; i < 3; i++) {
        char line[40];
        size_t length;
        snprintf(line, sizeof line, "--how %s", ways[i]);
        assert_int_equal(parse(line), SOL_OK);
        assert_string_equal(got.how, ways[i]);
        const char *choice = option_choice(options_find(&spec, "how"), i, &length);
        assert_int_equal(length, strlen(ways[i]));
        assert_memory_equal(choice, ways[i], length);
    }
    assert_null(option_choice(options_find(&spec, "how"), 3, &(size_t){0}));
    assert_null(option_choice(options_find(&spec, "model"), 0, &(size_t){0}));
    assert_null(options_find(&spec, "ho"));
    assert_refused("--how ma", "bad value 'ma' for --how: expected map, read or auto");
    assert_refused("--how map|read", "expected map, read or auto");
    assert_refused("--how=", "expected map, read or auto");
}

static void test_unknown(void **state)
{
    (void)state;
    assert_refused("--modle x", "unknown option '--modle'; did you mean --model?");
    assert_refused("--thread=4", "unknown option '--thread'; did you mean --threads?");
    assert_refused("--temp 1", "did you mean --temperature?");
    assert_refused("--hlep", "did you mean --help?");
    assert_refused("--xyzzy", "unknown option '--xyzzy' (see sol sample --help)");
    assert_refused("-z", "unknown option '-z'");
    assert_refused("-vz", "unknown option '-z'");
    assert_refused("--Work", "unknown option"); /* a heading is no option */
}

static void test_help_asked(void **state)
{
    (void)state;
    assert_int_equal(parse("--nonsense --help"), SOL_OK);
    assert_true(help);
    assert_int_equal(parse("-t x -h"), SOL_OK);
    assert_true(help);
    assert_int_equal(parse("-- --help"), SOL_OK);
    assert_false(help);
    assert_int_equal(n_args, 1);
    assert_int_equal(parse("--model -h"), SOL_OK); /* a value, not a request */
    assert_false(help);
    assert_string_equal(got.model, "-h");
}

static void test_help_printed(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    options_print_help(&spec, to);
    fclose(to);
    assert_non_null(strstr(text, "usage: sol sample [options] [FILE...]\ntry the parser\n"));
    assert_non_null(strstr(text, "\nModel:\n  -m, --model FILE          the model\n"));
    assert_non_null(strstr(text, "\n      --temperature T       heat\n"));
    assert_non_null(strstr(text, "--help                print this text"));
    assert_non_null(strstr(text, "\nExamples:\n  sol sample -v\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 96);
    free(text);
}

static void test_suggestions(void **state)
{
    (void)state;
    const char *names[] = {"run", "bench", "verify", "kernels", "profile"};
    assert_string_equal(suggest_name("rnu", names, 5), "run");
    assert_string_equal(suggest_name("benhc", names, 5), "bench");
    assert_string_equal(suggest_name("kernel", names, 5), "kernels");
    assert_string_equal(suggest_name("prof", names, 5), "profile");
    assert_null(suggest_name("completely", names, 5));
    assert_null(suggest_name("", names, 5));
    assert_null(suggest_name("x", names, 5));
    char longest[300];
    memset(longest, 'r', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(suggest_name(longest, names, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_forms),
        cmocka_unit_test(test_arguments),    cmocka_unit_test(test_lists),
        cmocka_unit_test(test_bad_lists),    cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_percent),      cmocka_unit_test(test_choices),
        cmocka_unit_test(test_unknown),      cmocka_unit_test(test_help_asked),
        cmocka_unit_test(test_help_printed), cmocka_unit_test(test_suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
