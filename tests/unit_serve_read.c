/* Requests for /v1/chat/completions and /v1/responses: what becomes of them, and what is said of
 * those that cannot be served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/json.h"
#include "serve/api_request.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct schema_cache *schemas;
static struct recall *recalled;
static struct api_reader reader;

static int set_up(void **state)
{
    (void)state;
    if (schema_cache_create(&schemas) != SOL_OK) return 1;
    if (recall_create(1 << 20, &recalled) != SOL_OK) return 1;
    reader = (struct api_reader){.format = &chat_harmony,
                                 .schemas = schemas,
                                 .recall = recalled,
                                 .key = key_of_everybody(),
                                 .today = "2026-11-24"};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    recall_destroy(recalled);
    schema_cache_destroy(schemas);
    return 0;
}

/* ---- helpers ---- */

/* With ' for ". */
static json_t *json_of(const char *text)
{
    char *copy = strdup(text);
    json_t *json;
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    if (chat_json_read(copy, strlen(copy), "test", &json) != SOL_OK)
        fail_msg("%s: %s", copy, sol_last_error());
    free(copy);
    return json;
}

static enum sol_status read_json(bool chat, json_t *json, json_t *history, struct api_fault *fault,
                                 struct api_request **out)
{
    return chat ? api_read_chat(&reader, json, fault, out)
                : api_read_response(&reader, json, history, NULL, fault, out);
}

static struct api_request *read_ok(bool chat, const char *text)
{
    struct api_request *request;
    struct api_fault fault;
    json_t *json = json_of(text);
    if (read_json(chat, json, NULL, &fault, &request) != SOL_OK)
        fail_msg("%s: %s", text, sol_last_error());
    json_decref(json);
    return request;
}

static void put_word(struct text_buffer *to, const char *before, struct chat_text word)
{
    if (!word.data) return;
    text_puts(to, before);
    text_put_text(to, word);
}

/* "user:hi|assistant/final:hello": what is not said by system and developer. */
static void put_messages(const struct api_request *request, struct text_buffer *to)
{
    for (size_t i = 0; i < conversation_count(request->conversation); i++) {
        const struct chat_message *m = conversation_message(request->conversation, i);
        if (m->role == CHAT_SYSTEM) continue;
        if (to->length) text_puts(to, "|");
        text_puts(to, chat_role_name(m->role));
        put_word(to, "#", m->name);
        put_word(to, ">", m->recipient);
        put_word(to, "/", m->channel);
        text_puts(to, ":");
        for (size_t k = 0; k < m->n_contents; k++) {
            const struct chat_content *content = &m->contents[k];
            if (content->kind == CHAT_CONTENT_DEVELOPER) {
                put_word(to, "", content->developer->instructions);
                if (content->developer->tools.count) text_puts(to, "+tools");
            } else {
                text_put_text(to, content->text);
            }
        }
    }
    text_put(to, "", 1);
}

static void check_messages(bool chat, const char *body, const char *expected)
{
    struct text_buffer text = {0};
    struct api_request *request = read_ok(chat, body);
    put_messages(request, &text);
    assert_string_equal(text.data, expected);
    text_buffer_free(&text);
    api_request_destroy(request);
}

/* ---- conversations ---- */

static void test_chat_messages(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'messages': [{'role': 'user', 'content': 'hi'}]}", "user:hi"},
        {"{'messages': [{'role': 'system', 'content': 'S'}, {'role': 'developer', 'content': "
         "[{'type': 'text', 'text': 'D'}]}, {'role': 'user', 'name': 'ann', 'content': [{'type': "
         "'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]}, {'role': 'system', 'content': "
         "'later'}]}",
         "developer:S\n\nD|user#ann:ab|developer:later"},
        {"{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', "
         "'reasoning_content': 'r'}, {'role': 'user', 'content': 'p'}]}",
         "user:q|assistant/analysis:r|assistant/final:a|user:p"},
        {"{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'look', "
         "'reasoning': 'r', 'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': "
         "'f', 'arguments': '{}'}}, {'id': 'c2', 'function': {'name': 'g-h', 'arguments': 'no "
         "json'}}]}, {'role': 'tool', 'tool_call_id': 'c2', 'content': 'two'}, {'role': 'tool', "
         "'tool_call_id': 'c1', 'content': [{'type': 'text', 'text': 'one'}]}]}",
         "user:q|assistant/analysis:r|assistant/commentary:look|assistant>functions.f/"
         "commentary:{}|assistant>functions.g-h/commentary:no json|tool#functions.g-h>assistant/"
         "commentary:two|tool#functions.f>assistant/commentary:one"},
        {"{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': null, "
         "'refusal': 'no'}]}",
         "user:q|assistant/final:no"},
        {"{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': ''}]}",
         "user:q"},
        {"{'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'type': 'function', "
         "'function': {'name': 'f'}}], 'frequency_penalty': 0, 'logit_bias': {}, 'unknown': 1}",
         "developer:+tools|user:q"},
        {"{'messages': [{'role': 'user', 'content': 'q'}], 'response_format': {'type': "
         "'json_schema', 'json_schema': {'name': 'n', 'description': 'd', 'schema': {'type': "
         "'object'}}}}",
         "developer:# Response Formats\n\n## n\n\n// d\n{\"type\":\"object\"}|user:q"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) check_messages(true, cases[i][0], cases[i][1]);
}

