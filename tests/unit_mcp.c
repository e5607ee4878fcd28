/* The protocol of sol mcp, its table of tools, command lines and bounded answers. Children and
 * descriptors are tested as a client uses them (cli_mcp.sh). */
#include "serve/mcp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "serve/mcp_answer.h"

static const struct command_spec *find(const char *name)
{
    const struct command *command = cli_find(name);
    return command ? command->spec : NULL;
}

/* ---- tools ---- */

static void table_is_sound(void **state)
{
    (void)state;
    for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
        for (const struct mcp_tool *u = mcp_tools; u < t; u++)
            assert_string_not_equal(t->name, u->name);
        json_t *json = mcp_tool_json(t, mcp_tool_spec(t, find));
        assert_non_null(json);
        const json_t *schema = json_object_get(json, "inputSchema");
        assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
        size_t count = t->command ? 1 : 0;
        for (const struct mcp_parameter *p = t->parameters; p->name; p++) {
            assert_non_null(json_object_get(json_object_get(schema, "properties"), p->name));
            count++;
        }
        assert_int_equal(json_object_size(json_object_get(schema, "properties")), count);
        json_decref(json);
    }
}

static const struct mcp_tool *tool(const char *name)
{
    const struct mcp_tool *t = mcp_tools;
    while (t->name && strcmp(t->name, name) != 0) t++;
    assert_non_null(t->name);
    return t;
}

static void check_words(const char *name, const char *arguments, const char *expected)
{
    struct mcp_words w;
    char line[1000] = "";
    const struct mcp_tool *t = tool(name);
    json_t *json = json_loads(arguments, 0, NULL);
    enum sol_status status = mcp_tool_words(t, mcp_tool_spec(t, find), json, &w);
    json_decref(json);
    if (status != SOL_OK) {
        snprintf(line, sizeof line, "! %s", sol_last_error());
    } else {
        for (size_t i = 0; i < w.count; i++) {
            size_t length = strlen(line);
            snprintf(line + length, sizeof line - length, "%s%s", i ? "|" : "", w.words[i]);
        }
        mcp_words_free(&w);
    }
    if (*expected == '!')
        assert_non_null(strstr(line, expected + 1));
    else
        assert_string_equal(line, expected);
}

static void command_lines(void **state)
{
    (void)state;
    check_words("bench", "{\"prompt\": [128, 512], \"ops\": true, \"no_limits\": false}",
                "bench|-q|-o|json|--n-prompt=128,512|--ops|--");
    check_words("opt_start", "{\"hypothesis\": \"--help\", \"predict_percent\": 2.5}",
                "opt|start|-o|json|--predict=2.5|--|--help");
    check_words("bench", "{\"force\": [\"-a\", \"b\"], \"model\": \"-x\"}",
                "bench|-q|-o|json|--model=-x|--force=-a|--force=b|--");
    check_words("profile", "{\"backend\": \"cuda:1\", \"generate\": 4}",
                "profile|-q|-o|json|--backend=cuda:1|--generate=4|--");
    check_words("bench", "{\"prompt\": \"128\"}", "! a list");
    check_words("bench", "{\"prompt\": []}", "! a list");
    check_words("bench", "{\"threads\": 1025}", "! from 0 to 1024");
    check_words("bench", "{\"threads\": 1.5}", "! a whole number");
    check_words("bench", "{\"ops\": 1}", "! true or false");
    check_words("bench", "{\"model\": \"\"}", "! not empty");
    check_words("bench", "{\"modle\": \"a\"}", "! no argument \"modle\"");
    check_words("bench", "{\"max_seconds\": 0.5}", "! from 1");
    check_words("opt_accept", "{\"even_if\": \"faster\"}", "! one of same|trade");
    check_words("run_show", "{}", "! \"run\" is needed");
    check_words("run_show", "[]", "! must be an object");
}

/* ---- the commands' tables ---- */

/* The field of an option as the command line set it. */
static char parsed[1 << 16];

/* What the command makes of the words of a call. */
static enum sol_status parse(const struct command_spec *spec, char **words, size_t count)
{
    const char *args[MCP_ARGUMENTS_MAX];
    int n_args;
    bool help;
    memset(parsed, 0, sizeof parsed);
    return options_parse(spec, (int)count, words, parsed, args, &n_args, &help);
}

