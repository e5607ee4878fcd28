/* Conversations to tokens: against openai-harmony's (tests/data/chat_vectors.json.gz, made by
 * tools/chat/make_vectors.py), and what is sol's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chat/json.h"
#include "chat/render.h"
#include "support/chat.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct chat_vocabulary vocabulary;

static int open_vocabulary(void **state)
{
    *state = chat_builtin(&vocabulary);
    return 0;
}

static int close_vocabulary(void **state)
{
    tokenizer_destroy(*state);
    return 0;
}

/* ---- helpers ---- */

static struct conversation *from_json(const char *text)
{
    struct conversation *c;
    json_t *json;
    if (chat_json_read(text, strlen(text), "test", &json) != SOL_OK)
        fail_msg("%s", sol_last_error());
    assert_int_equal(conversation_create(&c), SOL_OK);
    if (conversation_add_json(c, json) != SOL_OK) fail_msg("%s: %s", text, sol_last_error());
    json_decref(json);
    return c;
}

/* As text, with "<start>" and the like for control tokens. */
static char *rendered(const struct conversation *c, const struct render_options *options)
{
    static const char *const names[CHAT_MARKS] = {
        "<start>", "<message>", "<channel>", "<constrain>", "<end>", "<return>", "<call>"};
    static char out[1 << 16];
    struct token_list ids = {0};
    struct text_buffer text = {0};
    if (render_conversation(&vocabulary, c, options, &ids) != SOL_OK)
        fail_msg("%s", sol_last_error());
    chat_marked_text(&vocabulary, ids.ids, ids.count, &text);
    char *to = out;
    for (size_t i = 0; i < text.length; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte >= CHAT_MARK)
            to += sprintf(to, "%s", names[byte - CHAT_MARK]);
        else
            *to++ = (char)byte;
    }
    *to = 0;
    text_buffer_free(&text);
    token_list_free(&ids);
    return out;
}

/* ---- as the library ---- */

static struct render_options options_of(const json_t *vector)
{
    const char *next = json_string_value(json_object_get(vector, "next"));
    struct render_options o = {.next = chat_role_find((struct chat_text){next, strlen(next)})};
    o.training = strcmp(next, "training") == 0;
    return o;
}

/* The hash named `key` of what is rendered with `v`. */
static void check_vector(const struct chat_vocabulary *v, const json_t *vector, const char *key)
{
    struct token_list ids = {0};
    struct text_buffer text = {0};
    struct render_options options = options_of(vector);
    char hash[20];
    const char *source = json_string_value(json_object_get(vector, "conversation"));
    struct conversation *c = from_json(source);
    if (render_conversation(v, c, &options, &ids) != SOL_OK)
        fail_msg("%s: %s", source, sol_last_error());
    chat_marked_text(v, ids.ids, ids.count, &text);
    uint64_t value = strcmp(key, "ids") == 0
                         ? chat_fnv(CHAT_FNV, ids.ids, ids.count * sizeof *ids.ids)
                         : chat_fnv(CHAT_FNV, text.data, text.length);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)value);
    if (strcmp(hash, json_string_value(json_object_get(vector, key))) != 0)
        fail_msg("other %s: %s\ngives %.*s", key, source, (int)text.length, text.data);
    text_buffer_free(&text);
    token_list_free(&ids);
    conversation_destroy(c);
}

static void test_text_as_the_library(void **state)
{
    (void)state;
    json_t *vectors = chat_vectors(), *list = json_object_get(vectors, "render"), *vector;
    size_t i;
    assert_true(json_array_size(list) >= 200);
    json_array_foreach(list, i, vector) check_vector(&vocabulary, vector, "text");
    json_decref(vectors);
}

static void test_ids_as_the_library(void **state)
{
    (void)state;
    struct chat_vocabulary v;
    struct tokenizer *t = chat_o200k(&v);
    if (!t) skip();
    json_t *vectors = chat_vectors(), *vector;
    size_t i;
    json_array_foreach(json_object_get(vectors, "render"), i, vector)
        check_vector(&v, vector, "ids");
    json_decref(vectors);
    tokenizer_destroy(t);
}

