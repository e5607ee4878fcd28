/* Tokens to messages: well-formed ones against openai-harmony's parser (tests/data/
 * chat_vectors.json.gz), malformed ones against what chat/parser.h promises, and what may follow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/header.h"
#include "chat/header_grammar.h"
#include "chat/parser.h"
#include "chat/render.h"
#include "support/chat.h"
#include "support/effort.h"

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

/* ---- as the library ---- */

static void put_field(struct text_buffer *to, struct chat_text field)
{
    text_puts(to, "|");
    text_put_text(to, field);
}

/* A line of what the library says after a token. Where a message ends it gives no text. */
static void put_step(struct text_buffer *to, const struct chat_parser *p,
                     const struct chat_step *step)
{
    static const char *const states[] = {"start", "header", "content"};
    const struct chat_message *head = chat_parser_head(p);
    if (to->length) text_puts(to, "\n");
    text_puts(to, states[chat_parser_state(p)]);
    put_field(to, step->ended ? (struct chat_text){0} : step->delta);
    put_field(to, head->channel);
    put_field(to, head->recipient);
    put_field(to, head->content_type);
}

static json_t *messages_json(const struct conversation *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < conversation_count(c); i++)
        json_array_append_new(list, chat_message_json(conversation_message(c, i)));
    return list;
}

static void check_vector(const struct chat_vocabulary *v, const json_t *vector, const int32_t *ids,
                         size_t count)
{
    const char *name = json_string_value(json_object_get(vector, "role"));
    struct chat_parser *p;
    struct chat_step step;
    struct text_buffer steps = {0};
    char hash[20];
    assert_int_equal(
        chat_parser_create(v, chat_role_find((struct chat_text){name, strlen(name)}), &p), SOL_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(chat_parser_push(p, ids[i], &step), SOL_OK);
        put_step(&steps, p, &step);
    }
    assert_int_equal(chat_parser_finish(p, &step), SOL_OK);
    put_step(&steps, p, &step);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)chat_fnv(CHAT_FNV, steps.data, steps.length));
    json_t *messages = messages_json(chat_parser_messages(p));
    const json_t *wanted = json_object_get(vector, "messages");
    if (!json_equal(messages, wanted)) {
        json_dumpf(wanted, stderr, 0);
        json_dumpf(messages, stderr, 0);
        fail_msg("other messages");
    }
    if (strcmp(hash, json_string_value(json_object_get(vector, "steps"))) != 0)
        fail_msg("other steps:\n%.*s", (int)steps.length, steps.data);
    json_decref(messages);
    text_buffer_free(&steps);
    chat_parser_destroy(p);
}

static void test_bytes_as_the_library(void **state)
{
    (void)state;
    json_t *vectors = chat_vectors(), *vector;
    int32_t byte_ids[256], ids[8192];
    size_t i, done = 0;
    chat_byte_ids(&vocabulary, byte_ids);
    json_array_foreach(json_object_get(vectors, "parse"), i, vector)
    {
        const char *hex = json_string_value(json_object_get(vector, "bytes"));
        if (!hex) continue;
        size_t n = strlen(hex) / 2;
        assert_true(n <= COUNT(ids));
        for (size_t k = 0; k < n; k++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 * k, "%2x", &byte), 1);
            ids[k] = byte_ids[byte];
            assert_true(ids[k] >= 0);
        }
        check_vector(&vocabulary, vector, ids, n);
        done++;
    }
    assert_true(done >= 80);
    json_decref(vectors);
}

static void test_ids_as_the_library(void **state)
{
    (void)state;
    struct chat_vocabulary v;
    struct tokenizer *t = chat_o200k(&v);
    if (!t) skip();
    json_t *vectors = chat_vectors(), *vector;
    size_t i, done = 0;
    json_array_foreach(json_object_get(vectors, "parse"), i, vector)
    {
        const json_t *list = json_object_get(vector, "ids");
        int32_t ids[1024];
        size_t n = json_array_size(list);
        if (!list) continue;
        assert_true(n <= COUNT(ids));
        for (size_t k = 0; k < n; k++)
            ids[k] = (int32_t)json_integer_value(json_array_get(list, k));
        check_vector(&v, vector, ids, n);
        done++;
    }
    assert_true(done >= 20);
    json_decref(vectors);
    tokenizer_destroy(t);
}