static void test_response_items(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'input': 'hi'}", "user:hi"},
        {"{'instructions': 'I', 'input': [{'role': 'developer', 'content': 'D'}, {'role': 'user', "
         "'content': [{'type': 'input_text', 'text': 'x'}]}]}",
         "developer:I\n\nD|user:x"},
        {"{'input': [{'role': 'user', 'content': 'q'}, {'type': 'reasoning', 'id': 'r', 'summary': "
         "[], 'content': [{'type': 'reasoning_text', 'text': 'T'}]}, {'type': 'message', 'role': "
         "'assistant', 'content': [{'type': 'output_text', 'text': 'look', 'annotations': []}]}, "
         "{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'namespace': 'ns', 'arguments': "
         "'{}'}, {'type': 'function_call_output', 'call_id': 'c', 'output': 'out'}, {'role': "
         "'assistant', 'content': 'done'}, {'role': 'user', 'content': 'p'}]}",
         "user:q|assistant/analysis:T|assistant/commentary:look|assistant>functions.ns__f/"
         "commentary:{}|tool#functions.ns__f>assistant/commentary:out|assistant/final:done|user:p"},
        {"{'input': [{'role': 'user', 'content': 'q'}, {'type': 'reasoning', 'summary': [], "
         "'encrypted_content': 'sol1:kept'}, {'type': 'function_call', 'call_id': 'c', 'name': "
         "'f', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': 'c', 'output': "
         "[{'type': 'input_text', 'text': 'o'}]}]}",
         "user:q|assistant/analysis:kept|assistant>functions.f/commentary:{}|tool#functions.f>"
         "assistant/commentary:o"},
        {"{'input': [{'role': 'user', 'content': 'q'}, {'type': 'custom_tool_call', 'call_id': "
         "'c', "
         "'name': 'patch', 'input': 'a\\n\\u0022b'}, {'type': 'custom_tool_call_output', "
         "'call_id': 'c', 'output': 'o'}], 'tools': [{'type': 'custom', 'name': 'patch', "
         "'description': 'D', 'format': {'type': 'grammar', 'syntax': 'lark', 'definition': "
         "'start: x'}}, {'type': 'web_search'}]}",
         "developer:+tools|user:q|assistant>functions.patch/commentary:{\"input\": "
         "\"a\\n\\\"b\"}|tool#functions.patch>assistant/commentary:o"},
        {"{'input': [{'role': 'user', 'content': 'q'}, {'type': 'reasoning', 'summary': [], "
         "'encrypted_content': 'of another'}, {'role': 'assistant', 'phase': 'commentary', "
         "'content': 'c'}, {'role': 'assistant', 'phase': 'final_answer', 'content': 'f'}, "
         "{'role': 'user', 'content': 'p'}]}",
         "user:q|assistant/commentary:c|assistant/final:f|user:p"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) check_messages(false, cases[i][0], cases[i][1]);
}

/* What came before is read in front of what is sent. */
static void test_history(void **state)
{
    (void)state;
    struct api_request *request;
    struct api_fault fault;
    struct text_buffer text = {0};
    json_t *history = json_of("[{'role': 'user', 'content': 'q'}, {'type': 'function_call', "
                              "'call_id': 'c', 'name': 'f', 'arguments': '{}'}]");
    json_t *body = json_of("{'input': [{'type': 'function_call_output', 'call_id': 'c', 'output': "
                           "'o'}], 'previous_response_id': 'resp_1'}");
    assert_int_equal(api_read_response(&reader, body, history, "2025-01-02", &fault, &request),
                     SOL_OK);
    put_messages(request, &text);
    assert_string_equal(text.data, "user:q|assistant>functions.f/commentary:{}|tool#functions.f>"
                                   "assistant/commentary:o");
    assert_string_equal(request->date, "2025-01-02");
    text_buffer_free(&text);
    api_request_destroy(request);
    json_decref(history);
    json_decref(body);
}

