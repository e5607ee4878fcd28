#include "support/turn_check.h"

#include <string.h>

#include "chat/json.h"
#include "support/fuzz.h"

struct conversation *turn_check_conversation(const char *text)
{
    struct conversation *c;
    json_t *json;
    FUZZ_REQUIRE(chat_json_read(text, strlen(text), "test", &json) == SOL_OK);
    FUZZ_REQUIRE(conversation_create(&c) == SOL_OK);
    if (conversation_add_json(c, json) != SOL_OK) fprintf(stderr, "%s\n", sol_last_error());
    FUZZ_REQUIRE(conversation_count(c) > 0);
    json_decref(json);
    return c;
}

struct turn *turn_check_open(const struct turn_model *m, const char *json,
                             const struct turn_params *params)
{
    struct conversation *c = turn_check_conversation(json);
    struct turn_params usual;
    struct turn *t = NULL;
    turn_params_init(&usual);
    if (turn_create(m, c, params ? params : &usual, &t) != SOL_OK)
        fprintf(stderr, "%s\n", sol_last_error());
    FUZZ_REQUIRE(t);
    conversation_destroy(c);
    return t;
}

static bool stops(const struct turn_check *c, int32_t id)
{
    size_t n;
    const int32_t *ids = turn_model_stops(c->m, &n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool has(const uint32_t *bits, int32_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

bool turn_check_begin(struct turn_check *c, const struct turn_model *m,
                      const struct conversation *conversation, const struct turn_params *params)
{
    const struct chat_vocabulary *v = turn_model_vocabulary(m);
    struct chat_step step;
    *c = (struct turn_check){.m = m, .params = *params};
    enum sol_status status = turn_create(m, conversation, params, &c->turn);
    FUZZ_REQUIRE((status == SOL_OK) == (c->turn != NULL));
    if (status != SOL_OK) return false;
    const struct token_list *prompt = turn_prompt(c->turn);
    size_t at = prompt->count;
    while (prompt->ids[at - 1] != v->start) at--;
    FUZZ_REQUIRE(chat_parser_create(v, CHAT_ASSISTANT, &c->oracle) == SOL_OK);
    while (at < prompt->count && prompt->ids[at] != v->channel) at++;
    for (; at < prompt->count; at++) {
        FUZZ_REQUIRE(chat_parser_push(c->oracle, prompt->ids[at], &step) == SOL_OK);
        text_put_text(&c->text, step.delta);
    }
    if (chat_parser_state(c->oracle) == CHAT_IN_CONTENT) c->part = TURN_ANSWER;
    return true;
}

/* ---- tokens that may come ---- */

static int32_t pick_bit(const struct turn_check *c, const uint32_t *bits, uint32_t number)
{
    int32_t n = (int32_t)token_trie_words(turn_model_trie(c->m)) * 32;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = (int32_t)((number + (uint32_t)i) % (uint32_t)n);
        if (has(bits, id)) return id;
    }
    fprintf(stderr, "nothing may come\n");
    abort();
}

static int32_t pick_text(const struct turn_check *c, uint32_t number)
{
    const struct token_trie *trie = turn_model_trie(c->m);
    int32_t n = tokenizer_vocab(turn_model_vocabulary(c->m)->tokenizer);
    int32_t id = (int32_t)(number % (uint32_t)n);
    while (token_trie_bytes(trie, id).length == 0) id = (id + 1) % n;
    return id;
}

int32_t turn_check_pick(struct turn_check *c, uint32_t number, bool end)
{
    const struct chat_vocabulary *v = turn_model_vocabulary(c->m);
    const uint32_t *bits;
    FUZZ_REQUIRE(turn_mask(c->turn, &bits) == SOL_OK);
    if (bits) {
        const int32_t ends[] = {v->ret, v->call, v->end};
        for (size_t i = 0; end && i < 3; i++)
            if (has(bits, ends[i])) return ends[i];
        return pick_bit(c, bits, number);
    }
    if (chat_parser_state(c->oracle) == CHAT_IN_HEADER) return v->message; /* it was left */
    if (!end && number % 16) return pick_text(c, number / 16);
    /* Nothing keeps a text that is not masked from ending in another way than its own. */
    const int32_t ends[] = {c->part == TURN_CALL     ? v->call
                            : c->part == TURN_ANSWER ? v->ret
                                                     : v->end,
                            v->end, v->ret, v->call};
    return ends[end ? 0 : number / 16 % 4];
}

/* ---- what they do ---- */

static bool same(struct chat_text a, struct chat_text b)
{
    return !a.data == !b.data && a.length == b.length &&
           (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* The newest message against the parser's, which takes a type alone for a recipient. */
static void check_message(struct turn_check *c)
{
    const struct conversation *all = turn_messages(c->turn),
                              *other = chat_parser_messages(c->oracle);
    size_t n = conversation_count(other);
    FUZZ_REQUIRE(conversation_count(all) == n);
    struct chat_message m = *conversation_message(all, n - 1);
    struct chat_message o = *conversation_message(other, n - 1);
    const char *type = o.recipient.data ? memmem(o.recipient.data, o.recipient.length,
                                                 "<|constrain|>", strlen("<|constrain|>"))
                                        : NULL;
    if (type) {
        if (!o.content_type.data) {
            o.content_type.data = type;
            o.content_type.length = o.recipient.length - (size_t)(type - o.recipient.data);
        }
        o.recipient.length = (size_t)(type - o.recipient.data);
        if (o.recipient.length == 0) o.recipient.data = NULL;
    }
    FUZZ_REQUIRE(m.role == o.role && same(m.name, o.name) && same(m.channel, o.channel));
    FUZZ_REQUIRE(same(m.recipient, o.recipient) && same(m.content_type, o.content_type));
    FUZZ_REQUIRE(same(m.contents->text, o.contents->text));
    FUZZ_REQUIRE(same(m.contents->text, text_of(&c->text)));
    FUZZ_REQUIRE((c->part == TURN_CALL) == (m.recipient.data != NULL));
    if (c->part == TURN_REASONING) FUZZ_REQUIRE(text_is(m.channel, "analysis"));
    c->calls += c->part == TURN_CALL;
    c->answers += c->part == TURN_ANSWER;
    c->text.length = 0;
}

static void check_event(struct turn_check *c, const struct chat_step *step,
                        const struct turn_event *event)
{
    bool content = chat_parser_state(c->oracle) == CHAT_IN_CONTENT;
    FUZZ_REQUIRE(same(step->delta, event->delta) && step->ended == event->ended);
    FUZZ_REQUIRE((event->message >= 0) == (content || event->ended));
    if (event->message < 0) {
        FUZZ_REQUIRE(!event->began && event->delta.length == 0);
        return;
    }
    FUZZ_REQUIRE(event->began == !c->open);
    FUZZ_REQUIRE(event->part == c->part || event->began);
    c->part = event->part;
    c->open = !event->ended;
    FUZZ_REQUIRE((event->part == TURN_CALL) == (event->name.data != NULL));
    size_t n = conversation_count(turn_messages(c->turn));
    FUZZ_REQUIRE((size_t)event->message == n - event->ended);
    text_put_text(&c->text, event->delta);
    if (event->ended) check_message(c);
}

/* A token that makes a mask begin is one of the marks. */
static void check_marks(struct turn_check *c, int32_t id, bool was)
{
    const uint32_t *bits;
    size_t n, i = 0;
    FUZZ_REQUIRE(turn_mask(c->turn, &bits) == SOL_OK);
    const int32_t *marks = turn_marks(c->turn, &n);
    FUZZ_REQUIRE((n == 0) == (marks == NULL));
    if (was || !bits || n == 0 || stops(c, id)) return;
    while (i < n && marks[i] != id) i++;
    FUZZ_REQUIRE(i < n);
}

void turn_check_push(struct turn_check *c, int32_t id)
{
    const struct chat_vocabulary *v = turn_model_vocabulary(c->m);
    enum chat_state state = chat_parser_state(c->oracle);
    struct chat_step step = {0};
    struct turn_event event;
    const uint32_t *bits;
    FUZZ_REQUIRE(turn_mask(c->turn, &bits) == SOL_OK);
    bool was = bits != NULL, stop = stops(c, id);
    c->reasoning += state == CHAT_IN_CONTENT && c->part == TURN_REASONING && !stop &&
                    id != v->end && id != v->start;
    c->tokens++;
    if (id == v->endoftext && stop)
        FUZZ_REQUIRE(chat_parser_finish(c->oracle, &step) == SOL_OK);
    else if (!stop || state != CHAT_EXPECT_START)
        FUZZ_REQUIRE(chat_parser_push(c->oracle, id, &step) == SOL_OK);
    FUZZ_REQUIRE(turn_push(c->turn, id, &event) == SOL_OK);
    check_event(c, &step, &event);
    check_marks(c, id, was);
    c->over |= stop;
}

/* ---- the end ---- */

static const struct chat_message *last_message(const struct turn_check *c)
{
    const struct conversation *all = turn_messages(c->turn);
    size_t n = conversation_count(all);
    return n ? conversation_message(all, n - 1) : NULL;
}

static void check_text(const struct grammar *grammar, struct chat_text text)
{
    struct matcher *matcher;
    if (!grammar) return;
    FUZZ_REQUIRE(matcher_create(grammar, &matcher) == SOL_OK);
    FUZZ_REQUIRE(matcher_advance(matcher, text.data, text.length) == SOL_OK);
    FUZZ_REQUIRE(matcher_accepts(matcher));
    matcher_destroy(matcher);
}

static void check_picked(const struct turn_check *c)
{
    const struct turn_params *p = &c->params;
    const struct chat_faults *faults = turn_faults(c->turn);
    const struct chat_message *last = last_message(c);
    if (p->thinking >= 0) FUZZ_REQUIRE(c->reasoning <= p->thinking);
    if (p->effort == CHAT_EFFORT_OFF) FUZZ_REQUIRE(c->reasoning == 0);
    if (p->calls == TURN_CALLS_REQUIRED) FUZZ_REQUIRE(c->answers == 0);
    if (p->calls == TURN_CALLS_NONE) FUZZ_REQUIRE(c->calls == 0);
    FUZZ_REQUIRE(c->calls + c->answers <= 1);
    FUZZ_REQUIRE(chat_faults_total(faults) == faults->bytes);
    if (!c->over) return;
    if (p->calls == TURN_CALLS_REQUIRED || p->answer) FUZZ_REQUIRE(c->calls + c->answers == 1);
    if (p->calls == TURN_CALLS_REQUIRED && p->only.data)
        FUZZ_REQUIRE(same(last->recipient, p->only));
    if (c->answers) check_text(p->answer, last->contents->text);
    for (size_t i = 0; c->calls && i < p->n_arguments; i++)
        if (same(last->recipient, p->arguments[i].function))
            check_text(p->arguments[i].grammar, last->contents->text);
}

void turn_check_end(struct turn_check *c, bool picked)
{
    struct chat_step step = {0};
    const uint32_t *bits;
    struct turn_event event;
    struct turn_counts counts;
    FUZZ_REQUIRE(turn_mask(c->turn, &bits) == SOL_OK);
    if (chat_parser_state(c->oracle) != CHAT_IN_HEADER || !bits)
        FUZZ_REQUIRE(chat_parser_finish(c->oracle, &step) == SOL_OK);
    FUZZ_REQUIRE(turn_finish(c->turn, &event) == SOL_OK);
    check_event(c, &step, &event);
    FUZZ_REQUIRE(!c->open && c->text.length == 0);
    turn_count(c->turn, &counts);
    FUZZ_REQUIRE(counts.reasoning == c->reasoning && counts.tokens == c->tokens);
    FUZZ_REQUIRE(!counts.cut || c->reasoning >= c->params.thinking);
    FUZZ_REQUIRE(memcmp(turn_faults(c->turn), chat_parser_faults(c->oracle),
                        sizeof(struct chat_faults)) == 0);
    if (picked) check_picked(c);
    turn_destroy(c->turn);
    chat_parser_destroy(c->oracle);
    text_buffer_free(&c->text);
}