/* ---- malformed ---- */

/* Messages as "role:name[channel>recipient#type]text", each on a line; the text by its deltas,
 * which must be the message's. */
static char *read_back(const int32_t *ids, size_t count, enum chat_role role,
                       struct chat_faults *faults)
{
    static char out[1 << 14];
    struct chat_parser *p;
    struct chat_step step;
    struct text_buffer text = {0}, all = {0};
    size_t messages = 0;
    assert_int_equal(chat_parser_create(&vocabulary, role, &p), SOL_OK);
    for (size_t i = 0; i <= count; i++) {
        assert_int_equal(
            i < count ? chat_parser_push(p, ids[i], &step) : chat_parser_finish(p, &step), SOL_OK);
        if (step.began) assert_int_equal(text.length, 0);
        text_put_text(&text, step.delta);
        if (!step.ended) continue;
        const struct chat_message *m = conversation_message(chat_parser_messages(p), messages++);
        assert_int_equal(m->n_contents, 1);
        assert_int_equal(m->contents->text.length, text.length);
        if (text.length) assert_memory_equal(m->contents->text.data, text.data, text.length);
        const struct chat_text fields[] = {m->name, m->channel, m->recipient, m->content_type};
        const char *const before[] = {":", "[", ">", "#"};
        text_puts(&all, chat_role_name(m->role));
        for (size_t k = 0; k < 4; k++) {
            if (fields[k].data) text_puts(&all, before[k]);
            text_put_text(&all, fields[k]);
        }
        text_puts(&all, "]");
        text_put_text(&all, text_of(&text));
        text_puts(&all, "\n");
        text.length = 0;
    }
    assert_int_equal(conversation_count(chat_parser_messages(p)), messages);
    assert_int_equal(text.length, 0);
    *faults = *chat_parser_faults(p);
    snprintf(out, sizeof out, "%.*s", (int)all.length, all.data ? all.data : "");
    text_buffer_free(&text);
    text_buffer_free(&all);
    chat_parser_destroy(p);
    return out;
}

struct malformed {
    const char *text, *messages;
    struct chat_faults faults;
};