/* ---- options ---- */

static void test_options(void **state)
{
    (void)state;
    struct api_request *r = read_ok(
        true, "{'messages': [{'role': 'user', 'content': 'q'}], 'temperature': 0.5, 'top_p': 0.9, "
              "'seed': 7, 'n': 3, 'max_tokens': 9, 'max_completion_tokens': 11, 'stop': ['a', "
              "'b'], 'logprobs': true, 'top_logprobs': 5, 'stream': true, 'stream_options': "
              "{'include_usage': true}, 'reasoning_effort': 'none', 'thinking_token_budget': 64}");
    assert_true(r->job.sampling.temperature == 0.5 && r->job.sampling.top_p == 0.9);
    assert_int_equal(r->job.sampling.seed, 7);
    assert_int_equal(r->job.n, 3);
    assert_int_equal(r->job.limit, 11);
    assert_int_equal(r->job.n_stops, 2);
    assert_true(r->job.logprobs && r->job.top == 5 && r->stream && r->usage);
    assert_int_equal(r->turn.effort, CHAT_EFFORT_OFF);
    assert_int_equal(r->turn.thinking, 64);
    assert_string_equal(r->date, "2026-11-24");
    api_request_destroy(r);
    r = read_ok(false, "{'input': 'q', 'reasoning': {'effort': 'xhigh', 'max_tokens': 5}, 'store': "
                       "false, 'max_output_tokens': 3, 'include': ['reasoning.encrypted_content', "
                       "'message.output_text.logprobs'], 'top_logprobs': 2}");
    assert_int_equal(r->turn.effort, CHAT_HIGH);
    assert_int_equal(r->turn.thinking, 5);
    assert_int_equal(r->job.limit, 3);
    assert_true(!r->store && r->encrypted && r->job.logprobs && r->job.top == 2);
    api_request_destroy(r);
}

static void test_tools(void **state)
{
    (void)state;
    static const char tools[] =
        "'input': 'q', 'tools': [{'type': 'function', 'name': 'f', 'strict': true, 'parameters': "
        "{'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a'], "
        "'additionalProperties': false}}, {'type': 'namespace', 'name': 'ns', 'description': 'd', "
        "'tools': [{'type': 'function', 'name': 'f', 'parameters': null}]}]";
    char body[1024];
    snprintf(body, sizeof body, "{%s, 'tool_choice': {'type': 'function', 'name': 'f'}}", tools);
    struct api_request *r = read_ok(false, body);
    assert_int_equal(r->n_functions, 2);
    assert_true(text_is(r->functions[1].full, "functions.ns__f"));
    assert_int_equal(r->turn.calls, TURN_CALLS_REQUIRED);
    assert_true(text_is(r->turn.only, "functions.f"));
    assert_int_equal(r->turn.n_arguments, 1);
    assert_true(text_is(r->turn.arguments[0].function, "functions.f"));
    assert_true(text_is(api_call_name(r, CHAT_TEXT("functions.ns__f")), "f"));
    assert_true(text_is(api_call_name(r, CHAT_TEXT("functions.other")), "other"));
    assert_true(text_is(api_call_name(r, CHAT_TEXT("python")), "python"));
    api_request_destroy(r);
    snprintf(body, sizeof body,
             "{%s, 'tool_choice': {'type': 'allowed_tools', 'mode': 'required', 'tools': [{'type': "
             "'function', 'name': 'f', 'namespace': 'ns'}]}}",
             tools);
    r = read_ok(false, body);
    assert_int_equal(r->turn.calls, TURN_CALLS_REQUIRED);
    assert_int_equal(r->turn.n_arguments, 0); /* f is hidden, and so is its grammar */
    const struct chat_message *m = conversation_message(r->conversation, 1);
    assert_int_equal(m->contents[0].developer->tools.spaces[0].n_tools, 1);
    assert_true(text_is(m->contents[0].developer->tools.spaces[0].tools[0].name, "ns__f"));
    api_request_destroy(r);
}

/* ---- what is remembered ---- */