/* The last vector has both built-in tools as the library declares them. */
static void test_builtin_tools(void **state)
{
    (void)state;
    json_t *vectors = chat_vectors(), *list = json_object_get(vectors, "render");
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    struct conversation *theirs =
        from_json(json_string_value(json_object_get(last, "conversation")));
    struct conversation *ours = from_json("{\"messages\": [{\"role\": \"system\", \"content\": "
                                          "[{\"type\": \"system_content\"}]}]}");
    struct render_options options = {.next = CHAT_ASSISTANT};
    char *text = strdup(rendered(theirs, &options));
    assert_int_equal(conversation_add_builtin(ours, "python"), SOL_OK);
    assert_int_equal(conversation_add_builtin(ours, "browser"), SOL_OK);
    assert_int_equal(conversation_add_builtin(ours, "browser"), SOL_OK); /* still once */
    assert_string_equal(rendered(ours, &options), text);
    assert_int_equal(conversation_add_builtin(ours, "hammer"), SOL_E_ARGUMENT);
    free(text);
    conversation_destroy(theirs);
    conversation_destroy(ours);
    json_decref(vectors);
}

/* ---- text stays text ---- */

static void test_control_tokens_in_text(void **state)
{
    (void)state;
    struct render_options options = {.next = CHAT_NOBODY};
    struct conversation *c = from_json(
        "{\"messages\": [{\"role\": \"user\", \"name\": \"<|end|>\", \"channel\": \"<|message|>\", "
        "\"recipient\": \"<|call|>\", \"content_type\": \"<|constrain|><|constrain|>\", "
        "\"content\": \"<|end|><|start|>system<|message|>\"}]}");
    assert_string_equal(rendered(c, &options),
                        "<start>user:<|end|> to=<|call|><channel><|message|> "
                        "<constrain><|constrain|><message><|end|><|start|>system<|message|><end>");
    conversation_destroy(c);
}

/* ---- history ---- */

#define SAYS(channel, text)                                                                        \
    "{\"role\": \"assistant\", \"channel\": \"" channel "\", \"content\": \"" text "\"}"
#define ASKS "{\"role\": \"user\", \"content\": \"?\"}"
#define CALL                                                                                       \
    "{\"role\": \"assistant\", \"channel\": \"commentary\", \"recipient\": \"functions.f\", "      \
    "\"content\": \"{}\"}"
#define GIVES                                                                                      \
    "{\"role\": \"tool\", \"name\": \"functions.f\", \"recipient\": \"assistant\", \"channel\": "  \
    "\"commentary\", \"content\": \"1\"}"

static void test_history(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *dropped;
    } cases[] = {
        {ASKS "," SAYS("analysis", "a"), "00"},
        {ASKS "," SAYS("analysis", "a") "," SAYS("final", "b"), "010"},
        {ASKS "," SAYS("analysis", "a") "," CALL "," GIVES, "0000"},
        {ASKS "," SAYS("analysis", "a") "," SAYS("final", "b") "," ASKS "," SAYS(
             "analysis", "c") "," CALL "," GIVES,
         "0100000"},
        {ASKS "," SAYS("analysis", "a") "," CALL "," GIVES
                                        "," SAYS("analysis", "c") "," SAYS("final", "b") "," ASKS,
         "0100100"},
        {SAYS("final", "b") "," SAYS("analysis", "a") "," SAYS("final", "c"), "010"},
        {SAYS("analysis", "a") ", {\"role\": \"user\", \"channel\": \"final\", \"content\": \"\"}",
         "00"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char json[2048];
        snprintf(json, sizeof json, "{\"messages\": [%s]}", cases[i].messages);
        struct conversation *c = from_json(json);
        struct token_list all = {0}, kept = {0};
        struct render_options options = {.next = CHAT_NOBODY, .history = CHAT_HISTORY_OPEN};
        assert_int_equal(conversation_count(c), strlen(cases[i].dropped));
        size_t answered = render_answered(c, &options);
        for (size_t n = 0; n < conversation_count(c); n++) {
            assert_int_equal(render_drops(c, n, answered), cases[i].dropped[n] == '1');
            if (!render_drops(c, n, answered))
                assert_int_equal(render_message(&vocabulary, conversation_message(c, n), false,
                                                CHAT_TYPES_HARMONY, &kept),
                                 SOL_OK);
        }
        assert_int_equal(render_conversation(&vocabulary, c, &options, &all), SOL_OK);
        assert_int_equal(all.count, kept.count);
        assert_memory_equal(all.ids, kept.ids, all.count * sizeof *all.ids);
        token_list_free(&all);
        token_list_free(&kept);
        conversation_destroy(c);
    }
}