/* Behind "<|start|>assistant". The cases that are known from other servers come first. */
static const struct malformed malformed[] = {
    /* text after an end */
    {"<|channel|>analysis<|message|>a<|end|>and more<|end|>",
     "assistant[analysis]a\nassistant[final]and more\n",
     {.no_start = 1}},
    {"<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>",
     "assistant[analysis]a\nassistant[final]assistant<|channel|>final<|message|>b\n",
     {.no_start = 1, .control = 2}},
    /* words too many */
    {"<|channel|>analysis we should think<|message|>a<|end|>",
     "assistant[analysis]we should thinka\n",
     {.headers = 1}},
    {"<|channel|>commentary to=functions.f now then <|constrain|>json<|message|>{}<|call|>",
     "assistant[commentary>functions.f]now then <|constrain|>json{}\n",
     {.headers = 1}},
    /* doubled start, doubled channel, empty channel */
    {"<|start|>assistant<|channel|>final<|message|>a<|end|>",
     "assistant[final]a\n",
     {.control = 1}},
    {"<|channel|>analysis<|channel|>final<|message|>a<|end|>",
     "assistant[final]a\n",
     {.headers = 1}},
    {"<|channel|><|message|>a<|end|>", "assistant[final]a\n", {.headers = 1}},
    {"<|channel|>analysis to=functions.f<|start|>assistant<|channel|>final<|message|>b<|return|>",
     "assistant[analysis>functions.f]\nassistant[final]b\n",
     {.control = 1, .no_message = 1}},
    /* no message token */
    {"<|channel|>final Hello there<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>",
     "assistant[final]Hello there\nassistant[final]b\n",
     {.no_message = 1}},
    {"<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>",
     "assistant[final]b\n",
     {.no_message = 1}},
    {" to=functions.f<|channel|>commentary<|constrain|>json<|call|>",
     "assistant[commentary>functions.f#<|constrain|>json]\n",
     {.no_message = 1}},
    {"Just text.<|return|>", "assistant[final]Just text.\n", {.no_message = 1}},
    /* no start */
    {"<|message|>a<|end|><|channel|>final<|message|>b<|return|>",
     "assistant]a\nassistant[final]b\n",
     {.no_start = 1}},
    /* no end: the answer is no reasoning */
    {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b<|return|>",
     "assistant[analysis]a\nassistant[final]b\n",
     {.no_end = 1}},
    /* ends that end nothing, control tokens that are text */
    {"<|channel|>final<|message|>a<|return|><|return|><|end|>",
     "assistant[final]a\n",
     {.control = 2}},
    {"<|channel|>final<|message|>a<|message|>b<|channel|><|endoftext|><|return|>",
     "assistant[final]a<|message|>b<|channel|><|endoftext|>\n",
     {.control = 3}},
    /* roles that are none */
    {"<|channel|>final<|message|>a<|end|><|start|>robot<|message|>b<|end|>",
     "assistant[final]a\nassistant[final]robotb\n",
     {.headers = 1}},
    {"<|channel|>final<|message|>a<|end|><|start|>user:bob<|message|>b<|end|>",
     "assistant[final]a\nuser:bob]b\n",
     {0}},
    /* cut short */
    {"<|channel|>final<|message|>a", "assistant[final]a\n", {0}},
    {"<|channel|>anal", "", {0}},
    {"<|channel|>final<|message|>a<|end|><|start|>assistant", "assistant[final]a\n", {0}},
    {"", "", {0}},
    {"<|channel|>final oh", "assistant[final]oh\n", {.no_message = 1}},
};

static void check_malformed(const struct malformed *m, const int32_t *ids, size_t count)
{
    struct chat_faults faults;
    char *got = read_back(ids, count, CHAT_ASSISTANT, &faults);
    if (strcmp(got, m->messages) != 0)
        fail_msg("%s\ngives\n%s\nnot\n%s", m->text, got, m->messages);
    if (memcmp(&faults, &m->faults, sizeof faults) != 0)
        fail_msg(
            "%s: headers %zu, no_message %zu, no_start %zu, no_end %zu, control %zu, bytes %zu",
            m->text, faults.headers, faults.no_message, faults.no_start, faults.no_end,
            faults.control, faults.bytes);
}

static void test_malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(malformed); i++) {
        struct token_list ids = {0};
        assert_int_equal(tokenizer_encode(vocabulary.tokenizer, malformed[i].text,
                                          strlen(malformed[i].text), true, &ids),
                         SOL_OK);
        check_malformed(&malformed[i], ids.ids, ids.count);
        token_list_free(&ids);
    }
}

static void test_long_header_becomes_text(void **state)
{
    (void)state;
    struct token_list ids = {0};
    struct chat_faults faults;
    static char text[6000];
    strcpy(text, "<|channel|>analysis ");
    for (int i = 0; i < 900; i++) strcat(text, "word ");
    assert_int_equal(tokenizer_encode(vocabulary.tokenizer, text, strlen(text), true, &ids),
                     SOL_OK);
    char *got = read_back(ids.ids, ids.count, CHAT_ASSISTANT, &faults);
    assert_memory_equal(got, "assistant[analysis]word word", 28);
    assert_int_equal(strlen(got), strlen("assistant[analysis]\n") + 900 * 5);
    assert_int_equal(faults.headers, 1);
    token_list_free(&ids);
}

