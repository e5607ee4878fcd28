/* Chats by the public API: what comes in pieces is what comes whole, functions and schemas are kept
 * to, what is saved goes on as if nothing had been, and what callers get wrong changes nothing. */
#include "sol/chat.h"

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

#include "driver/fake_cuda.h"
#include "support/effort.h"
#include "support/fail_calls.h"

static struct sol_model *model;
static char path[] = "/tmp/sol-chat-XXXXXX";

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct sol_chat_params usual(void)
{
    struct sol_chat_params p;
    sol_chat_params_init(&p);
    p.context = 1024;
    p.threads = 1;
    p.date = "2026-11-24";
    p.thinking = 10;
    p.limit = 60;
    p.sampler.seed = 3;
    return p;
}

/* Any legal token is as likely as another. */
static struct sol_chat_params hot(void)
{
    struct sol_chat_params p = usual();
    p.sampler.temperature = 1e6;
    return p;
}

static struct sol_chat *open_chat(const struct sol_chat_params *params)
{
    struct sol_chat_params p = usual();
    struct sol_chat *chat;
    must(sol_chat_create(model, params ? params : &p, &chat));
    return chat;
}

/* ---- pieces ---- */

struct heard {
    char text[4][4096]; /* of each part */
    char name[80];
    int begins[4], ends[4], pieces, stop_after;
};

static bool hear(void *arg, const struct sol_chat_piece *piece)
{
    struct heard *h = arg;
    assert_true(piece->begins || piece->ends || piece->text[0]);
    assert_int_equal(piece->name != NULL, piece->part == SOL_CHAT_CALL);
    if (piece->name) snprintf(h->name, sizeof h->name, "%s", piece->name);
    if (piece->begins && h->begins[piece->part]) strcat(h->text[piece->part], "\n\n");
    strncat(h->text[piece->part], piece->text,
            sizeof h->text[0] - 1 - strlen(h->text[piece->part]));
    h->begins[piece->part] += piece->begins;
    h->ends[piece->part] += piece->ends;
    return ++h->pieces != h->stop_after;
}

/* A reply that is the same whole and in pieces. */
static struct sol_chat_reply listen(struct sol_chat *chat, int stop_after)
{
    struct sol_chat_reply reply;
    struct heard *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->stop_after = stop_after;
    must(sol_chat_reply(chat, hear, h, &reply));
    assert_string_equal(reply.reasoning, h->text[SOL_CHAT_REASONING]);
    if (!h->begins[SOL_CHAT_PREAMBLE]) assert_string_equal(reply.answer, h->text[SOL_CHAT_ANSWER]);
    for (int i = 0; i < 4 && !stop_after; i++) assert_int_equal(h->begins[i], h->ends[i]);
    assert_int_equal(reply.function != NULL, reply.end == SOL_CHAT_CALLED);
    assert_int_equal(reply.arguments != NULL, reply.end == SOL_CHAT_CALLED);
    if (reply.function) {
        assert_string_equal(reply.function, h->name);
        assert_string_equal(reply.arguments, h->text[SOL_CHAT_CALL]);
    }
    assert_true(reply.tokens > 0 && reply.tokens >= reply.reasoning_tokens);
    assert_true(reply.cached_tokens < reply.prompt_tokens);
    assert_int_equal(sol_chat_position(chat), reply.prompt_tokens + reply.tokens - 1);
    free(h);
    return reply;
}

static void test_turns(void **state)
{
    (void)state;
    struct sol_chat_params p = hot();
    struct sol_chat *chat = open_chat(&p);
    int64_t before = 0, thought = 0;
    for (int i = 0; i < 6; i++) {
        must(sol_chat_add_user(chat, i ? "And then?" : "Who is the old man?"));
        struct sol_chat_reply r = listen(chat, 0);
        assert_true(r.end == SOL_CHAT_ANSWERED || r.end == SOL_CHAT_LENGTH);
        assert_true(r.reasoning_tokens <= 10);
        assert_int_equal(r.reasoning_tokens > 0, strlen(r.reasoning) > 0);
        assert_int_equal(r.cached_tokens > 0, i > 0);
        assert_true(r.prompt_tokens > before);
        before = r.prompt_tokens;
        thought += r.reasoning_tokens;
    }
    assert_true(thought > 0);
    must(sol_chat_clear(chat));
    assert_int_equal(sol_chat_reply(chat, NULL, NULL, NULL), SOL_E_ARGUMENT);
    must(sol_chat_add_user(chat, "Who is the old man?"));
    struct sol_chat_reply r = listen(chat, 0);
    assert_true(r.prompt_tokens < before);
    sol_chat_destroy(chat);
}