static void test_reasoning_is_remembered(void **state)
{
    (void)state;
    static const char chat[] =
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'tool_calls': "
        "[{'id': 'call_9', 'function': {'name': 'f', 'arguments': '{}'}}]}, {'role': 'tool', "
        "'tool_call_id': 'call_9', 'content': 'o'}]}";
    static const char response[] =
        "{'input': [{'role': 'user', 'content': 'q'}, {'type': 'function_call', 'call_id': "
        "'call_9', 'name': 'f', 'arguments': '{}'}, {'type': 'function_call_output', 'call_id': "
        "'call_9', 'output': 'o'}]}";
    static const char with[] = "user:q|assistant/analysis:thought|assistant>functions.f/commentary:"
                               "{}|tool#functions.f>assistant/commentary:o";
    static const char without[] = "user:q|assistant>functions.f/commentary:{}|tool#functions.f>"
                                  "assistant/commentary:o";
    check_messages(true, chat, without);
    api_remember(recalled, 5, CHAT_TEXT("call_9"), CHAT_TEXT("another's"));
    check_messages(true, chat, without);
    api_remember(recalled, 0, CHAT_TEXT("call_9"), CHAT_TEXT("thought"));
    check_messages(true, chat, with);
    check_messages(false, response, with);
}

/* A conversation that goes on over midnight keeps its date; a new one has the new. */
static void test_date(void **state)
{
    (void)state;
    static const char first[] = "{'messages': [{'role': 'user', 'content': 'of a day'}]}";
    static const char more[] =
        "{'messages': [{'role': 'user', 'content': 'of a day'}, {'role': 'assistant', 'content': "
        "'a'}, {'role': 'user', 'content': 'b'}]}";
    static const char *const days[][3] = {
        /* today, body, date */
        {"2026-11-24", first, "2026-11-24"}, {"2026-11-25", more, "2026-11-24"},
        {"2026-11-26", more, "2026-11-24"},  {"2026-11-26", first, "2026-11-26"},
        {"2026-11-27", more, "2026-11-26"},
    };
    for (size_t i = 0; i < COUNT(days); i++) {
        reader.today = days[i][0];
        struct api_request *r = read_ok(true, days[i][1]);
        assert_string_equal(r->date, days[i][2]);
        const struct chat_message *system = conversation_message(r->conversation, 0);
        assert_true(text_is(system->contents[0].system->date, days[i][2]));
        api_request_destroy(r);
    }
    reader.today = "2026-11-24";
}

static void test_input_items(void **state)
{
    (void)state;
    json_t *body = json_of("{'input': 'hi'}"), *items = api_input_items(body);
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "role")),
                        "user");
    json_decref(items);
    json_decref(body);
    body = json_of("{'input': [{'role': 'user', 'content': 'x'}, {'type': 'function_call', 'id': "
                   "'own'}]}");
    items = api_input_items(body);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "type")),
                        "message");
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 1), "id")), "own");
    assert_null(json_object_get(json_array_get(json_object_get(body, "input"), 0), "id"));
    json_decref(items);
    json_decref(body);
}

/* ---- what is refused ---- */

struct refused {
    const char *param, *body;
    const char *said; /* a part of the message; NULL: any */
};

static void check_refused(bool chat, const struct refused *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct api_request *request;
        struct api_fault fault;
        json_t *json = json_of(cases[i].body);
        enum sol_status status = read_json(chat, json, NULL, &fault, &request);
        if (status == SOL_OK || strcmp(fault.param, cases[i].param) != 0)
            fail_msg("%s: status %d, param '%s': %s", cases[i].body, status, fault.param,
                     sol_last_error());
        if (cases[i].said && !strstr(sol_last_error(), cases[i].said))
            fail_msg("%s: %s", cases[i].body, sol_last_error());
        assert_null(request);
        json_decref(json);
    }
}

#define U "'messages': [{'role': 'user', 'content': 'q'}]"
#define T "'tools': [{'type': 'function', 'function': {'name': 'f'}}]"

