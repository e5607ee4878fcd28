/* Turns of the assistant: what may come at each place, what came, and how a turn ends. Tokens that
 * are drawn from the masks at random stand for any model. */
#include "generate/turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/json.h"
#include "grammar/grammar.h"
#include "support/effort.h"
#include "support/turn_check.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define SYSTEM                                                                                     \
    "{\"role\": \"system\", \"content\": [{\"type\": \"system_content\", \"reasoning_effort\": "   \
    "\"Medium\", \"conversation_start_date\": \"2026-11-24\"}]}"
#define TOOLS                                                                                      \
    "{\"role\": \"developer\", \"content\": [{\"type\": \"developer_content\", \"instructions\": " \
    "\"Be brief.\", \"tools\": {\"functions\": {\"name\": \"functions\", \"description\": null, "  \
    "\"tools\": [{\"name\": \"get\", \"description\": \"Gets.\"}, {\"name\": \"get_all\", "        \
    "\"description\": \"Gets all.\"}]}}}]}"
#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define ON(channel, text)                                                                          \
    "{\"role\": \"assistant\", \"channel\": \"" channel "\", \"content\": \"" text "\"}"
#define MESSAGES(...) "{\"messages\": [" __VA_ARGS__ "]}"

static const char plain[] = MESSAGES(SYSTEM "," SAYS("user", "Hi."));
static const char tools[] = MESSAGES(SYSTEM "," TOOLS "," SAYS("user", "Get it."));
static const char begun[] =
    MESSAGES(SYSTEM "," SAYS("user", "Hi.") "," ON("final", "{\\\"a\\\": "));

static struct model *model;
static struct turn_model *shared;
static const struct chat_vocabulary *v;
static struct grammar *grammar; /* {"a": a whole number or null} */

static int open_all(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": [\"integer\", \"null\"]}}, "
        "\"required\": [\"a\"], \"additionalProperties\": false}";
    json_t *json = json_loads(schema, 0, NULL);
    assert_int_equal(model_open(NULL, &model), SOL_OK);
    assert_int_equal(turn_model_create(model, &shared), SOL_OK);
    assert_int_equal(grammar_from_schema(json, GRAMMAR_SPACE_ONE, &grammar), SOL_OK);
    json_decref(json);
    v = turn_model_vocabulary(shared);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    grammar_destroy(grammar);
    turn_model_destroy(shared);
    model_close(model);
    return 0;
}

/* ---- prompts ---- */

/* The prompt as text, with the control tokens written out, and '^' where a point is. */
static char *prompt_text(const struct turn *t)
{
    static char out[1 << 14];
    size_t n, at = 0, length = 0;
    const int64_t *points = turn_points(t, &n);
    const struct token_list *prompt = turn_prompt(t);
    for (size_t i = 0; i <= prompt->count; i++) {
        if (at < n && points[at] == (int64_t)i) {
            out[length++] = '^';
            at++;
        }
        if (i == prompt->count) break;
        struct token_bytes bytes = tokenizer_bytes(v->tokenizer, prompt->ids[i]);
        memcpy(out + length, bytes.data, bytes.length);
        length += bytes.length;
    }
    assert_int_equal(at, n);
    out[length] = 0;
    return out;
}

static void check_prompt(const char *json, const struct turn_params *params, const char *ends)
{
    struct turn *t = turn_check_open(shared, json, params);
    const char *text = prompt_text(t);
    if (strlen(text) < strlen(ends) || strcmp(text + strlen(text) - strlen(ends), ends) != 0)
        fail_msg("%s\ndoes not end in\n%s", text, ends);
    turn_destroy(t);
}

