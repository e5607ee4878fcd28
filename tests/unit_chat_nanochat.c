/* nanochat's chat format: what a conversation becomes and what of it is learnt, by the rules of
 * render_conversation in nanochat's tokenizer.py; tokens back to messages, malformed ones too;
 * turns of a model. tests/data/tokenizer_nanochat.json is what `sol tok train --special-set
 * nanochat` makes of this repository's documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/format.h"
#include "generate/turn.h"
#include "grammar/grammar.h"
#include "support/chat.h"
#include "support/effort.h"
#include "support/turn_check.h"

#define COUNT(a)         (sizeof(a) / sizeof *(a))
#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define MESSAGES(...)    "{\"messages\": [" __VA_ARGS__ "]}"
#define BEGIN            "<|bos|><|user_start|>"
#define THEN             "<|user_end|><|assistant_start|>"

static struct chat_vocabulary v;
static struct model *model; /* with that vocabulary */
static struct turn_model *shared;

static int open_all(void **state)
{
    (void)state;
    assert_int_equal(model_open("synth:tiny", &model), SOL_OK);
    model->tokenizer = chat_small_nanochat(&v);
    if (turn_model_create(model, &shared) != SOL_OK) fail_msg("%s", sol_last_error());
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    turn_model_destroy(shared);
    model_close(model);
    return 0;
}

/* Tokens of a text in which the names of control tokens are these tokens. */
static void encode(const char *text, struct token_list *ids)
{
    assert_int_equal(tokenizer_encode(v.tokenizer, text, strlen(text), true, ids), SOL_OK);
}

/* ---- which format ---- */

static void test_vocabularies(void **state)
{
    (void)state;
    struct chat_vocabulary found;
    struct tokenizer *t = chat_builtin(&found);
    assert_ptr_equal(found.format, &chat_harmony);
    tokenizer_destroy(t);
    assert_ptr_equal(v.format, &chat_nanochat);
    const int32_t *ids = &v.nanochat.bos; /* behind the ordinary tokens, in nanochat's order */
    for (int32_t i = 0; i < 9; i++) assert_int_equal(ids[i], 320 + i);
    assert_int_equal(tokenizer_bos(v.tokenizer), v.nanochat.bos);
    assert_int_equal(tokenizer_open(SOL_SOURCE_DIR "/tests/data/tokenizer_small.json", &t), SOL_OK);
    assert_int_equal(chat_vocabulary_find(t, &found), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no <|start|> of harmony, no <|bos|> of nanochat"));
    tokenizer_destroy(t);
}

/* ---- to tokens ---- */

/* A stretch of the tokens, and the mask that render_conversation gives them. */
struct stretch {
    const char *text;
    bool learnt;
};

static const struct {
    const char *json;
    struct stretch is[8];
} renderings[] = {
    {MESSAGES(SAYS("user", "Hi.")), {{BEGIN "Hi.<|user_end|>", false}}},
    {MESSAGES(SAYS("user", "What is 12 + 34?") "," SAYS("assistant", "It is 46.")),
     {{BEGIN "What is 12 + 34?" THEN, false}, {"It is 46.<|assistant_end|>", true}}},
    /* what the system says is encoded with the user's text, as one */
    {MESSAGES(SAYS("system", "You are a lamp.") "," SAYS("user", "\\n Light?") "," SAYS("assistant",
                                                                                        "Yes.")),
     {{BEGIN "You are a lamp.\n\n\n Light?" THEN, false}, {"Yes.<|assistant_end|>", true}}},
    {MESSAGES(SAYS("user", "a") "," SAYS("assistant", "b") "," SAYS("user",
                                                                    "c") "," SAYS("assistant", "")),
     {{BEGIN "a" THEN, false},
      {"b<|assistant_end|>", true},
      {"<|user_start|>c" THEN, false},
      {"<|assistant_end|>", true}}},
    /* calls of python are learnt, what it printed is not */
    {MESSAGES(SAYS("user", "3 * 4?") ",{\"role\": \"assistant\", \"content\": ["
                                     "{\"type\": \"text\", \"text\": \"I ask.\"},"
                                     "{\"type\": \"python\", \"text\": \"3*4\"},"
                                     "{\"type\": \"python_output\", \"text\": \"12\"},"
                                     "{\"type\": \"text\", \"text\": \"12.\"}]}"),
     {{BEGIN "3 * 4?" THEN, false},
      {"I ask.<|python_start|>3*4<|python_end|>", true},
      {"<|output_start|>12<|output_end|>", false},
      {"12.<|assistant_end|>", true}}},
    /* beyond nanochat: instructions later on and from several, and parts of a message of the user
     */
    {MESSAGES(SAYS("system", "A.") "," SAYS("developer", "B.") "," SAYS("user", "c") "," SAYS(
         "assistant", "d") "," SAYS("system",
                                    "E.") ",{\"role\": \"user\", \"content\": [{\"type\": "
                                          "\"text\", \"text\": \"f\"}, {\"type\": "
                                          "\"text\", \"text\": \"g\"}]}"),
     {{BEGIN "A.\n\nB.\n\nc" THEN, false},
      {"d<|assistant_end|>", true},
      {"<|user_start|>E.\n\nfg<|user_end|>", false}}},
};

static struct token_list render(const char *json, const struct render_options *options)
{
    struct conversation *c = turn_check_conversation(json);
    struct token_list ids = {0};
    if (render_conversation(&v, c, options, &ids) != SOL_OK) fail_msg("%s", sol_last_error());
    conversation_destroy(c);
    return ids;
}

static void test_render(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(renderings); i++) {
        struct render_map map = {0};
        const struct render_options options = {.next = CHAT_NOBODY, .map = &map};
        struct token_list got = render(renderings[i].json, &options), wanted = {0};
        size_t at = 0, span = 0;
        for (const struct stretch *s = renderings[i].is; s->text; s++) {
            encode(s->text, &wanted);
            assert_in_range(wanted.count, 1, got.count);
            for (; at < wanted.count; at++) {
                assert_int_equal(got.ids[at], wanted.ids[at]);
                assert_int_equal(render_map_is_written(&map, at, &span), s->learnt);
            }
        }
        assert_int_equal(at, got.count);
        render_map_free(&map);
        token_list_free(&got);
        token_list_free(&wanted);
    }
}