static const struct refused chat_refused[] = {
    {"messages", "{}", "missing"},
    {"messages", "{'messages': []}", NULL},
    {"messages", "{'messages': 'x'}", "a string"},
    {"messages[0]", "{'messages': [1]}", NULL},
    {"messages[0].role", "{'messages': [{'role': 'wizard', 'content': 'x'}]}", NULL},
    {"messages[0].role", "{'messages': [{'content': 'x'}]}", "missing"},
    {"messages[0].content", "{'messages': [{'role': 'user', 'content': 5}]}", NULL},
    {"messages[0].content", "{'messages': [{'role': 'user'}]}", NULL},
    {"messages[0].content[0].type",
     "{'messages': [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}]}",
     "image_url"},
    {"messages[0].content[0].type",
     "{'messages': [{'role': 'user', 'content': [{'type': 'input_audio'}]}]}", "input_audio"},
    {"messages[0].content[1]",
     "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'x'}, 7]}]}", NULL},
    {"messages[0].content[0].text",
     "{'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]}", NULL},
    {"messages[0].name", "{'messages': [{'role': 'user', 'name': 'a b', 'content': 'x'}]}", NULL},
    {"messages[0].tool_call_id",
     "{'messages': [{'role': 'tool', 'tool_call_id': 'x', 'content': 'y'}]}", NULL},
    {"messages[0].function_call", "{'messages': [{'role': 'assistant', 'function_call': {}}]}",
     "tool_calls"},
    {"messages[0].tool_calls[0].function",
     "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'type': 'function'}]}]}",
     NULL},
    {"messages[0].tool_calls[0].function.name",
     "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'function': {'name': 'a "
     "b', 'arguments': ''}}]}]}",
     NULL},
    {"messages[0].tool_calls[0].type",
     "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'type': 'custom'}]}]}", NULL},
    {"messages[1]",
     "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'function': {'name': 'f', "
     "'arguments': ''}}]}, {'role': 'user', 'content': 'q'}]}",
     "no result"},
    {"messages",
     "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'function': {'name': 'f', "
     "'arguments': ''}}]}]}",
     "no result"},
    {"temperature", "{" U ", 'temperature': 3}", NULL},
    {"temperature", "{" U ", 'temperature': 'x'}", NULL},
    {"top_p", "{" U ", 'top_p': 0}", NULL},
    {"n", "{" U ", 'n': 1000000000}", NULL},
    {"n", "{" U ", 'n': 0}", NULL},
    {"n", "{" U ", 'n': 1.5}", NULL},
    {"max_tokens", "{" U ", 'max_tokens': 0}", NULL},
    {"max_completion_tokens", "{" U ", 'max_completion_tokens': -1}", NULL},
    {"stop", "{" U ", 'stop': ''}", NULL},
    {"stop", "{" U ", 'stop': 5}", NULL},
    {"stop[1]", "{" U ", 'stop': ['a', 5]}", NULL},
    {"seed", "{" U ", 'seed': 1e300}", NULL},
    {"seed", "{" U ", 'seed': 99999999999999999999}", NULL},
    {"logit_bias", "{" U ", 'logit_bias': {'1': 5}}", NULL},
    {"presence_penalty", "{" U ", 'presence_penalty': 1}", NULL},
    {"frequency_penalty", "{" U ", 'frequency_penalty': 1}", NULL},
    {"repetition_penalty", "{" U ", 'repetition_penalty': 1.1}", NULL},
    {"top_logprobs", "{" U ", 'top_logprobs': 3}", "logprobs"},
    {"top_logprobs", "{" U ", 'logprobs': true, 'top_logprobs': 21}", NULL},
    {"audio", "{" U ", 'audio': {'voice': 'x'}}", NULL},
    {"modalities[1]", "{" U ", 'modalities': ['text', 'audio']}", NULL},
    {"functions", "{" U ", 'functions': [{'name': 'f'}]}", "tools"},
    {"web_search_options", "{" U ", 'web_search_options': {'x': 1}}", NULL},
    {"guided_json", "{" U ", 'guided_json': 'x'}", "schema"},
    {"verbosity", "{" U ", 'verbosity': 'low'}", NULL},
    {"reasoning_effort", "{" U ", 'reasoning_effort': 'extreme'}", "extreme"},
    {"thinking_token_budget", "{" U ", 'thinking_token_budget': -2}", NULL},
    {"stream", "{" U ", 'stream': 'yes'}", NULL},
    {"stream_options.include_usage", "{" U ", 'stream_options': {'include_usage': 1}}", NULL},
    {"tools", "{" U ", 'tools': {}}", NULL},
    {"tools[0].type", "{" U ", 'tools': [{'type': 'web_search'}]}", "web_search"},
    {"tools[0].type", "{" U ", 'tools': [{'type': 'custom', 'custom': {}}]}", "custom"},
    {"tools[0].function", "{" U ", 'tools': [{'type': 'function'}]}", NULL},
    {"tools[0].function.name", "{" U ", 'tools': [{'type': 'function', 'function': {}}]}", NULL},
    {"tools[0].function.name",
     "{" U ", 'tools': [{'type': 'function', 'function': {'name': 'a.b'}}]}", NULL},
    {"tools[1].function.name",
     "{" U ", 'tools': [{'type': 'function', 'function': {'name': 'f'}}, {'type': 'function', "
     "'function': {'name': 'f'}}]}",
     "another"},
    {"tools[0].function.parameters",
     "{" U ", 'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': 5}}]}", NULL},
    {"tools[0].parameters",
     "{" U ", 'tools': [{'type': 'function', 'function': {'name': 'f', 'strict': true, "
     "'parameters': {'type': 'object', 'properties': {'a': {'not': {}}}}}}]}",
     "#/properties/a/not"},
    {"tool_choice", "{" U ", 'tool_choice': 'required'}", "no functions"},
    {"tool_choice", "{" U ", " T ", 'tool_choice': 'maybe'}", NULL},
    {"tool_choice", "{" U ", " T ", 'tool_choice': 5}", NULL},
    {"tool_choice.function.name",
     "{" U ", " T ", 'tool_choice': {'type': 'function', 'function': {'name': 'g'}}}", NULL},
    {"tool_choice.type", "{" U ", " T ", 'tool_choice': {'type': 'custom'}}", NULL},
    {"tool_choice.allowed_tools.tools",
     "{" U ", " T ", 'tool_choice': {'type': 'allowed_tools', 'allowed_tools': {'mode': "
     "'required', 'tools': []}}}",
     NULL},
    {"response_format", "{" U ", 'response_format': 'json'}", NULL},
    {"response_format.type", "{" U ", 'response_format': {'type': 'xml'}}", NULL},
    {"response_format.json_schema", "{" U ", 'response_format': {'type': 'json_schema'}}", NULL},
    {"response_format.json_schema.name",
     "{" U ", 'response_format': {'type': 'json_schema', 'json_schema': {'schema': {}}}}", NULL},
    {"response_format.json_schema.schema",
     "{" U ", 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n'}}}", NULL},
    {"response_format",
     "{" U ", 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'n', "
     "'schema': {'type': 'object', 'patternProperties': {'x': {}}}}}}",
     "#/patternProperties"},
};