static void test_effort(void **state)
{
    (void)state;
    struct sol_chat_params p = hot();
    p.effort = SOL_EFFORT_NONE;
    p.system = "You like the sea.";
    struct sol_chat *chat = open_chat(&p);
    must(sol_chat_add_user(chat, "Hi."));
    struct sol_chat_reply r = listen(chat, 0);
    assert_string_equal(r.reasoning, "");
    assert_int_equal(r.reasoning_tokens, 0);
    assert_true(strlen(r.answer) > 0);
    must(sol_chat_set_effort(chat, SOL_EFFORT_HIGH));
    for (int i = 0; i < 10 && !r.reasoning[0]; i++) {
        must(sol_chat_add_user(chat, "Hm."));
        r = listen(chat, 0);
    }
    assert_true(r.reasoning_tokens > 0);
    assert_int_equal(sol_chat_set_effort(chat, (enum sol_effort)9), SOL_E_ARGUMENT);
    sol_chat_destroy(chat);
}

static void test_ends(void **state)
{
    (void)state;
    struct sol_chat_params p = hot();
    p.effort = SOL_EFFORT_NONE; /* all tokens are of the answer */
    p.limit = 5;
    struct sol_chat *chat = open_chat(&p);
    must(sol_chat_add_user(chat, "Tell me a story."));
    struct sol_chat_reply r = listen(chat, 0);
    assert_int_equal(r.end, SOL_CHAT_LENGTH);
    assert_int_equal(r.tokens, 5);
    assert_int_equal(sol_chat_reply(chat, NULL, NULL, NULL), SOL_E_ARGUMENT); /* nobody asked */
    must(sol_chat_add_user(chat, "Go on."));
    must(sol_chat_reply(chat, NULL, NULL, NULL));
    sol_chat_destroy(chat);

    p = hot();
    chat = open_chat(&p);
    must(sol_chat_add_user(chat, "Tell me a story."));
    r = listen(chat, 4);
    assert_int_equal(r.end, SOL_CHAT_STOPPED);
    must(sol_chat_add_user(chat, "Another one."));
    r = listen(chat, 0);
    assert_true(r.cached_tokens > 0);
    const int64_t needed = r.prompt_tokens;
    sol_chat_destroy(chat);

    p.context = needed;
    chat = open_chat(&p);
    must(sol_chat_add_user(chat, "Tell me a story."));
    r = listen(chat, 0);
    assert_int_equal(r.end, SOL_CHAT_FULL);
    char *many = malloc(9000);
    assert_non_null(many);
    memset(many, 'a', 8999);
    many[8999] = 0;
    must(sol_chat_add_user(chat, many));
    assert_int_equal(sol_chat_reply(chat, NULL, NULL, &r), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "does not fit the context"));
    must(sol_chat_clear(chat));
    must(sol_chat_add_user(chat, "Hm."));
    must(sol_chat_reply(chat, NULL, NULL, &r));
    free(many);
    sol_chat_destroy(chat);
}

/* ---- functions and schemas ---- */