/* Bytes that begin a character are held until it is whole or cannot be. */
static void test_bytes_are_held(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *deltas; /* a delta for each byte, '_' for none */
        size_t replaced;
    } cases[] = {
        {"a\xc3\xa9", "a,_,\xc3\xa9,", 0},
        {"\xf0\x9f\x98\x80", "_,_,_,\xf0\x9f\x98\x80,", 0},
        {"\xe2\x82z", "_,_,\xef\xbf\xbd,", 1}, /* the z follows with the end */
        {"\xff"
         "a",
         "\xef\xbf\xbd,a,", 1},
        {"\xed\xa0\x80", "_,\xef\xbf\xbd,\xef\xbf\xbd,", 3}, /* a surrogate is no character */
    };
    int32_t byte_ids[256];
    chat_byte_ids(&vocabulary, byte_ids);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct chat_parser *p;
        struct chat_step step;
        struct text_buffer got = {0};
        assert_int_equal(chat_parser_create(&vocabulary, CHAT_ASSISTANT, &p), SOL_OK);
        assert_int_equal(chat_parser_push(p, vocabulary.message, &step), SOL_OK);
        assert_true(step.began);
        for (const char *at = cases[i].bytes; *at; at++) {
            assert_int_equal(chat_parser_push(p, byte_ids[(unsigned char)*at], &step), SOL_OK);
            text_put_text(&got, step.delta.length ? step.delta : CHAT_TEXT("_"));
            text_puts(&got, ",");
        }
        assert_int_equal(got.length, strlen(cases[i].deltas));
        assert_memory_equal(got.data, cases[i].deltas, got.length);
        assert_int_equal(chat_parser_push(p, vocabulary.end, &step), SOL_OK);
        assert_true(step.ended);
        assert_int_equal(chat_parser_faults(p)->bytes, cases[i].replaced);
        text_buffer_free(&got);
        chat_parser_destroy(p);
    }
}

/* ---- any tokens ---- */

static int32_t random_id(struct rng *rng)
{
    const int32_t odd[] = {INT32_MIN, -1, INT32_MAX, tokenizer_vocab(vocabulary.tokenizer)};
    int64_t kind = rng_range(rng, 0, 99);
    if (kind < 35) return chat_mark_id(&vocabulary, (unsigned char)(CHAT_MARK + kind % CHAT_MARKS));
    if (kind < 37) return odd[rng_range(rng, 0, COUNT(odd) - 1)];
    return (int32_t)rng_range(rng, 0, tokenizer_vocab(vocabulary.tokenizer) - 1);
}

/* read_back compares the deltas with the messages. */
static void test_random_tokens(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 17);
    for (int64_t n = effort("draws", 4000, 400); n > 0; n--) {
        int32_t ids[60];
        struct chat_faults faults;
        size_t count = (size_t)rng_range(&rng, 0, COUNT(ids));
        for (size_t i = 0; i < count; i++) ids[i] = random_id(&rng);
        read_back(ids, count, rng_range(&rng, 0, 1) ? CHAT_ASSISTANT : CHAT_NOBODY, &faults);
    }
}

/* What is rendered comes back, but for the parts that a header does not tell. */
static void test_round_trip(void **state)
{
    (void)state;
    static const struct chat_message heads[] = {
        {.role = CHAT_USER},
        {.role = CHAT_ASSISTANT, .channel = CHAT_TEXT("analysis")},
        {.role = CHAT_ASSISTANT,
         .channel = CHAT_TEXT("commentary"),
         .recipient = CHAT_TEXT("functions.get"),
         .content_type = CHAT_TEXT("<|constrain|>json")},
        {.role = CHAT_TOOL,
         .name = CHAT_TEXT("functions.get"),
         .channel = CHAT_TEXT("commentary"),
         .recipient = CHAT_TEXT("assistant")},
        {.role = CHAT_ASSISTANT, .channel = CHAT_TEXT("final")},
    };
    struct conversation *c;
    struct token_list ids = {0};
    struct chat_faults faults;
    struct render_options options = {.next = CHAT_NOBODY};
    assert_int_equal(conversation_create(&c), SOL_OK);
    for (size_t i = 0; i < COUNT(heads); i++)
        assert_int_equal(conversation_add_text(c, &heads[i], CHAT_TEXT("<|end|> Grüße\n")), SOL_OK);
    assert_int_equal(render_conversation(&vocabulary, c, &options, &ids), SOL_OK);
    assert_string_equal(read_back(ids.ids, ids.count, CHAT_NOBODY, &faults),
                        "user]<|end|> Grüße\n\nassistant[analysis]<|end|> Grüße\n\n"
                        "assistant[commentary>functions.get#<|constrain|>json]<|end|> Grüße\n\n"
                        "tool:functions.get[commentary>assistant]<|end|> Grüße\n\n"
                        "assistant[final]<|end|> Grüße\n\n");
    assert_int_equal(chat_faults_total(&faults), 0);
    token_list_free(&ids);
    conversation_destroy(c);
}