static void test_chat_refused(void **state)
{
    (void)state;
    check_refused(true, chat_refused, COUNT(chat_refused));
}

static const struct refused response_refused[] = {
    {"input", "{}", "nothing to answer"},
    {"input", "{'input': []}", NULL},
    {"input", "{'input': 5}", NULL},
    {"input[0]", "{'input': ['x']}", NULL},
    {"input[0].role", "{'input': [{'role': 'tool', 'content': 'x'}]}", NULL},
    {"input[0].content", "{'input': [{'role': 'user'}]}", NULL},
    {"input[0].content[0].type",
     "{'input': [{'role': 'user', 'content': [{'type': 'input_image'}]}]}", "input_image"},
    {"input[0].content[0].type",
     "{'input': [{'role': 'user', 'content': [{'type': 'input_file'}]}]}", "input_file"},
    {"input[0].type", "{'input': [{'type': 'web_search_call'}]}", "web_search_call"},
    {"input[0].type", "{'input': [{'type': 'item_reference', 'id': 'x'}]}", "previous_response_id"},
    {"input[0].call_id",
     "{'input': [{'type': 'function_call_output', 'call_id': 'c', 'output': 'x'}]}", NULL},
    {"input[0].name",
     "{'input': [{'type': 'function_call', 'call_id': 'c', 'name': '', 'arguments': ''}]}", NULL},
    {"input",
     "{'input': [{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'arguments': ''}]}",
     "no result"},
    {"input[1]",
     "{'input': [{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'arguments': ''}, "
     "{'role': 'user', 'content': 'x'}]}",
     "no result"},
    {"n", "{'input': 'x', 'n': 2}", NULL},
    {"background", "{'input': 'x', 'background': true, 'store': false}", "store"},
    {"store", "{'input': 'x', 'store': 1}", NULL},
    {"conversation", "{'input': 'x', 'conversation': 'c'}", "previous_response_id"},
    {"prompt", "{'input': 'x', 'prompt': {'id': 'p'}}", NULL},
    {"metadata", "{'input': 'x', 'metadata': 5}", NULL},
    {"metadata.a", "{'input': 'x', 'metadata': {'a': 5}}", NULL},
    {"user", "{'input': 'x', 'user': 5}", NULL},
    {"safety_identifier", "{'input': 'x', 'safety_identifier': ['a']}", NULL},
    {"text.verbosity", "{'input': 'x', 'text': {'verbosity': 'high'}}", NULL},
    {"text.format.type", "{'input': 'x', 'text': {'format': {'type': 'yaml'}}}", NULL},
    {"text.format.schema",
     "{'input': 'x', 'text': {'format': {'type': 'json_schema', 'name': 'n'}}}", NULL},
    {"text.format",
     "{'input': 'x', 'text': {'format': {'type': 'json_schema', 'name': 'n', 'schema': {'not': "
     "{}}}}}",
     "#/not"},
    {"input[0].name",
     "{'input': [{'type': 'function_call', 'call_id': 'c', 'name': 'f', 'namespace': 'a "
     "to=assistant', 'arguments': ''}]}",
     "no name may have"},
    {"input[0].name",
     "{'input': [{'type': 'function_call', 'call_id': 'c', 'name': 'f<|end|>', 'arguments': ''}]}",
     "no name may have"},
    {"tools[0].tools[0].type",
     "{'input': 'x', 'tools': [{'type': 'namespace', 'name': 'n', 'tools': [{'type': "
     "'web_search'}]}]}",
     "web_search"},
    {"tool_choice.type",
     "{'input': 'x', 'tools': [{'type': 'web_search'}], 'tool_choice': {'type': "
     "'web_search'}}",
     "web_search"},
    {"tool_choice", "{'input': 'x', 'tools': [{'type': 'mcp'}], 'tool_choice': 'required'}",
     "no functions"},
    {"tools[1].name",
     "{'input': 'x', 'tools': [{'type': 'custom', 'name': 'f'}, {'type': 'function', 'name': "
     "'f'}]}",
     "another"},
    {"tools[0].name", "{'input': 'x', 'tools': [{'type': 'function'}]}", NULL},
    {"reasoning.effort", "{'input': 'x', 'reasoning': {'effort': 'huge'}}", NULL},
    {"reasoning", "{'input': 'x', 'reasoning': 'high'}", NULL},
    {"top_logprobs", "{'input': 'x', 'top_logprobs': 21}", NULL},
    {"include", "{'input': 'x', 'include': 'all'}", NULL},
    {"previous_response_id", "{'input': 'x', 'previous_response_id': 5}", NULL},
};