static const char strict[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Oslo\", \"Rome\"]}}, "
    "\"required\": [\"city\"], \"additionalProperties\": false}";

static void check_message(const struct sol_chat *chat, size_t n, const char *role,
                          enum sol_chat_part part, const char *function, const char *text)
{
    struct sol_chat_message m;
    must(sol_chat_get(chat, n, &m));
    assert_string_equal(m.role, role);
    assert_int_equal(m.part, part);
    assert_int_equal(m.function != NULL, function != NULL);
    if (function) assert_string_equal(m.function, function);
    assert_string_equal(m.text, text);
}

static void test_functions(void **state)
{
    (void)state;
    struct sol_chat_params p = hot();
    int calls = 0;
    p.context = 4096;
    p.effort = SOL_EFFORT_NONE;
    struct sol_chat *chat = open_chat(&p);
    must(sol_chat_add_function(chat, "weather", "How it is.", strict, true));
    must(sol_chat_add_function(chat, "time", NULL, NULL, false));
    for (int i = 0; i < 30 && calls < 3; i++) {
        must(sol_chat_add_user(chat, "What is the weather in Oslo?"));
        struct sol_chat_reply r = listen(chat, 0);
        if (r.end != SOL_CHAT_CALLED || strcmp(r.function, "weather") != 0) continue;
        json_t *json = json_loads(r.arguments, 0, NULL);
        const char *city = json_string_value(json_object_get(json, "city"));
        assert_true(city && (!strcmp(city, "Oslo") || !strcmp(city, "Rome")));
        json_decref(json);
        must(sol_chat_add_result(chat, "weather", "{\"sun\": true}"));
        check_message(chat, 0, "user", SOL_CHAT_REASONING, NULL, "What is the weather in Oslo?");
        size_t n = sol_chat_count(chat);
        check_message(chat, n - 2, "assistant", SOL_CHAT_CALL, "weather", r.arguments);
        check_message(chat, n - 1, "tool", SOL_CHAT_REASONING, "weather", "{\"sun\": true}");
        r = listen(chat, 0);
        assert_true(r.cached_tokens > 0);
        calls++;
    }
    assert_int_equal(calls, 3);
    sol_chat_destroy(chat);
}

static void test_schema(void **state)
{
    (void)state;
    struct sol_chat_params p = hot();
    p.limit = 400;
    int64_t told = 0;
    for (int late = 0; late < 2; late++) {
        struct sol_chat *chat = open_chat(&p);
        if (!late) must(sol_chat_set_answer(chat, strict));
        must(sol_chat_add_user(chat, "Where?"));
        if (late) must(sol_chat_set_answer(chat, strict));
        struct sol_chat_reply r = listen(chat, 0);
        assert_int_equal(r.end, SOL_CHAT_ANSWERED);
        json_t *json = json_loads(r.answer, 0, NULL);
        assert_true(json_is_string(json_object_get(json, "city")));
        json_decref(json);
        if (late) assert_true(r.prompt_tokens < told); /* the model did not see the schema */
        told = r.prompt_tokens;
        assert_int_equal(sol_chat_set_answer(chat, "{\"type\": 1}"), SOL_E_FORMAT);
        must(sol_chat_set_answer(chat, NULL));
        must(sol_chat_add_user(chat, "Hm."));
        r = listen(chat, 0);
        json = json_loads(r.answer, 0, NULL);
        assert_null(json);
        sol_chat_destroy(chat);
    }
}

/* ---- files ---- */

/* Another chat goes on with the very tokens, in the default numerics. */
static void test_saved(void **state)
{
    (void)state;
    struct sol_chat_params p = usual();
    p.system = "You like the sea.";
    struct sol_chat *first = open_chat(&p), *second = open_chat(NULL);
    must(sol_chat_add_function(first, "time", "Tells the time.", NULL, false));
    must(sol_chat_add_user(first, "Who are you?"));
    must(sol_chat_reply(first, NULL, NULL, NULL));
    must(sol_chat_save(first, path));
    must(sol_chat_add_user(second, "This goes."));
    must(sol_chat_reply(second, NULL, NULL, NULL));
    must(sol_chat_load(second, path));
    assert_int_equal(sol_chat_position(second), sol_chat_position(first));
    const size_t n = sol_chat_count(first);
    assert_int_equal(sol_chat_count(second), n);
    for (size_t i = 0; i < n; i++) {
        struct sol_chat_message m;
        must(sol_chat_get(first, i, &m));
        check_message(second, i, m.role, m.part, m.function, m.text);
    }
    for (int i = 0; i < 2; i++) {
        must(sol_chat_add_user(first, "And the sea?"));
        must(sol_chat_add_user(second, "And the sea?"));
        struct sol_chat_reply a = listen(first, 0), b = listen(second, 0);
        assert_string_equal(a.reasoning, b.reasoning);
        assert_string_equal(a.answer, b.answer);
        assert_int_equal(a.tokens, b.tokens);
        assert_int_equal(a.cached_tokens, b.cached_tokens);
        assert_int_equal(a.prompt_tokens, b.prompt_tokens);
    }
    assert_int_equal(sol_chat_load(second, "/nonexistent"), SOL_E_IO);
    must(sol_chat_add_user(second, "Still there?"));
    struct sol_chat_reply r = listen(second, 0);
    assert_true(r.cached_tokens > 0);
    must(truncate(path, 5000) == 0 ? SOL_OK : SOL_E_IO);
    assert_int_equal(sol_chat_load(second, path), SOL_E_FORMAT);
    sol_chat_destroy(first);
    sol_chat_destroy(second);
}

/* ---- what callers get wrong ---- */

static void wrong_params(enum sol_status wanted, struct sol_model *of,
                         const struct sol_chat_params *p)
{
    struct sol_chat *chat = (struct sol_chat *)&chat;
    assert_int_equal(sol_chat_create(of, p, &chat), wanted);
    assert_null(chat);
}

static void test_wrong(void **state)
{
    (void)state;
    struct sol_chat_params p = usual();
    struct sol_model *mute;
    must(sol_model_open("synth:tiny", NULL, &mute));
    wrong_params(SOL_E_UNSUPPORTED, mute, &p);
    sol_model_close(mute);
    p.context = 0;
    wrong_params(SOL_E_ARGUMENT, model, &p);
    p = usual(), p.context = 1 << 24;
    wrong_params(SOL_E_ARGUMENT, model, &p);
    p = usual(), p.effort = (enum sol_effort) - 1;
    wrong_params(SOL_E_ARGUMENT, model, &p);
    p = usual(), p.limit = -1;
    wrong_params(SOL_E_ARGUMENT, model, &p);
    p = usual(), p.sampler.temperature = -1;
    wrong_params(SOL_E_ARGUMENT, model, &p);
    p = usual(), p.system = "\xff";
    wrong_params(SOL_E_ARGUMENT, model, &p);

    struct sol_chat *chat = open_chat(NULL);
    struct sol_chat_message message;
    char name[66];
    assert_int_equal(sol_chat_count(chat), 0);
    assert_int_equal(sol_chat_get(chat, 0, &message), SOL_E_ARGUMENT);
    memset(name, 'a', 65);
    name[65] = 0;
    assert_int_equal(sol_chat_reply(chat, NULL, NULL, NULL), SOL_E_ARGUMENT);
    must(sol_chat_save(chat, path)); /* which writes what stands before all messages */
    assert_int_equal(sol_chat_reply(chat, NULL, NULL, NULL), SOL_E_ARGUMENT);
    must(sol_chat_clear(chat));
    assert_int_equal(sol_chat_add_user(chat, NULL), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_user(chat, "a\xc3"), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_function(chat, NULL, NULL, NULL, false), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_function(chat, "", NULL, NULL, false), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_function(chat, "a b", NULL, NULL, false), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_function(chat, name, NULL, NULL, false), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_function(chat, "f", NULL, "{", false), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "function 'f'"));
    assert_int_equal(sol_chat_add_function(chat, "f", NULL, "[]", false), SOL_E_FORMAT);
    assert_int_equal(sol_chat_add_function(chat, "f", NULL, "{\"not\": {}}", true),
                     SOL_E_UNSUPPORTED);
    must(sol_chat_add_function(chat, "f", NULL, "{\"not\": {}}", false));
    assert_int_equal(sol_chat_add_function(chat, "f", NULL, NULL, false), SOL_E_ARGUMENT);
    assert_int_equal(sol_chat_add_result(chat, "a/b", ""), SOL_E_ARGUMENT);
    must(sol_chat_add_user(chat, ""));
    assert_int_equal(sol_chat_add_function(chat, "g", NULL, NULL, false), SOL_E_ARGUMENT);
    listen(chat, 0);
    assert_int_equal(sol_chat_save(chat, "/nonexistent/file"), SOL_E_IO);
    sol_chat_destroy(chat);
    sol_chat_destroy(NULL);
}