/* `value` goes through the tool into its option's field, or both refuse it. */
static const void *pass(const struct mcp_tool *t, const struct mcp_parameter *p, json_t *value,
                        bool good)
{
    const struct command_spec *spec = mcp_tool_spec(t, find);
    const struct option *o = mcp_parameter_option(p, spec);
    struct mcp_words w;
    json_t *arguments = json_pack("{s:O}", p->name, value);
    for (const struct mcp_parameter *other = t->parameters; other->name; other++)
        if (other->required && other != p)
            json_object_set_new(arguments, other->name,
                                mcp_parameter_option(other, spec)->kind == OPTION_STRINGS
                                    ? json_pack("[s]", "x")
                                    : json_string("x"));
    char *text = json_dumps(json_is_array(value) ? json_array_get(value, 0) : value,
                            JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    enum sol_status status = mcp_tool_words(t, spec, arguments, &w);
    if ((status == SOL_OK) != good) fail_msg("%s %s: %s", t->name, p->name, text);
    if (good) {
        assert_int_equal(parse(spec, w.words, w.count), SOL_OK);
        if (o->kind == OPTION_STRING)
            assert_string_equal(*(const char *const *)(const void *)(parsed + o->offset),
                                json_string_value(value));
        mcp_words_free(&w);
    } else {
        char line[300], name[] = "sol", *words[] = {name, line};
        size_t length = strlen(text), quotes = *text == '"';
        snprintf(line, sizeof line, "--%s=%.*s", o->name, (int)(length - 2 * quotes),
                 text + quotes);
        assert_int_equal(parse(spec, words, 2), SOL_E_ARGUMENT);
    }
    free(text);
    json_decref(arguments);
    json_decref(value);
    assert_true(o->offset + sizeof(struct string_list) <= sizeof parsed);
    return parsed + o->offset;
}

static json_t *in_list(bool list, json_t *value)
{
    return list ? json_pack("[o]", value) : value;
}

static void pass_integers(const struct mcp_tool *t, const struct mcp_parameter *p,
                          const struct option *o, const json_t *schema)
{
    bool list = o->kind == OPTION_INT_LIST;
    if (list) schema = json_object_get(schema, "items");
    assert_string_equal(json_string_value(json_object_get(schema, "type")), "integer");
    assert_true(o->max > o->min);
    const json_int_t limits[] = {json_integer_value(json_object_get(schema, "minimum")),
                                 json_integer_value(json_object_get(schema, "maximum"))};
    for (int i = 0; i < 2; i++) {
        const void *field = pass(t, p, in_list(list, json_integer(limits[i])), true);
        const struct int_list *l = field;
        assert_true(list ? l->count == 1 && l->values[0] == limits[i]
                         : *(const int64_t *)field == limits[i]);
        pass(t, p, in_list(list, json_integer(limits[i] + (i ? 1 : -1))), false);
    }
    pass(t, p, in_list(list, json_string("x")), false);
}

static void pass_numbers(const struct mcp_tool *t, const struct mcp_parameter *p,
                         const struct option *o, const json_t *schema)
{
    const double limits[] = {json_real_value(json_object_get(schema, "minimum")),
                             json_real_value(json_object_get(schema, "maximum"))};
    assert_string_equal(json_string_value(json_object_get(schema, "type")), "number");
    assert_true(o->max > o->min);
    for (int i = 0; i < 2; i++) {
        assert_true(*(const double *)pass(t, p, json_real(limits[i]), true) == limits[i]);
        pass(t, p, json_real(limits[i] + (i ? 0.001 : -0.001)), false);
    }
    pass(t, p, json_string("x"), false);
}

static void pass_texts(const struct mcp_tool *t, const struct mcp_parameter *p,
                       const struct option *o, const json_t *schema)
{
    const json_t *choices = json_object_get(schema, "enum");
    size_t n = json_array_size(choices);
    assert_string_equal(json_string_value(json_object_get(schema, "type")), "string");
    assert_int_equal(n > 0, o->value && strchr(o->value, '|'));
    if (n) pass(t, p, json_string("x"), false);
    for (size_t i = 0; i < n || i == 0; i++) {
        const char *text = n ? json_string_value(json_array_get(choices, i)) : "-x";
        pass(t, p, json_string(text), true);
    }
}

/* What a schema promises is what the command takes, to the last number, and nothing beyond. */
static void schemas_are_the_commands_tables(void **state)
{
    (void)state;
    int options = 0;
    for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
        const struct command_spec *spec = mcp_tool_spec(t, find);
        assert_int_equal(spec != NULL, t->command != NULL);
        json_t *json = mcp_tool_json(t, spec);
        const json_t *properties =
            json_object_get(json_object_get(json, "inputSchema"), "properties");
        for (const struct mcp_parameter *p = t->parameters; p->name; p++) {
            const json_t *schema = json_object_get(properties, p->name);
            const struct option *o = mcp_parameter_option(p, spec);
            if (!o) fail_msg("%s: sol %s has no --%s", t->name, spec->name, p->option);
            const char *help = json_string_value(json_object_get(schema, "description"));
            assert_non_null(strstr(help, o->help));
            if (!p->option) continue;
            options++;
            assert_ptr_equal(o, options_find(spec, p->option));
            if (o->kind == OPTION_INT || o->kind == OPTION_INT_LIST) {
                pass_integers(t, p, o, schema);
            } else if (o->kind == OPTION_FLOAT || o->kind == OPTION_PERCENT) {
                pass_numbers(t, p, o, schema);
            } else if (o->kind == OPTION_STRING) {
                pass_texts(t, p, o, schema);
            } else if (o->kind == OPTION_FLAG) {
                assert_true(*(const bool *)pass(t, p, json_true(), true));
                assert_false(*(const bool *)pass(t, p, json_false(), true));
            } else {
                const struct string_list *l = pass(t, p, json_pack("[s,s]", "-x", "y"), true);
                assert_int_equal(l->count, 2);
            }
        }
        json_decref(json);
    }
    assert_true(options > 50);
}