static void test_response_refused(void **state)
{
    (void)state;
    check_refused(false, response_refused, COUNT(response_refused));
}

/* Very many of everything: refused, or read in a moment. */
static void test_many(void **state)
{
    (void)state;
    struct api_request *request;
    struct api_fault fault;
    json_t *body = json_of("{" U "}"), *list = json_array();
    for (int i = 0; i < 1000000; i++) json_array_append_new(list, json_string("x"));
    json_object_set(body, "stop", list);
    assert_int_equal(api_read_chat(&reader, body, &fault, &request), SOL_E_ARGUMENT);
    assert_string_equal(fault.param, "stop");
    json_object_del(body, "stop");
    json_object_set(body, "messages", list);
    assert_int_equal(api_read_chat(&reader, body, &fault, &request), SOL_E_ARGUMENT);
    assert_string_equal(fault.param, "messages");
    json_object_del(body, "messages");
    json_object_set(body, "tools", list);
    assert_int_equal(api_read_chat(&reader, body, &fault, &request), SOL_E_ARGUMENT);
    assert_string_equal(fault.param, "tools");
    json_decref(list);
    json_decref(body);
}

/* ---- random JSON ---- */

static json_t *draw(struct rng *rng, int depth)
{
    static const char *const words[] = {
        "messages", "role",   "user",        "assistant",   "content",   "type",
        "function", "tools",  "name",        "parameters",  "input",     "tool_calls",
        "id",       "text",   "call_id",     "reasoning",   "arguments", "function_call",
        "schema",   "format", "json_schema", "tool_choice", "strict",    "tool_call_id",
        "tool",     "output", "output_text", "message",     "n",         "required"};
    json_t *json;
    switch (rng_range(rng, 0, depth > 0 ? 9 : 5)) {
    case 0:
        return json_null();
    case 1:
        return json_integer((json_int_t)rng_next(rng));
    case 2:
        return json_real((double)rng_range(rng, -5, 5) / 3);
    case 3:
        return json_boolean(rng_range(rng, 0, 1));
    case 4:
    case 5:
        return json_string(words[rng_range(rng, 0, COUNT(words) - 1)]);
    case 6:
    case 7:
        json = json_array();
        for (int64_t n = rng_range(rng, 0, 4); n > 0; n--)
            json_array_append_new(json, draw(rng, depth - 1));
        return json;
    default:
        json = json_object();
        for (int64_t n = rng_range(rng, 0, 6); n > 0; n--)
            json_object_set_new(json, words[rng_range(rng, 0, COUNT(words) - 1)],
                                draw(rng, depth - 1));
        return json;
    }
}