/* ---- a GPU that fails ---- */

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)256 << 20};

static enum sol_status gpu_scenario(void)
{
    struct sol_model_params where;
    struct sol_model *there;
    struct sol_chat *chat = NULL;
    struct sol_chat_params p = usual();
    p.context = 300;
    p.limit = 3;
    sol_model_params_init(&where);
    where.backend = "cuda";
    enum sol_status status = sol_model_open(NULL, &where, &there);
    if (status == SOL_OK) status = sol_chat_create(there, &p, &chat);
    if (status == SOL_OK) status = sol_chat_add_user(chat, "Hi.");
    if (status == SOL_OK) status = sol_chat_reply(chat, NULL, NULL, NULL);
    if (status == SOL_OK) status = sol_chat_save(chat, path);
    if (status == SOL_OK) status = sol_chat_load(chat, path);
    sol_chat_destroy(chat);
    sol_model_close(there);
    return status;
}

static void test_gpu_failures(void **state)
{
    (void)state;
    fail_each_call(&hopper, gpu_scenario, effort("failing calls", 20, 8));
}

static int open_all(void **state)
{
    (void)state;
    int file = mkstemp(path);
    if (file < 0) return -1;
    close(file);
    return sol_model_open(NULL, NULL, &model);
}

static int close_all(void **state)
{
    (void)state;
    sol_model_close(model);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),  cmocka_unit_test(test_effort),
        cmocka_unit_test(test_ends),   cmocka_unit_test(test_functions),
        cmocka_unit_test(test_schema), cmocka_unit_test(test_saved),
        cmocka_unit_test(test_wrong),  cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