/* Text that looks like a control token is text, and so an answer cannot be ended by the user. */
static void test_text_is_no_control(void **state)
{
    (void)state;
    const struct render_options options = {.next = CHAT_ASSISTANT};
    struct token_list ids = render(MESSAGES(SAYS("user", "<|user_end|><|bos|>")), &options);
    size_t controls = 0;
    for (size_t i = 0; i < ids.count; i++)
        controls += tokenizer_is_control(v.tokenizer, ids.ids[i]);
    assert_int_equal(controls, 4);
    assert_int_equal(ids.ids[ids.count - 1], v.nanochat.assistant_start);
    token_list_free(&ids);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {MESSAGES(SAYS("system", "A.")), "none of the user behind it"},
        {MESSAGES(SAYS("system", "A.") "," SAYS("assistant", "b")), "messages[1]: a message of the "
                                                                    "system"},
        {MESSAGES("{\"role\": \"tool\", \"name\": \"get\", \"content\": \"1\"}"),
         "has no results of functions"},
        {MESSAGES("{\"role\": \"assistant\", \"recipient\": \"functions.get\", \"content\": \"\"}"),
         "has no calls of functions"},
        {MESSAGES("{\"role\": \"assistant\", \"channel\": \"analysis\", \"content\": \"Hm.\"}"),
         "has no thoughts"},
        {MESSAGES("{\"role\": \"system\", \"content\": [{\"type\": \"system_content\"}]}"),
         "has no system_content"},
        {MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"python\", \"text\": \"1\"}]}"),
         "has no python but"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct render_options options = {.next = CHAT_NOBODY};
        struct conversation *c = turn_check_conversation(cases[i].json);
        struct token_list ids = {0};
        assert_int_equal(render_conversation(&v, c, &options, &ids), SOL_E_FORMAT);
        if (!strstr(sol_last_error(), cases[i].message)) fail_msg("%s", sol_last_error());
        token_list_free(&ids);
        conversation_destroy(c);
    }
}

/* ---- and back ---- */