static void test_prompts(void **state)
{
    (void)state;
    struct turn_params p;
    turn_params_init(&p);
    check_prompt(plain, NULL, "<|end|>^<|start|>user<|message|>Hi.<|end|><|start|>assistant^");
    check_prompt(tools, NULL,
                 "any;\n\n} // namespace functions<|end|>^<|start|>user<|message|>Get "
                 "it.<|end|><|start|>assistant^");
    check_prompt(begun, NULL,
                 "<|end|>^<|start|>user<|message|>Hi.<|end|><|start|>assistant<|channel|>final"
                 "<|message|>{\"a\": ^");
    /* Thoughts of an answer that goes on stay; those before another answer go. */
    check_prompt(MESSAGES(SAYS("user", "1") "," ON("analysis", "old") "," ON("final", "2") "," SAYS(
                     "user", "3") "," ON("analysis", "new") "," ON("final", "4")),
                 NULL,
                 "<|start|>user<|message|>1<|end|><|start|>assistant<|channel|>final<|message|>2"
                 "<|end|>^<|start|>user<|message|>3<|end|><|start|>assistant<|channel|>analysis"
                 "<|message|>new<|end|><|start|>assistant<|channel|>final<|message|>4^");
    p.effort = CHAT_EFFORT_OFF;
    check_prompt(plain, &p, "<|end|><|start|>assistant<|channel|>final<|message|>^");
    check_prompt(tools, &p, "<|end|><|start|>assistant^"); /* a call may come */
    p.effort = CHAT_HIGH;
    struct turn *t = turn_check_open(shared, plain, &p);
    assert_non_null(strstr(prompt_text(t), "Reasoning: high"));
    turn_destroy(t);
}

/* ---- events ---- */

/* What `text` (behind the prompt) makes of a turn: "part#message:text" with '(' where it began and
 * ')' where it ended. */
static char *events_of(struct turn *t, const char *text, bool finish)
{
    static const char *const parts[] = {"think", "before", "answer", "call"};
    static char out[4096];
    struct token_list ids = {0};
    struct turn_event e;
    int length = 0;
    assert_int_equal(tokenizer_encode(v->tokenizer, text, strlen(text), true, &ids), SOL_OK);
    out[0] = 0;
    for (size_t i = 0; i < ids.count + finish; i++) {
        assert_int_equal(i < ids.count ? turn_push(t, ids.ids[i], &e) : turn_finish(t, &e), SOL_OK);
        char *to = out + length;
        size_t room = sizeof out - (size_t)length;
        if (e.began)
            length += snprintf(to, room, "(%s%d%s%.*s:", parts[e.part], (int)e.message,
                               e.name.data ? " " : "", (int)e.name.length,
                               e.name.data ? e.name.data : "");
        length += snprintf(out + length, sizeof out - (size_t)length, "%.*s%s", (int)e.delta.length,
                           e.delta.data, e.ended ? ")" : "");
    }
    token_list_free(&ids);
    return out;
}

static void test_events(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text, *events;
        size_t faults;
        bool finish;
    } cases[] = {
        {plain,
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi"
         "<|return|>",
         "(think0:Hm.)(answer1:Hi)", 0, false},
        {tools,
         "<|channel|>commentary<|message|>So.<|end|><|start|>assistant to=functions.get<|channel|>"
         "commentary <|constrain|>json<|message|>{}<|call|>",
         "(before0:So.)(call1 functions.get:{})", 0, false},
        {begun, "1}<|return|>", "(answer0:1})", 0, false},
        {begun, "1", "(answer0:1)", 0, true},
        {begun, "", "(answer0:)", 0, true},
        /* cut short in a header */
        {tools, "<|channel|>analysis<|message|>a<|end|><|start|>assist", "(think0:a)", 0, true},
        {tools, "<|channel|>commentary to=functions.get", "", 0, true},
        {plain, "<|channel|>final <|constrain|>json<|message|>{}<|return|>", "(answer0:{})", 0,
         false},
        /* what does not belong to the format becomes an answer */
        {plain, "Oh my.<|return|>", "(answer0:Oh my.)", 1, false},
        {plain, "<|channel|>analysis<|message|>a<|end|>and more<|endoftext|>",
         "(think0:a)(answer1:and more)", 1, false},
        {plain, "<|channel|>final<|message|>a<|end|><|return|>", "(answer0:a)", 0, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct turn *t = turn_check_open(shared, cases[i].json, NULL);
        assert_string_equal(events_of(t, cases[i].text, cases[i].finish), cases[i].events);
        assert_int_equal(chat_faults_total(turn_faults(t)), cases[i].faults);
        turn_destroy(t);
    }
    struct turn *t = turn_check_open(shared, begun, NULL);
    events_of(t, "1}<|return|>", false);
    assert_int_equal(conversation_count(turn_messages(t)), 1);
    assert_true(text_is(conversation_message(turn_messages(t), 0)->contents->text, "{\"a\": 1}"));
    turn_destroy(t);
}