/* Puts something random in the place of a random part of `json`. */
static void damage(struct rng *rng, json_t *json)
{
    size_t n = json_is_array(json) ? json_array_size(json) : json_object_size(json);
    if (n == 0) return;
    size_t at = (size_t)rng_range(rng, 0, (int64_t)n - 1);
    void *iter = json_object_iter(json);
    for (size_t i = 0; json_is_object(json) && i < at; i++)
        iter = json_object_iter_next(json, iter);
    json_t *value = json_is_array(json) ? json_array_get(json, at) : json_object_iter_value(iter);
    if ((json_is_array(value) || json_is_object(value)) && rng_range(rng, 0, 4)) {
        damage(rng, value);
    } else if (json_is_array(json)) {
        json_array_set_new(json, at, draw(rng, 3));
    } else {
        json_object_set_new(json, json_object_iter_key(iter), draw(rng, 3));
    }
}

/* Good requests with random damage: read, or refused with a message; nothing else. */
static void test_damaged(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{'messages': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': [{'type': "
        "'text', 'text': 'a'}]}, {'role': 'assistant', 'content': 'look', 'reasoning': 'r', "
        "'tool_calls': [{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': "
        "'{}'}}]}, {'role': 'tool', 'tool_call_id': 'c1', 'content': 'two'}], 'tools': [{'type': "
        "'function', 'function': {'name': 'f', 'strict': true, 'parameters': {'type': 'object', "
        "'properties': {'a': {'type': 'integer'}}}}}], 'tool_choice': {'type': 'function', "
        "'function': {'name': 'f'}}, 'response_format': {'type': 'json_schema', 'json_schema': "
        "{'name': 'n', 'schema': {'type': 'object'}}}, 'stop': ['a'], 'n': 2, 'temperature': 1}",
        "{'instructions': 'I', 'input': [{'role': 'user', 'content': [{'type': 'input_text', "
        "'text': 'q'}]}, {'type': 'reasoning', 'summary': [], 'content': [{'type': "
        "'reasoning_text', 'text': 'T'}]}, {'type': 'function_call', 'call_id': 'c', 'name': 'f', "
        "'arguments': '{}'}, {'type': 'function_call_output', 'call_id': 'c', 'output': 'o'}], "
        "'tools': [{'type': 'namespace', 'name': 'ns', 'tools': [{'type': 'function', 'name': 'f', "
        "'parameters': {}}]}], 'text': {'format': {'type': 'json_object'}}, 'reasoning': "
        "{'effort': 'low'}, 'metadata': {'a': 'b'}, 'include': ['x'], 'store': true}",
    };
    struct rng rng;
    int served = 0;
    rng_seed(&rng, 1717);
    for (int i = 0; i < 20000; i++) {
        bool chat = i % 2 == 0;
        struct api_request *request;
        struct api_fault fault;
        json_t *json = json_of(bodies[!chat]);
        for (int64_t n = rng_range(&rng, 1, 3); n > 0; n--) damage(&rng, json);
        enum sol_status status = read_json(chat, json, NULL, &fault, &request);
        if (status != SOL_OK && (!*fault.param || !*sol_last_error()))
            fail_msg("status %d without a place or a message: %s", status, sol_last_error());
        served += status == SOL_OK;
        json_decref(json); /* the request has its own hold */
        api_request_destroy(request);
    }
    assert_in_range(served, 500, 19500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_messages), cmocka_unit_test(test_response_items),
        cmocka_unit_test(test_history),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_tools),         cmocka_unit_test(test_reasoning_is_remembered),
        cmocka_unit_test(test_date),          cmocka_unit_test(test_input_items),
        cmocka_unit_test(test_chat_refused),  cmocka_unit_test(test_response_refused),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