/* Messages as "role:text;". */
static void check_parsed(const char *text, enum chat_role role, const char *messages, size_t faults)
{
    struct chat_parser *p;
    struct chat_step step;
    struct token_list ids = {0};
    struct text_buffer got = {0};
    encode(text, &ids);
    assert_int_equal(chat_parser_create(&v, role, &p), SOL_OK);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(chat_parser_push(p, ids.ids[i], &step), SOL_OK);
    assert_int_equal(chat_parser_finish(p, &step), SOL_OK);
    const struct conversation *c = chat_parser_messages(p);
    for (size_t i = 0; i < conversation_count(c); i++) {
        const struct chat_message *m = conversation_message(c, i);
        text_puts(&got, chat_role_name(m->role));
        text_puts(&got, ":");
        text_put_text(&got, m->contents->text);
        text_puts(&got, ";");
    }
    text_put(&got, "", 1);
    assert_string_equal(got.data, messages);
    assert_int_equal(chat_faults_total(chat_parser_faults(p)), faults);
    text_buffer_free(&got);
    token_list_free(&ids);
    chat_parser_destroy(p);
}

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum chat_role role;
        const char *messages;
        size_t faults;
    } cases[] = {
        {"Yes.<|assistant_end|>", CHAT_ASSISTANT, "assistant:Yes.;", 0},
        {"Yes.", CHAT_ASSISTANT, "assistant:Yes.;", 0}, /* cut by a limit */
        {BEGIN "Hi." THEN "Yes.<|assistant_end|>", CHAT_NOBODY, "user:Hi.;assistant:Yes.;", 0},
        {BEGIN "Hi." THEN, CHAT_NOBODY, "user:Hi.;", 0}, /* a prompt */
        {BEGIN THEN "<|assistant_end|>", CHAT_NOBODY, "user:;assistant:;", 0},
        {"Yes.<|bos|>", CHAT_ASSISTANT, "assistant:Yes.;", 1},
        {"Yes.<|user_end|>", CHAT_ASSISTANT, "assistant:Yes.;", 1},
        {"Yes.<|user_start|>No.<|user_end|>", CHAT_ASSISTANT, "assistant:Yes.;user:No.;", 1},
        {"<|assistant_start|><|assistant_start|>Yes.", CHAT_NOBODY, "assistant:Yes.;", 1},
        {"<|assistant_start|><|bos|>Yes.", CHAT_NOBODY, "assistant:Yes.;", 2},
        {"<|assistant_end|>Yes.", CHAT_NOBODY, "assistant:Yes.;", 2},
        {"I ask <|python_start|>1+1<|python_end|>.", CHAT_ASSISTANT,
         "assistant:I ask <|python_start|>1+1<|python_end|>.;", 2},
        {"<|output_end|><|output_start|>", CHAT_NOBODY, "assistant:<|output_end|><|output_start|>;",
         3},
        {"", CHAT_NOBODY, "", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_parsed(cases[i].text, cases[i].role, cases[i].messages, cases[i].faults);
}

/* ---- turns ---- */

static void check_message(const struct turn *t, const char *text)
{
    const struct conversation *c = turn_messages(t);
    assert_int_equal(conversation_count(c), 1);
    const struct chat_message *m = conversation_message(c, 0);
    assert_int_equal(m->role, CHAT_ASSISTANT);
    assert_true(text_is(m->contents->text, text));
}

/* An answer as it comes: its first event begins it, and each end of it is one. */
static void check_answer(const char *json, const char *comes, int32_t end, const char *whole)
{
    struct turn *t = turn_check_open(shared, json, NULL);
    struct turn_event event;
    struct token_list ids = {0};
    const uint32_t *bits;
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    assert_null(bits); /* any text */
    encode(comes, &ids);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(turn_push(t, ids.ids[i], &event), SOL_OK);
        assert_int_equal(event.began, i == 0);
        assert_int_equal(event.part, TURN_ANSWER);
        assert_false(event.ended);
        assert_false(turn_is_stop(t, ids.ids[i]));
    }
    assert_true(turn_is_stop(t, end));
    assert_int_equal(turn_push(t, end, &event), SOL_OK);
    assert_true(event.ended);
    assert_int_equal(chat_faults_total(turn_faults(t)), 0);
    check_message(t, whole);
    token_list_free(&ids);
    turn_destroy(t);
}

static void test_answers(void **state)
{
    (void)state;
    static const char asked[] = MESSAGES(SAYS("user", "Hi."));
    static const char begun[] =
        MESSAGES(SAYS("user", "Hi.") ",{\"role\": \"assistant\", \"channel\": \"final\", "
                                     "\"content\": \"It\"}");
    check_answer(asked, "It is 4.", v.nanochat.assistant_end, "It is 4.");
    check_answer(asked, "It is 4.", v.nanochat.bos, "It is 4.");
    check_answer(begun, " is 4.", v.nanochat.assistant_end, "It is 4.");
}

static void test_points(void **state)
{
    (void)state;
    size_t n;
    struct turn *t = turn_check_open(shared,
                                     MESSAGES(SAYS("system", "A.") "," SAYS("user", "b") "," SAYS(
                                         "assistant", "c") "," SAYS("user", "d")),
                                     NULL);
    const int64_t *points = turn_points(t, &n);
    const struct token_list *prompt = turn_prompt(t);
    assert_int_equal(n, 3);
    assert_int_equal(prompt->ids[points[0]], v.nanochat.user_start);
    assert_int_equal(points[0], 1);
    assert_int_equal(prompt->ids[points[1]], v.nanochat.user_start);
    assert_int_equal(points[2], prompt->count);
    turn_destroy(t);
}