/* ---- answers ---- */

/* That a call works is that its tool takes it. */
static void assert_call(const json_t *call)
{
    struct mcp_words words;
    const struct mcp_tool *t = tool(json_string_value(json_object_get(call, "tool")));
    const json_t *arguments = json_object_get(call, "arguments");
    assert_int_equal(mcp_tool_words(t, mcp_tool_spec(t, find), arguments, &words), SOL_OK);
    mcp_words_free(&words);
}

static json_t *answer_of_call(const char *name, const char *arguments, bool allow_commands,
                              const char *output, int exit_status, const char *errors,
                              enum mcp_end end, bool *failed, bool *cut)
{
    json_t *given = json_loads(arguments, 0, NULL), *next;
    char *text = mcp_answer(&(struct mcp_outcome){.tool = tool(name),
                                                  .arguments = given,
                                                  .offer = {find, allow_commands},
                                                  .end = end,
                                                  .exit_status = exit_status,
                                                  .max_seconds = 60,
                                                  .output = output,
                                                  .output_size = strlen(output),
                                                  .errors = errors,
                                                  .more_id = "a1"},
                            failed, cut, &next);
    assert_non_null(text);
    assert_true(strlen(text) < 4096);
    json_t *json = json_loads(text, JSON_ALLOW_NUL, NULL);
    free(text);
    assert_non_null(json);
    assert_true(json_equal(next, json_object_get(json, "next")) || !next);
    if (next) assert_call(next);
    assert_true(next || json_is_string(json_object_get(json, "first")));
    assert_int_equal(json_object_get(json, "more") != NULL, *cut);
    if (*cut) assert_call(json_object_get(json, "more"));
    json_decref(given);
    json_decref(next);
    return json;
}

static json_t *answer(const char *name, const char *output, int exit_status, const char *errors,
                      enum mcp_end end, bool *failed, bool *cut)
{
    return answer_of_call(name, "{}", true, output, exit_status, errors, end, failed, cut);
}

static const char *next_tool(const json_t *json)
{
    return json_string_value(json_object_get(json_object_get(json, "next"), "tool"));
}

static const json_t *next_argument(const json_t *json, const char *name)
{
    return json_object_get(json_object_get(json_object_get(json, "next"), "arguments"), name);
}