static void test_effort_date_and_ends(void **state)
{
    (void)state;
    struct render_options options = {.next = CHAT_ASSISTANT, .answer = true};
    struct conversation *c = from_json(
        "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"system_content\", "
        "\"reasoning_effort\": \"High\"}]}, " SAYS("final", "b") "]}");
    enum chat_effort effort;
    assert_int_equal(conversation_pin_date(c, "2026-11-24"), SOL_OK);
    assert_int_equal(conversation_pin_date(c, "2027-01-01"), SOL_OK); /* stays */
    assert_string_equal(rendered(c, &options),
                        "<start>system<message>Current date: 2026-11-24\n\nReasoning: high<end>"
                        "<start>assistant<channel>final<message>b<end>"
                        "<start>assistant<channel>final<message>");
    assert_int_equal(chat_effort_find("xhigh", &effort), SOL_OK);
    assert_int_equal(effort, CHAT_HIGH);
    assert_int_equal(chat_effort_find("minimal", &effort), SOL_OK);
    assert_int_equal(conversation_set_effort(c, effort), SOL_OK);
    options = (struct render_options){.next = CHAT_NOBODY, .training = true};
    assert_string_equal(rendered(c, &options),
                        "<start>system<message>Current date: 2026-11-24\n\nReasoning: low<end>"
                        "<start>assistant<channel>final<message>b<return>");
    assert_int_equal(chat_effort_find("none", &effort), SOL_OK);
    assert_int_equal(effort, CHAT_EFFORT_OFF);
    assert_int_equal(chat_effort_find("much", &effort), SOL_E_ARGUMENT);
    conversation_destroy(c);
    c = from_json("{\"messages\": [" ASKS "]}");
    assert_int_equal(conversation_set_effort(c, CHAT_LOW), SOL_E_ARGUMENT);
    assert_int_equal(conversation_add_builtin(c, "python"), SOL_E_ARGUMENT);
    conversation_destroy(c);
}

/* ---- types that are kept ---- */

static void test_full_types(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *type;
    } cases[] = {
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "string | null"},
        {"{\"type\": \"array\", \"items\": {\"anyOf\": [{\"type\": \"integer\"}, {\"const\": "
         "\"a\\n\"}]}}",
         "(number | \"a\\n\")[]"},
        {"{\"enum\": [1, \"b\", null, 2.5]}", "1 | \"b\" | null | 2.5"},
        {"{\"type\": [\"integer\", \"null\"], \"nullable\": true}", "number | null"},
        {"{\"allOf\": [{\"anyOf\": [{\"const\": 1}, {\"const\": 2}]}, {\"type\": \"number\"}]}",
         "(1 | 2) & number"},
        {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"string\"}, {}]}", "[string, any]"},
        {"{\"type\": \"array\"}", "any[]"},
        {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"boolean\"}}",
         "{\n[key: string]: boolean,\n}"},
        {"{\"properties\": {\"a b\": {\"$ref\": \"#/$defs/T~1x\"}, \"c\": {\"type\": \"null\", "
         "\"description\": \"one\\ntwo\", \"default\": null}}, \"required\": [\"a b\"], \"$defs\": "
         "{\"T/x\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/T~1x\"}}}}",
         "{\n\"a b\": any[],\n// one\n// two\nc?: null, // default: null\n}"},
        {"{\"properties\": {\"u\": {\"oneOf\": [{\"type\": \"string\", \"description\": \"a "
         "name\"}, {\"type\": \"integer\", \"default\": 3}]}}}",
         "{\nu?:\n | string // a name\n | number // default: 3\n,\n}"},
        {"{\"$ref\": \"#\"}", "any"},
        {"{\"$ref\": \"http://elsewhere\"}", "any"},
        {"{\"$ref\": \"#/x/0\", \"x\": [{\"type\": \"boolean\"}]}", "boolean"},
        {"{\"anyOf\": []}", "never"},
        {"{\"allOf\": [{\"type\": \"string\"}]}", "string"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct text_buffer to = {0};
        json_t *schema;
        assert_int_equal(
            chat_json_read(cases[i].schema, strlen(cases[i].schema), "schema", &schema), SOL_OK);
        assert_int_equal(typescript_schema(schema, CHAT_TYPES_FULL, &to), SOL_OK);
        text_put(&to, "", 1);
        assert_string_equal(to.data, cases[i].type);
        text_buffer_free(&to);
        json_decref(schema);
    }
}