/* ---- what was meant ---- */

static void test_mend(void **state)
{
    (void)state;
    static const struct chat_tool tools[] = {
        {.name = CHAT_TEXT("get"), .description = CHAT_TEXT("")}};
    static const struct chat_namespace functions = {.key = CHAT_TEXT("functions"),
                                                    .name = CHAT_TEXT("functions"),
                                                    .tools = tools,
                                                    .n_tools = 1};
    struct conversation *c;
    struct chat_message head = {.recipient = CHAT_TEXT("<|constrain|>json")};
    bool changed;
    assert_int_equal(conversation_create(&c), SOL_OK);
    assert_int_equal(header_mend(c, NULL, &head, &changed), SOL_OK);
    assert_true(changed && !head.recipient.data && text_is(head.content_type, "<|constrain|>json"));
    head = (struct chat_message){.recipient = CHAT_TEXT("get<|constrain|>json")};
    assert_int_equal(header_mend(c, &functions, &head, &changed), SOL_OK);
    assert_true(changed && text_is(head.recipient, "functions.get"));
    assert_true(text_is(head.content_type, "<|constrain|>json"));
    assert_int_equal(header_mend(c, &functions, &head, &changed), SOL_OK);
    assert_false(changed);
    head = (struct chat_message){.recipient = CHAT_TEXT("put")};
    assert_int_equal(header_mend(c, &functions, &head, &changed), SOL_OK);
    assert_true(!changed && text_is(head.recipient, "put"));
    conversation_destroy(c);
}

/* ---- what may follow ---- */

static const struct chat_text functions[] = {CHAT_TEXT("functions.get_weather"),
                                             CHAT_TEXT("functions.get"), CHAT_TEXT("functions.é")};
static const struct chat_text builtins[] = {CHAT_TEXT("python"), CHAT_TEXT("browser.search")};
static const struct header_rules all_rules = {.functions = functions,
                                              .n_functions = COUNT(functions),
                                              .builtins = builtins,
                                              .n_builtins = COUNT(builtins),
                                              .analysis = true,
                                              .preamble = true,
                                              .final = true,
                                              .constrained = true};

static struct header_grammar *make_grammar(const struct header_rules *rules)
{
    struct header_grammar *g;
    if (header_grammar_create(&vocabulary, rules, &g) != SOL_OK) fail_msg("%s", sol_last_error());
    return g;
}

/* At every place of some headers: exactly the tokens that lead somewhere. */
static void check_next(const struct header_grammar *g, int32_t place)
{
    int32_t n = tokenizer_vocab(vocabulary.tokenizer);
    char *listed = calloc((size_t)n, 1);
    struct token_list ids = {0};
    assert_int_equal(header_grammar_next(g, place, &ids), SOL_OK);
    assert_true(ids.count > 0);
    for (size_t i = 0; i < ids.count; i++) {
        assert_true(ids.ids[i] >= 0 && ids.ids[i] < n && !listed[ids.ids[i]]);
        listed[ids.ids[i]] = 1;
    }
    for (int32_t id = 0; id < n; id++)
        if ((header_grammar_step(g, place, id) != GRAMMAR_ILLEGAL) != listed[id])
            fail_msg("token %d '%.*s': listed %d", id,
                     (int)tokenizer_bytes(vocabulary.tokenizer, id).length,
                     tokenizer_bytes(vocabulary.tokenizer, id).data, listed[id]);
    token_list_free(&ids);
    free(listed);
}