static void commands_become_calls(void **state)
{
    (void)state;
    static const struct {
        const char *command, *call; /* NULL: there is none */
    } cases[] = {
        {"sol opt compare --max-pairs 30 --tree '/tmp/a b'",
         "{\"tool\": \"opt_compare\", \"arguments\": {\"max_pairs\": 30, \"tree\": \"/tmp/a b\"}}"},
        {"sol opt start 'what you try' --predict 5% --with-changes",
         "{\"tool\": \"opt_start\", \"arguments\": {\"hypothesis\": \"what you try\", "
         "\"predict_percent\": 5.0, \"with_changes\": true}}"},
        {"sol opt init --preset make",
         "{\"tool\": \"opt_init\", \"arguments\": {\"preset\": \"make\"}}"},
        {"sol runs show b12345678",
         "{\"tool\": \"run_show\", \"arguments\": {\"run\": \"b12345678\"}}"},
        {"sol runs", "{\"tool\": \"runs\", \"arguments\": {}}"},
        {"sol compare --live --max-pairs 50 -q --metric cpu 'sleep 1' -- 'sleep 2'",
         "{\"tool\": \"compare_live\", \"arguments\": {\"max_pairs\": 50, \"metrics\": [\"cpu\"], "
         "\"old\": \"sleep 1\", \"new\": \"sleep 2\"}}"},
        {"sol compare a b",
         "{\"tool\": \"compare\", \"arguments\": {\"old\": \"a\", \"new\": \"b\"}}"},
        {"sol bench -q -o json -p 16,32 --ops --n-gen=4",
         "{\"tool\": \"bench\", \"arguments\": {\"prompt\": [16, 32], \"ops\": true, \"generate\": "
         "[4]}}"},
        {"sol profile", "{\"tool\": \"profile\", \"arguments\": {}}"},
        {"sol profile --level node -- python3 a.py -x",
         "{\"tool\": \"profile_command\", \"arguments\": {\"level\": \"node\", \"command\": "
         "[\"python3\", \"a.py\", \"-x\"]}}"},
        {"sol import a.json", "{\"tool\": \"import\", \"arguments\": {\"files\": [\"a.json\"]}}"},
        {"sol opt history o12345678",
         "{\"tool\": \"opt_history\", \"arguments\": {\"iteration\": \"o12345678\"}}"},
        {"sol bench --numa interleave", NULL}, /* no such argument of the tool */
        {"sol compare a", NULL},
        {"sol runs show", NULL},
        {"sol opt start 'open", NULL},
        {"git status", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *call = mcp_next_call(&(struct mcp_offer){find, true}, cases[i].command);
        json_t *expected = cases[i].call ? json_loads(cases[i].call, 0, NULL) : NULL;
        if ((call || expected) && !json_equal(call, expected))
            fail_msg("%s: %s", cases[i].command, call ? json_dumps(call, 0) : "no call");
        if (call) assert_call(call);
        json_decref(call);
        json_decref(expected);
    }
    assert_null(mcp_next_call(&(struct mcp_offer){find, false}, "sol opt status"));
}

/* What decides of every test is there, however long the rest is. */
static void what_decides_comes_first(void **state)
{
    (void)state;
    bool failed, cut;
    char *big = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&big, &size);
    assert_non_null(to);
    fputc('[', to);
    for (int i = 0; i < 12; i++) {
        fprintf(to, "%s{\"run\": \"b0000000a\", \"build_commit\": \"abcdef012\"", i ? "," : "");
        for (int k = 0; k < 40; k++) fprintf(to, ", \"setting%d\": \"something long\"", k);
        fprintf(
            to,
            ", \"samples_ns\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], \"n_prompt\": %d, \"n_gen\": 0, "
            "\"ts\": %d.5, \"ci95_ts\": [1.5, 2.5], \"memory_limit_percent\": %d.25, "
            "\"kernels\": [",
            i + 1, 1000 + i, i + 1);
        for (int k = 0; k < 20; k++)
            fprintf(to, "%s{\"op\": \"op%d\", \"share\": %d.5}", k ? "," : "", k, k);
        fputs("]}", to);
    }
    fputc(']', to);
    fclose(to);
    json_t *json = answer("bench", big, 0, "", MCP_EXITED, &failed, &cut);
    const json_t *result = json_object_get(json, "result");
    assert_true(cut);
    assert_int_equal(json_array_size(result), 12);
    for (size_t i = 0; i < 12; i++) {
        const json_t *row = json_array_get(result, i);
        assert_int_equal(json_integer_value(json_object_get(row, "n_prompt")), i + 1);
        assert_true(json_real_value(json_object_get(row, "ts")) == 1000.5 + (double)i);
        assert_int_equal(json_array_size(json_object_get(row, "ci95_ts")), 2);
        assert_true(json_object_get(row, "memory_limit_percent") != NULL);
    }
    /* The largest kernel, not the first. */
    const json_t *kernels = json_object_get(json_array_get(result, 0), "kernels");
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(kernels, json_array_size(kernels) - 1), "op")),
                        "op19");
    /* A commit is no run. */
    assert_int_equal(json_array_size(json_object_get(json, "evidence")), 1);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_true(strlen(text) > 3700); /* the bytes are used */
    free(text);
    const json_t *left_out = json_object_get(json, "left_out");
    assert_non_null(json_object_get(left_out, "*.kernels"));

    struct mcp_kept kept = {.id = "a1", .text = big, .size = size};
    text = mcp_answer_part(&kept, "3.kernels", 0);
    assert_non_null(strstr(text, "op19"));
    free(text);
    text = mcp_answer_part(&kept, "*.samples_ns", 0);
    assert_non_null(strstr(text, "[1,2,3,4,5,6,7,8,9,10]"));
    free(text);
    text = mcp_answer_part(&kept, "10:", 0);
    assert_non_null(strstr(text, "1011.5"));
    assert_null(strstr(text, "1009.5"));
    free(text);
    assert_null(mcp_answer_part(&kept, "none", 0));
    assert_null(mcp_answer_part(&kept, "77", 0));
    json_decref(json);
    free(big);
}