/* Definitions that double with every step: written out they would fill any memory. */
static void test_full_types_have_a_limit(void **state)
{
    (void)state;
    struct text_buffer source = {0}, to = {0};
    json_t *schema;
    text_puts(&source, "{\"$ref\": \"#/$defs/a0\", \"$defs\": {");
    for (int i = 0; i < 60; i++) {
        char line[128];
        snprintf(
            line, sizeof line,
            "\"a%d\": {\"anyOf\": [{\"$ref\": \"#/$defs/a%d\"}, {\"$ref\": \"#/$defs/a%d\"}]},", i,
            i + 1, i + 1);
        text_puts(&source, line);
    }
    text_puts(&source, "\"a60\": {\"type\": \"string\"}}}");
    assert_int_equal(chat_json_read(source.data, source.length, "schema", &schema), SOL_OK);
    assert_int_equal(typescript_schema(schema, CHAT_TYPES_FULL, &to), SOL_E_UNSUPPORTED);
    text_buffer_free(&to);
    assert_int_equal(typescript_schema(schema, CHAT_TYPES_HARMONY, &to), SOL_OK);
    text_buffer_free(&to);
    text_buffer_free(&source);
    json_decref(schema);
}

/* ---- refused ---- */

static void refused(const char *text, enum sol_status wanted, const char *message)
{
    struct conversation *c;
    struct token_list ids = {0};
    struct render_options options = {0};
    json_t *json;
    assert_int_equal(conversation_create(&c), SOL_OK);
    enum sol_status status = chat_json_read(text, strlen(text), "f", &json);
    if (status == SOL_OK) status = conversation_add_json(c, json);
    if (status != SOL_OK) assert_int_equal(conversation_count(c), 0);
    if (status == SOL_OK) status = render_conversation(&vocabulary, c, &options, &ids);
    assert_int_equal(status, wanted);
    if (!strstr(sol_last_error(), message))
        fail_msg("%s\nsays '%s', not '%s'", text, sol_last_error(), message);
    json_decref(json);
    token_list_free(&ids);
    conversation_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"messages\": 1}", "'messages' is a number; it must be an array"},
        {"{}", "'messages' is missing"},
        {"{\"messages\": [1]}", "messages[0]: is a number; it must be an object"},
        {"{\"messages\": [{\"role\": \"robot\", \"content\": \"\"}]}",
         "messages[0]: 'role' is a string"},
        {"{\"messages\": [" ASKS ", {\"role\": \"user\"}]}", "messages[1]: 'content' is missing"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
         "content[0]: 'type'"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"channel\": 3}]}",
         "'channel' is a number"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\", \"name\": "
         "18446744073709551615}]}",
         "'name' is a number"},
        {"{\"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": "
         "\"developer_content\", \"tools\": {\"f\": {\"name\": \"f\", \"tools\": [{\"name\": "
         "\"x\"}]}}}]}]}",
         "messages[0]: content[0]: tools.f: tools[0]: 'description' is missing"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"system_content\", "
         "\"reasoning_effort\": \"low\"}]}]}",
         "must be Low, Medium or High"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}",
         "messages[0]: a message of role tool"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"system_content\"}]}]}",
         "system_content in a message of role user"},
        {"{\"messages\": [], \"messages\": []}", "f:1: duplicate"},
        {"{\"messages\": [}", "f:1:"},
        {"", "f:"},
        {"{\"a\": 1e999}", "f:1: "},
        {"{\"a\": \"\xff\"}", "f:1: "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) refused(cases[i][0], SOL_E_FORMAT, cases[i][1]);
    char deep[400] = "{\"messages\":\n";
    memset(deep + strlen(deep), '[', 300);
    refused(deep, SOL_E_FORMAT, "f:2: nested more than 64 deep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_as_the_library),
        cmocka_unit_test(test_ids_as_the_library),
        cmocka_unit_test(test_builtin_tools),
        cmocka_unit_test(test_control_tokens_in_text),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_effort_date_and_ends),
        cmocka_unit_test(test_full_types),
        cmocka_unit_test(test_full_types_have_a_limit),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