static void test_next_is_complete(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "<|channel|>analysis<|message|>", "<|channel|>final <|constrain|>json<|message|>",
        " to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.é json<|message|>",
        "<|channel|>analysis to=browser.search code<|message|>"};
    struct header_grammar *g = make_grammar(&all_rules);
    check_next(g, GRAMMAR_START);
    for (size_t i = 0; i < COUNT(headers); i++) {
        struct token_list ids = {0};
        int32_t place = header_grammar_role(g);
        assert_int_equal(
            tokenizer_encode(vocabulary.tokenizer, headers[i], strlen(headers[i]), true, &ids),
            SOL_OK);
        for (size_t k = 0; k < ids.count; k++) {
            check_next(g, place);
            place = header_grammar_step(g, place, ids.ids[k]);
        }
        assert_int_equal(place, GRAMMAR_DONE);
        token_list_free(&ids);
    }
    header_grammar_destroy(g);
}

/* Whoever keeps to what may follow writes nothing malformed. */
static void test_masked_generation(void **state)
{
    (void)state;
    struct header_grammar *g = make_grammar(&all_rules);
    struct rng rng;
    struct token_list ids = {0};
    rng_seed(&rng, 5);
    for (int64_t n = effort("generations", 200, 20); n > 0; n--) {
        struct chat_parser *p;
        struct chat_step step;
        bool text;
        assert_int_equal(chat_parser_create(&vocabulary, CHAT_ASSISTANT, &p), SOL_OK);
        for (int i = 0; i < 200; i++) {
            assert_int_equal(chat_next_tokens(p, &vocabulary, g, &ids, &text), SOL_OK);
            assert_true(ids.count > 0);
            int32_t id = ids.ids[rng_range(&rng, 0, (int64_t)ids.count - 1)];
            if (text && rng_range(&rng, 0, 4)) id = tokenizer_find(vocabulary.tokenizer, "a");
            assert_int_equal(chat_parser_push(p, id, &step), SOL_OK);
        }
        const struct conversation *c = chat_parser_messages(p);
        assert_int_equal(chat_faults_total(chat_parser_faults(p)), 0);
        assert_true(conversation_count(c) > 0);
        for (size_t i = 0; i < conversation_count(c); i++) {
            const struct chat_message *m = conversation_message(c, i);
            assert_true(text_is(m->channel, "analysis") || text_is(m->channel, "commentary") ||
                        text_is(m->channel, "final"));
        }
        chat_parser_destroy(p);
    }
    token_list_free(&ids);
    header_grammar_destroy(g);
}

static void test_grammar_refuses(void **state)
{
    (void)state;
    static const struct chat_text bad[] = {CHAT_TEXT("a b"), CHAT_TEXT("<|end|>"), CHAT_TEXT(""),
                                           CHAT_TEXT("a\n")};
    struct header_grammar *g;
    struct header_rules rules = {0};
    assert_int_equal(header_grammar_create(&vocabulary, &rules, &g), SOL_E_ARGUMENT);
    for (size_t i = 0; i < COUNT(bad); i++) {
        rules = (struct header_rules){.functions = &bad[i], .n_functions = 1};
        assert_int_equal(header_grammar_create(&vocabulary, &rules, &g), SOL_E_ARGUMENT);
        assert_null(g);
    }
    rules = (struct header_rules){.final = true};
    g = make_grammar(&rules);
    assert_int_equal(header_grammar_step(g, GRAMMAR_START, vocabulary.channel), GRAMMAR_ILLEGAL);
    assert_int_equal(header_grammar_step(g, GRAMMAR_ILLEGAL, vocabulary.channel), GRAMMAR_ILLEGAL);
    header_grammar_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_as_the_library),
        cmocka_unit_test(test_ids_as_the_library),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_long_header_becomes_text),
        cmocka_unit_test(test_bytes_are_held),
        cmocka_unit_test(test_random_tokens),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_mend),
        cmocka_unit_test(test_next_is_complete),
        cmocka_unit_test(test_masked_generation),
        cmocka_unit_test(test_grammar_refuses),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