static void answers_are_small_and_have_one_next_step(void **state)
{
    (void)state;
    bool failed, cut;
    json_t *json =
        answer("opt_compare",
               "{\"iteration\": {\"id\": \"o1234abcd\", \"base\": null}, \"first\": "
               "\"repair it\", \"next\": \"sol opt record --tree /tmp/x --note 'it broke'\"}",
               11, "", MCP_EXITED, &failed, &cut);
    assert_false(failed || cut);
    assert_string_equal(next_tool(json), "opt_record");
    assert_string_equal(json_string_value(next_argument(json, "note")), "it broke");
    assert_string_equal(json_string_value(json_object_get(json, "first")), "repair it");
    assert_null(json_object_get(json_object_get(json, "result"), "next"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "evidence"), 0)),
                        "o1234abcd");
    json_decref(json);
    /* Not where it may not be called. */
    json = answer_of_call("advise", "{}", false,
                          "{\"run\": \"b1234abcd\", \"next\": \"sol opt status\"}", 0, "",
                          MCP_EXITED, &failed, &cut);
    assert_string_equal(next_tool(json), "run_show");
    json_decref(json);
    /* An error that is in the output. */
    json = answer("opt_compare",
                  "{\"verb\": \"compare\", \"error\": \"no\", \"next\": \"sol opt status\"}", 4, "",
                  MCP_EXITED, &failed, &cut);
    assert_true(failed);
    assert_string_equal(json_string_value(json_object_get(json, "error")), "no");
    assert_string_equal(next_tool(json), "opt_status");
    json_decref(json);

    /* A traced program's own output comes before the report. */
    json = answer("profile_command", "took 3 s\n{ no\n{\"run\": \"p1234abcd\", \"kernels\": []}\n",
                  0, "", MCP_EXITED, &failed, &cut);
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "evidence"), 0)),
                        "p1234abcd");
    assert_non_null(strstr(
        json_string_value(json_object_get(json_object_get(json, "result"), "output")), "took 3 s"));
    json_decref(json);

    json = answer("bench", "", 2, "sol: error: no such model\n", MCP_EXITED, &failed, &cut);
    assert_true(failed);
    assert_non_null(strstr(json_string_value(json_object_get(json, "error")), "no such model"));
    json_decref(json);
    json = answer_of_call("bench", "{\"prompt\": [16]}", true, "[1, 2", 137, "", MCP_TIMED_OUT,
                          &failed, &cut);
    assert_true(failed);
    assert_true(json_number_value(next_argument(json, "max_seconds")) == 120);
    assert_int_equal(json_array_size(next_argument(json, "prompt")), 1);
    json_decref(json);
    json = answer("bench", "\xff plain", 0, "", MCP_EXITED, &failed, &cut);
    json_decref(json);
    json = answer("bench", "", 3, "sol: error: cut within \xc3", MCP_EXITED, &failed, &cut);
    assert_non_null(strstr(json_string_value(json_object_get(json, "error")), "cut within ?"));
    json_decref(json);
    json = answer("bench", "{\"a\": \"b\\u0000c\"}", 0, "", MCP_EXITED, &failed, &cut);
    assert_int_equal(json_string_length(json_object_get(json_object_get(json, "result"), "a")), 3);
    json_decref(json);
}

/* Many, deep, long, and with characters that grow when escaped. */
static void large_answers_are_cut(void **state)
{
    (void)state;
    bool failed, cut;
    json_t *json;
    char *big = malloc(400000);
    assert_non_null(big);
    size_t n = 0;
    big[n++] = '[';
    for (int i = 0; i < 3000; i++)
        n += (size_t)sprintf(big + n,
                             "%s{\"k\": [[\"\\u0001\\u0001\\u0001 %d\"]], \"id\": \"b%08x\"}",
                             i ? "," : "", i, (unsigned)i);
    strcpy(big + n, "]");
    json = answer("bench", big, 0, "", MCP_EXITED, &failed, &cut);
    assert_true(cut && !failed);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(json_object_get(json, "more"), "arguments"), "id")),
                        "a1");
    assert_int_equal(json_array_size(json_object_get(json, "evidence")), 8);
    json_decref(json);
    n = (size_t)sprintf(big, "{");
    for (int i = 0; i < 3000; i++)
        n += (size_t)sprintf(big + n, "%s\"key%d\": %d", i ? "," : "", i, i);
    strcpy(big + n, "}");
    json = answer("bench", big, 0, "", MCP_EXITED, &failed, &cut);
    assert_true(cut);
    json_decref(json);
    free(big);
}