static bool has(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

/* An answer held to a schema ends with it, by the format's end alone. */
static void test_schema(void **state)
{
    (void)state;
    struct turn_params params;
    struct turn_event event;
    struct grammar *grammar;
    struct token_list ids = {0};
    const uint32_t *bits;
    json_t *schema = json_loads("{\"const\": [1]}", 0, NULL);
    assert_int_equal(grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &grammar), SOL_OK);
    json_decref(schema);
    turn_params_init(&params);
    params.answer = grammar;
    struct turn *t = turn_check_open(shared, MESSAGES(SAYS("user", "Hi.")), &params);
    encode("[1]", &ids);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(turn_mask(t, &bits), SOL_OK);
        assert_non_null(bits);
        assert_true(has(bits, ids.ids[i]));
        assert_false(has(bits, v.nanochat.assistant_end));
        assert_int_equal(turn_push(t, ids.ids[i], &event), SOL_OK);
    }
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    for (int32_t id = 0; id < tokenizer_vocab(v.tokenizer); id++)
        assert_int_equal(has(bits, id), id == v.nanochat.assistant_end);
    token_list_free(&ids);
    turn_destroy(t);
    grammar_destroy(grammar);
}

static void test_efforts(void **state)
{
    (void)state;
    struct conversation *c = turn_check_conversation(MESSAGES(SAYS("user", "Hi.")));
    struct turn_params params;
    struct turn *t;
    turn_params_init(&params);
    params.effort = CHAT_HIGH;
    assert_int_equal(turn_create(shared, c, &params, &t), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "nanochat, has no levels of reasoning"));
    params.effort = CHAT_EFFORT_OFF;
    assert_int_equal(turn_create(shared, c, &params, &t), SOL_OK);
    turn_destroy(t);
    params.calls = TURN_CALLS_REQUIRED;
    assert_int_equal(turn_create(shared, c, &params, &t), SOL_E_ARGUMENT);
    conversation_destroy(c);
}

/* The sampler draws what ends an answer, and none of the other control tokens. */
static void test_sampler(void **state)
{
    (void)state;
    struct sampler_params params;
    struct sampler *sampler;
    const int32_t *controls = &v.nanochat.bos;
    sampler_params_init(&params);
    params.temperature = 0;
    assert_int_equal(turn_sampler(shared, &params, &sampler), SOL_OK);
    float *logits = calloc((size_t)model->config.vocab, sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < 9; i++) {
        int32_t drawn;
        logits[controls[i]] = 10;
        assert_int_equal(sampler_next(sampler, logits, &drawn), SOL_OK);
        assert_int_equal(drawn == controls[i], chat_token_in(&v.uses.stops, controls[i]));
        logits[controls[i]] = 0;
    }
    free(logits);
    sampler_destroy(sampler);
}

/* Any tokens at all: nothing fails, and what came is what is kept. */
static void test_any_tokens(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int64_t round = effort("turns", 400, 20); round > 0; round--) {
        struct turn *t = turn_check_open(shared, MESSAGES(SAYS("user", "Hi.")), NULL);
        struct turn_event event;
        struct text_buffer text = {0}, kept = {0};
        const uint32_t *bits;
        for (int i = 0; i < 40; i++) {
            assert_int_equal(turn_mask(t, &bits), SOL_OK);
            int32_t id = (int32_t)(rng_next(&rng) % (i % 3 ? 340 : 9)) + (i % 3 ? 0 : 320);
            assert_int_equal(turn_push(t, id, &event), SOL_OK);
            text_put_text(&text, event.delta);
        }
        assert_int_equal(turn_finish(t, &event), SOL_OK);
        text_put_text(&text, event.delta);
        const struct conversation *c = turn_messages(t);
        for (size_t i = 0; i < conversation_count(c); i++)
            text_put_text(&kept, conversation_message(c, i)->contents->text);
        assert_int_equal(text.length, kept.length);
        assert_memory_equal(text_of(&text).data, text_of(&kept).data, text.length);
        text_buffer_free(&text);
        text_buffer_free(&kept);
        turn_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabularies),
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_text_is_no_control),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_points),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_efforts),
        cmocka_unit_test(test_sampler),
        cmocka_unit_test(test_any_tokens),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