/* ---- masks ---- */

static bool only(struct turn *t, int32_t id)
{
    const uint32_t *bits;
    int32_t set = 0;
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    if (!bits) return false;
    for (size_t i = 0; i < token_trie_words(turn_model_trie(shared)); i++)
        set += __builtin_popcount(bits[i]);
    return set == 1 && (bits[id / 32] >> id % 32 & 1);
}

static bool may(struct turn *t, int32_t id)
{
    const uint32_t *bits;
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    return !bits || (bits[id / 32] >> id % 32 & 1);
}

static int32_t word(const char *text)
{
    int32_t id = tokenizer_find(v->tokenizer, text);
    assert_true(id >= 0);
    return id;
}

/* The end of reasoning is forced, token by token, down to the text of the answer. */
static void test_budget(void **state)
{
    (void)state;
    struct turn_params p;
    struct turn_counts counts;
    const uint32_t *bits;
    turn_params_init(&p);
    p.thinking = 2;
    struct turn *t = turn_check_open(shared, plain, &p);
    events_of(t, "<|channel|>analysis<|message|>a", false);
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    assert_null(bits);
    events_of(t, "b", false);
    assert_true(only(t, v->end));
    events_of(t, "<|end|>", false);
    assert_true(only(t, v->start));
    events_of(t, "<|start|>assistant", false);
    assert_true(only(t, v->channel));
    events_of(t, "<|channel|>", false);
    assert_true(may(t, word("f")) && !may(t, word("a")));
    events_of(t, "final", false);
    assert_true(only(t, v->message));
    events_of(t, "<|message|>", false);
    assert_int_equal(turn_mask(t, &bits), SOL_OK);
    assert_null(bits);
    turn_count(t, &counts);
    assert_true(counts.cut && counts.reasoning == 2);
    turn_destroy(t);
    p.thinking = 0;
    t = turn_check_open(shared, plain, &p);
    events_of(t, "<|channel|>", false);
    assert_true(may(t, word("f")) && !may(t, word("a")));
    turn_destroy(t);
}

static void test_after_the_end(void **state)
{
    (void)state;
    struct turn *t = turn_check_open(shared, tools, NULL);
    events_of(t, "<|channel|>final<|message|>a<|end|>", false);
    assert_true(only(t, v->ret));
    turn_destroy(t);
    t = turn_check_open(shared, tools, NULL);
    events_of(t, " to=functions.get<|channel|>commentary json<|message|>{}<|end|>", false);
    assert_true(only(t, v->call));
    turn_destroy(t);
}

/* A text under a grammar ends where it may, and must where nothing can follow. */
static void test_answer_grammar(void **state)
{
    (void)state;
    struct turn_params p;
    turn_params_init(&p);
    p.answer = grammar;
    struct turn *t = turn_check_open(shared, plain, &p);
    events_of(t, "<|channel|>analysis<|message|>", false);
    assert_true(may(t, word("x")) && may(t, v->end) && !may(t, v->ret));
    events_of(t, "<|end|><|start|>assistant<|channel|>final<|message|>", false);
    assert_true(may(t, word("{")) && !may(t, word("x")) && !may(t, v->ret));
    events_of(t, "{\"a\": 1", false);
    assert_true(may(t, word("}")) && may(t, word("2")) && !may(t, v->ret) && !may(t, v->end));
    events_of(t, "}", false);
    assert_true(only(t, v->ret));
    turn_destroy(t);
    t = turn_check_open(shared, begun, &p);
    assert_true(may(t, word("1")) && !may(t, word("{")));
    turn_destroy(t);
}