/* Of grouped products, the times of all shapes before the samples of any. */
static void times_of_shapes_come_first(void **state)
{
    (void)state;
    enum { SHAPES = 24 };
    bool failed, cut;
    char *big = malloc(100000);
    assert_non_null(big);
    size_t n = (size_t)sprintf(big, "{\"run\": \"g12345678\", \"mean_us\": 31.5, \"shapes\": [");
    for (int i = 0; i < SHAPES; i++) {
        n += (size_t)sprintf(
            big + n,
            "%s{\"name\": \"g8 n%d k7168\", \"m\": [80, 176, 128, 72, 64, 248, 96, "
            "160], \"format\": \"nvfp4\", \"variant\": \"grouped_gemm_wgmma_cuda\", "
            "\"time\": {\"us\": %d.5, \"low_us\": 30.25}, \"of_cublas\": 1.25, "
            "\"samples_us\": [1.5",
            i ? "," : "", i, 100 + i);
        for (int s = 0; s < 30; s++) n += (size_t)sprintf(big + n, ", 7.125");
        n += (size_t)sprintf(big + n, "]}");
    }
    strcpy(big + n, "]}");
    json_t *json = answer("gemm_bench", big, 0, "", MCP_EXITED, &failed, &cut);
    assert_true(cut && !failed);
    const json_t *result = json_object_get(json, "result"),
                 *shapes = json_object_get(result, "shapes");
    assert_int_equal(json_array_size(shapes), SHAPES);
    assert_true(json_number_value(json_object_get(result, "mean_us")) > 31);
    for (size_t i = 0; i < SHAPES; i++) {
        const json_t *shape = json_array_get(shapes, i), *time = json_object_get(shape, "time");
        assert_true(json_number_value(json_object_get(time, "us")) > 100);
        assert_non_null(json_object_get(shape, "name"));
        assert_non_null(json_object_get(shape, "of_cublas"));
        assert_null(json_object_get(shape, "samples_us"));
    }
    assert_string_equal(next_tool(json), "run_show");
    json_decref(json);
    free(big);
}

static void parts_give_the_whole(void **state)
{
    (void)state;
    char whole[20000], built[20000] = "";
    size_t size = 0, offset = 0;
    while (size + 8 < sizeof whole)
        size += (size_t)sprintf(whole + size, "\"\xc3\xa4\n%zu", size % 7);
    struct mcp_kept kept = {.id = "a1", .text = whole, .size = size};
    for (int i = 0; offset < size && i < 100; i++) {
        char *text = mcp_answer_part(&kept, NULL, offset);
        assert_non_null(text);
        assert_true(strlen(text) < 4096);
        json_t *json = json_loads(text, 0, NULL);
        free(text);
        assert_non_null(json);
        strcat(built, json_string_value(json_object_get(json, "text")));
        offset += json_string_length(json_object_get(json, "text"));
        json_decref(json);
    }
    assert_string_equal(built, whole);
    char *beyond = mcp_answer_part(&kept, NULL, size + 100);
    assert_non_null(beyond);
    free(beyond);
}

/* ---- protocol ---- */

struct sink {
    char text[65536];
};

static void collect(void *to, const char *message, size_t size)
{
    struct sink *s = to;
    assert_true(size && message[size - 1] == '\n' && !memchr(message, '\n', size - 1));
    size_t length = strlen(s->text);
    if (length + size < sizeof s->text) memcpy(s->text + length, message, size);
}

#define META                                                                                       \
    "\"_meta\": {\"io.modelcontextprotocol/protocolVersion\": \"2026-07-28\", "                    \
    "\"io.modelcontextprotocol/clientCapabilities\": {}}"

static void messages(void **state)
{
    (void)state;
    static const struct {
        const char *line, *answer; /* NULL: none; else what is in it */
    } cases[] = {
        {"", NULL},
        {"  \r", NULL},
        {"{", "\"code\":-32700"},
        {"{\"a\": 1, \"a\": 2}", "\"code\":-32700"},
        {"[]", "\"code\":-32600"},
        {"7", "\"code\":-32600"},
        {"{\"id\": 1, \"method\": \"ping\"}", "\"code\":-32600"},
        {"{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"ping\"}", "\"code\":-32600"},
        {"{\"jsonrpc\": \"2.0\", \"id\": null, \"method\": \"ping\"}", "\"code\":-32600"},
        {"{\"jsonrpc\": \"2.0\", \"id\": [1], \"method\": \"ping\"}", "\"id\":null"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": 5}", "\"code\":-32600"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": []}",
         "\"code\":-32602"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}}", NULL},
        {"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}", NULL},
        {"{\"jsonrpc\": \"2.0\", \"method\": \"nothing\"}", NULL},
        {"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\"}", NULL},
        {"{\"jsonrpc\": \"2.0\", \"id\": \"x\", \"method\": \"ping\"}",
         "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}", "initialize first"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"server/discover\"}", "\"code\":-32601"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"server/discover\", \"params\": {" META
         "}}",
         "\"supportedVersions\":[\"2026-07-28\",\"2025-11-25\",\"2025-06-18\",\"2024-11-05\"]"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\", \"params\": {" META "}}",
         "\"resultType\":\"complete\""},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": {" META "}}",
         "\"code\":-32601"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\", \"params\": {\"_meta\": "
         "{\"io.modelcontextprotocol/protocolVersion\": \"2030-01-01\"}}}",
         "\"code\":-32022"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\", \"params\": {\"_meta\": "
         "{\"io.modelcontextprotocol/protocolVersion\": \"2026-07-28\"}}}",
         "capabilities"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": {}}",
         "\"code\":-32602"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": "
         "{\"protocolVersion\": \"2025-06-18\"}}",
         "\"protocolVersion\":\"2025-06-18\""},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": "
         "{\"protocolVersion\": \"1999-01-01\"}}",
         "\"protocolVersion\":\"2025-11-25\""},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}", "\"opt_accept\""},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\", \"params\": {\"cursor\": "
         "\"x\"}}",
         "\"code\":-32602"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\"}", "unknown tool"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {\"name\": "
         "\"compare_dead\"}}",
         "unknown tool: compare_dead"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {\"name\": "
         "\"more\", \"arguments\": {\"id\": \"a1\"}}}",
         "\"isError\":true"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {\"name\": "
         "\"bench\", \"arguments\": {\"x\": 1}}}",
         "no argument"},
        {"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"resources/list\"}", "\"code\":-32601"},
    };
    static struct sink sink;
    struct mcp_server *server;
    struct mcp_params params = {
        .version = "0", .find = find, .allow_commands = true, .write = collect, .to = &sink};
    assert_int_equal(mcp_server_create(&params, &server), SOL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(sink.text, 0, sizeof sink.text);
        mcp_server_line(server, cases[i].line, strlen(cases[i].line));
        if (!cases[i].answer && *sink.text) fail_msg("%s: %s", cases[i].line, sink.text);
        if (cases[i].answer && !strstr(sink.text, cases[i].answer))
            fail_msg("%s: no %s in %s", cases[i].line, cases[i].answer, sink.text);
        assert_int_equal(mcp_server_calls(server), 0);
    }
    mcp_server_destroy(server);
}