static void expect_refused(const char *json, const struct turn_params *p, const char *says)
{
    struct conversation *c = turn_check_conversation(json);
    struct turn *t;
    assert_int_equal(turn_create(shared, c, p, &t), SOL_E_ARGUMENT);
    assert_null(t);
    if (!strstr(sol_last_error(), says)) fail_msg("%s", sol_last_error());
    conversation_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    struct turn_params p;
    turn_params_init(&p);
    p.calls = TURN_CALLS_REQUIRED;
    expect_refused(plain, &p, "no functions");
    p.only = CHAT_TEXT("functions.put");
    expect_refused(tools, &p, "functions.put");
    p.only = (struct chat_text){0};
    expect_refused(MESSAGES(TOOLS "," ON("final", "Oh")), &p, "beginning of an answer");
    turn_params_init(&p);
    p.effort = CHAT_LOW;
    expect_refused(MESSAGES(SAYS("user", "Hi.")), &p, "effort");
    turn_params_init(&p);
    p.answer = grammar;
    expect_refused(MESSAGES(ON("final", "Oh")), &p, "schema");
}

/* ---- any tokens ---- */

static void draw_params(struct rng *rng, struct turn_params *p, struct turn_arguments *arguments)
{
    static const enum chat_effort efforts[] = {CHAT_EFFORT_UNSET, CHAT_HIGH, CHAT_EFFORT_OFF};
    turn_params_init(p);
    p->effort = efforts[rng_range(rng, 0, 2)];
    p->thinking = rng_range(rng, -1, 8);
    p->calls = (enum turn_calls)rng_range(rng, 0, 2);
    if (rng_range(rng, 0, 1)) p->only = CHAT_TEXT("functions.get_all");
    if (rng_range(rng, 0, 1)) p->answer = grammar;
    *arguments =
        (struct turn_arguments){.function = CHAT_TEXT("functions.get_all"), .grammar = grammar};
    p->arguments = arguments;
    p->n_arguments = (size_t)rng_range(rng, 0, 1);
}

static void test_drawn_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = {plain, tools, begun};
    struct rng rng;
    int64_t turns = 0, whole = 0, calls = 0;
    rng_seed(&rng, 17);
    for (int64_t n = effort("turns", 3000, 300); n > 0; n--) {
        struct turn_params p;
        struct turn_arguments arguments;
        struct turn_check check;
        struct conversation *c = turn_check_conversation(texts[rng_range(&rng, 0, 2)]);
        draw_params(&rng, &p, &arguments);
        bool picks = rng_range(&rng, 0, 3) > 0;
        int64_t limit = rng_range(&rng, 0, 60);
        if (turn_check_begin(&check, shared, c, &p)) {
            for (int64_t i = 0; i < 400 && !(check.over && picks) && (picks || i < limit); i++) {
                uint32_t number = (uint32_t)rng_next(&rng);
                bool text = rng_range(&rng, 0, 3) > 0;
                turn_check_push(&check, picks || text ? turn_check_pick(&check, number, i > limit)
                                                      : (int32_t)number);
                if (!picks && text && check.over) break;
            }
            turns++;
            whole += picks && check.over;
            calls += check.calls > 0;
            turn_check_end(&check, picks);
        }
        conversation_destroy(c);
    }
    assert_true(whole > turns / 3 && calls > turns / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),        cmocka_unit_test(test_events),
        cmocka_unit_test(test_budget),         cmocka_unit_test(test_after_the_end),
        cmocka_unit_test(test_answer_grammar), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_drawn_tokens),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