static const char *answer_to(struct mcp_server *server, struct sink *sink, const char *line)
{
    memset(sink->text, 0, sizeof sink->text);
    mcp_server_line(server, line, strlen(line));
    return sink->text;
}

/* A text that C would take for a shorter one. */
static void nul_is_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/list\\u0000x\", \"params\": {" META
        "}}",
        "{\"jsonrpc\": \"2.0\\u0000\", \"id\": 7, \"method\": \"tools/list\"}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/call\", \"params\": {\"name\": "
        "\"runs\\u0000x\", " META "}}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/call\", \"params\": {\"name\": "
        "\"run_show\", \"arguments\": {\"run\": \"last\\u0000x\"}, " META "}}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/call\", \"params\": {\"name\": "
        "\"verify\", \"arguments\": {\"ops\": [\"rope\\u0000x\"]}, " META "}}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"tools/call\", \"params\": {\"name\": "
        "\"runs\", \"_meta\": {\"progressToken\": \"a\\u0000b\"}}}",
        "{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"initialize\", \"params\": "
        "{\"protocolVersion\": \"2025-06-18\\u0000\"}}",
    };
    static struct sink sink;
    struct mcp_server *server;
    struct mcp_params params = {.version = "0", .find = find, .write = collect, .to = &sink};
    assert_int_equal(mcp_server_create(&params, &server), SOL_OK);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *text = answer_to(server, &sink, lines[i]);
        if (!strstr(text, "\"id\":7,\"error\":{\"code\":-32600") || !strstr(text, "u0000"))
            fail_msg("%s: %s", lines[i], text);
        assert_int_equal(mcp_server_calls(server), 0);
    }
    const char *text = answer_to(
        server, &sink, "{\"jsonrpc\": \"2.0\", \"id\": \"a\\u0000b\", \"method\": \"ping\"}");
    assert_non_null(strstr(text, "\"id\":null,\"error\""));
    text =
        answer_to(server, &sink, "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/x\\u0000\"}");
    assert_string_equal(text, "");
    text = answer_to(server, &sink, "{\"jsonrpc\": \"2.0\", \"id\": 7, \"a\\u0000\": 1}");
    assert_non_null(strstr(text, "\"code\":-32700"));
    mcp_server_destroy(server);
}

/* Every request is answered, also where what it says is too long for a message. */
static void long_names_are_answered(void **state)
{
    (void)state;
    static struct sink sink;
    struct mcp_server *server;
    struct mcp_params params = {.version = "0", .find = find, .write = collect, .to = &sink};
    char name[1201] = "x", line[3000];
    for (int i = 0; i < 599; i++) strcat(name, "\xc3\xa4");
    assert_int_equal(mcp_server_create(&params, &server), SOL_OK);
    snprintf(line, sizeof line,
             "{\"jsonrpc\": \"2.0\", \"id\": 8, \"method\": \"tools/call\", \"params\": {\"name\": "
             "\"%s\", " META "}}",
             name);
    assert_non_null(strstr(answer_to(server, &sink, line), "unknown tool"));
    for (int shift = 0; shift < 2; shift++) {
        snprintf(line, sizeof line,
                 "{\"jsonrpc\": \"2.0\", \"id\": 8, \"method\": \"tools/call\", \"params\": "
                 "{\"name\": \"runs\", \"arguments\": {\"%s\": 1}, " META "}}",
                 name + shift);
        assert_non_null(strstr(answer_to(server, &sink, line), "runs has no argument"));
    }
    mcp_server_destroy(server);
}

/* ---- permission ---- */

/* The annotations of every tool, as clients rely on them. */
static void annotations_tell_the_truth(void **state)
{
    (void)state;
    for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
        json_t *json = mcp_tool_json(t, mcp_tool_spec(t, find));
        const json_t *notes = json_object_get(json, "annotations");
        bool reads = json_is_true(json_object_get(notes, "readOnlyHint")),
             destroys = json_is_true(json_object_get(notes, "destructiveHint")),
             open = json_is_true(json_object_get(notes, "openWorldHint"));
        assert_int_equal(json_object_size(notes), 3);
        assert_int_equal(open, t->commands);
        assert_int_equal(reads, t->effect == MCP_READS && !t->commands);
        assert_int_equal(destroys, t->effect == MCP_REPLACES || t->commands);
        /* Of the steps of an iteration those that ask git for no more than where the tree is. */
        bool quiet = strcmp(t->name, "opt_init") == 0 || strcmp(t->name, "opt_history") == 0 ||
                     strcmp(t->name, "opt_summary") == 0;
        if (strncmp(t->name, "opt_", 4) == 0) assert_int_equal(t->commands, !quiet);
        for (const struct mcp_parameter *p = t->parameters; p->name; p++)
            assert_true(t->commands || !p->word.help || strcmp(p->word.help, "command") != 0);
        json_decref(json);
    }
}

static void commands_need_permission(void **state)
{
    (void)state;
    static struct sink sink;
    struct mcp_server *server;
    char line[300], name[40];
    for (int allow = 0; allow < 2; allow++) {
        struct mcp_params params = {
            .version = "0", .find = find, .allow_commands = allow, .write = collect, .to = &sink};
        assert_int_equal(mcp_server_create(&params, &server), SOL_OK);
        json_t *list = json_loads(answer_to(server, &sink,
                                            "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": "
                                            "\"tools/list\", \"params\": {" META "}}"),
                                  0, NULL);
        char *text = json_dumps(list, 0);
        for (const struct mcp_tool *t = mcp_tools; t->name; t++) {
            snprintf(name, sizeof name, "\"name\": \"%s\"", t->name);
            assert_int_equal(strstr(text, name) != NULL, allow || !t->commands);
            if (!t->commands) continue;
            snprintf(line, sizeof line,
                     "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": "
                     "{\"name\": \"%s\", " META "}}",
                     t->name);
            const char *answer = answer_to(server, &sink, line);
            assert_int_equal(strstr(answer, "sol mcp --allow-commands") != NULL, !allow);
            if (!allow) assert_non_null(strstr(answer, "\"isError\":true"));
            if (!allow) assert_int_equal(mcp_server_calls(server), 0);
        }
        free(text);
        json_decref(list);
        mcp_server_destroy(server);
    }
}

/* ---- children ---- */

static void a_child_that_cannot_start_is_answered(void **state)
{
    (void)state;
    static struct sink sink;
    struct mcp_server *server;
    struct mcp_params params = {
        .program = "/nowhere/sol", .version = "0", .find = find, .write = collect, .to = &sink};
    static const char line[] = "{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"tools/call\", "
                               "\"params\": {\"name\": \"runs\", " META "}}";
    assert_int_equal(mcp_server_create(&params, &server), SOL_OK);
    mcp_server_line(server, line, strlen(line));
    assert_int_equal(mcp_server_calls(server), 1);
    mcp_server_line(server, line, strlen(line));
    assert_non_null(strstr(sink.text, "under way"));
    for (int i = 0; i < 1000 && mcp_server_calls(server); i++) mcp_server_turn(server, -1, 10);
    assert_non_null(strstr(sink.text, "\"isError\":true"));
    mcp_server_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(command_lines),
        cmocka_unit_test(schemas_are_the_commands_tables),
        cmocka_unit_test(commands_become_calls),
        cmocka_unit_test(what_decides_comes_first),
        cmocka_unit_test(answers_are_small_and_have_one_next_step),
        cmocka_unit_test(large_answers_are_cut),
        cmocka_unit_test(times_of_shapes_come_first),
        cmocka_unit_test(parts_give_the_whole),
        cmocka_unit_test(messages),
        cmocka_unit_test(nul_is_refused),
        cmocka_unit_test(long_names_are_answered),
        cmocka_unit_test(annotations_tell_the_truth),
        cmocka_unit_test(commands_need_permission),
        cmocka_unit_test(a_child_that_cannot_start_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
