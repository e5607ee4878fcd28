/* Turns of a session, with guesses and without: the same tokens as by hand, from the beginning;
 * what is held when one ends early; and that the next one goes on. */
#include "generate/session.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/interrupt.h"
#include "chat/format.h"
#include "generate/generate.h"

enum { CONTEXT = 900, SEED = 7 };

static struct model *model;
static struct turn_model *shared;
static int64_t guesses; /* of a turn's steps, at most */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct engine *open_engine(int64_t context)
{
    struct engine_params p;
    struct engine *engine;
    engine_params_init(&p);
    p.context = context;
    p.threads = 1;
    p.chooser.loosest = NUMERICS_EXACT; /* the same bits in whatever steps */
    session_engine_params(&p);
    speculation_engine_params(&p, guesses);
    must(engine_create(model, &p, &engine));
    return engine;
}

static struct sampler *open_sampler(void)
{
    struct sampler_params params;
    struct sampler *sampler;
    sampler_params_init(&params);
    params.seed = SEED;
    must(turn_sampler(shared, &params, &sampler));
    return sampler;
}

/* ---- a talk ---- */

struct talk {
    struct engine *engine;
    struct session *session;
    struct draft *draft;
    struct conversation *c;
    struct session_result result;
    int64_t stop_after, events, deltas; /* events: when to stop, 0 never; how many came */
    bool interrupt;
};

static void begin(struct talk *t, int64_t context)
{
    *t = (struct talk){.engine = open_engine(context)};
    must(session_create(t->engine, &t->session));
    if (guesses) must(draft_create(context, guesses, &t->draft));
    must(conversation_create(&t->c));
    must(conversation_open(&chat_harmony, t->c, "2026-11-24"));
}

static void end(struct talk *t)
{
    session_destroy(t->session);
    draft_destroy(t->draft);
    engine_destroy(t->engine);
    conversation_destroy(t->c);
}

static void say(struct talk *t, const char *text)
{
    const struct chat_message user = {.role = CHAT_USER};
    must(conversation_add_text(t->c, &user, (struct chat_text){text, strlen(text)}));
}

static struct turn *open_turn(const struct talk *t)
{
    struct turn_params params;
    struct turn *turn;
    turn_params_init(&params);
    params.thinking = 12;
    must(turn_create(shared, t->c, &params, &turn));
    return turn;
}

static bool on_event(void *arg, const struct turn_event *event)
{
    struct talk *t = arg;
    t->deltas += event->delta.length > 0;
    t->events++;
    if (t->interrupt && t->events == 9) raise(SIGINT);
    return t->events != t->stop_after;
}

/* The turn, whose tokens are held behind its prompt but for the last. */
static struct turn *listen(struct talk *t, int64_t limit)
{
    struct turn *turn = open_turn(t);
    struct sampler *sampler = open_sampler();
    const struct session_params params = {
        .sampler = sampler, .limit = limit, .draft = t->draft, .on_event = on_event, .arg = t};
    t->events = t->deltas = 0;
    must(session_turn(t->session, turn, &params, &t->result));
    size_t held;
    session_tokens(t->session, &held);
    assert_int_equal(held, t->result.prompt + t->result.generated - 1);
    assert_int_equal(t->result.prompt, turn_prompt(turn)->count);
    assert_int_equal(t->events, t->result.generated + 1);
    sampler_destroy(sampler);
    return turn;
}

/* What was complete belongs to the conversation. */
static void answer(struct talk *t, struct turn *turn)
{
    const struct conversation *said = turn_messages(turn);
    for (size_t i = 0; i < conversation_count(said); i++) {
        const struct chat_message *m = conversation_message(said, i);
        must(conversation_add_text(t->c, m, m->contents[0].text));
    }
    turn_destroy(turn);
}

/* The same by hand, computed from its beginning. */
static void check_by_hand(const struct talk *t, struct engine *alone)
{
    struct turn *turn = open_turn(t);
    struct sampler *sampler = open_sampler();
    const struct token_list *prompt = turn_prompt(turn);
    size_t held;
    const int32_t *tokens = session_tokens(t->session, &held);
    const float *logits;
    struct turn_event event;
    assert_memory_equal(tokens, prompt->ids, prompt->count * sizeof *tokens);
    engine_reset(alone, 0);
    must(generate_prefill(alone, 0, prompt->ids, (int64_t)prompt->count, 0, &logits));
    for (size_t i = prompt->count; i < held; i++) {
        const uint32_t *bits;
        int32_t id;
        must(turn_mask(turn, &bits));
        sampler_allow(sampler, bits);
        must(sampler_next(sampler, logits, &id));
        assert_int_equal(id, tokens[i]);
        must(turn_push(turn, id, &event));
        must(generate_prefill(alone, 0, &id, 1, 0, &logits));
    }
    sampler_destroy(sampler);
    turn_destroy(turn);
}

static void test_by_hand(void **state)
{
    (void)state;
    static const char *const says[] = {"Who are you?", "And what do you do all day long?", "Oh."};
    struct talk t;
    struct speculation_counts all = {0};
    struct engine *alone = open_engine(CONTEXT);
    begin(&t, CONTEXT);
    for (int i = 0; i < 3; i++) {
        say(&t, says[i]);
        struct turn *turn = listen(&t, 60);
        assert_true(t.deltas > 0);
        assert_int_equal(t.result.cached > 0, i > 0); /* reasoning went, and the session back */
        assert_true(t.result.cached < t.result.prompt);
        check_by_hand(&t, alone);
        answer(&t, turn);
        all.guessed += t.result.counts.guessed;
        all.accepted += t.result.counts.accepted;
        assert_int_equal(t.result.counts.steps + t.result.counts.accepted, t.result.generated - 1);
    }
    print_message("%lld tokens guessed, %lld of them right\n", (long long)all.guessed,
                  (long long)all.accepted);
    if (guesses) assert_true(all.accepted > 0 && all.accepted < all.guessed);
    if (!guesses) assert_int_equal(all.guessed, 0);
    engine_destroy(alone);
    end(&t);
}

/* ---- ends ---- */

static void test_ends(void **state)
{
    (void)state;
    struct talk t;
    begin(&t, CONTEXT);
    say(&t, "Tell me a long story, please.");
    struct turn *turn = listen(&t, 1);
    assert_int_equal(t.result.end, SESSION_LENGTH);
    assert_int_equal(t.result.generated, 1);
    turn_destroy(turn);
    t.stop_after = 20;
    turn = listen(&t, 1000);
    assert_int_equal(t.result.end, SESSION_STOPPED);
    assert_int_equal(t.result.generated, 20);
    assert_int_equal(t.result.cached, t.result.prompt - 1); /* asked again */
    assert_true(conversation_count(turn_messages(turn)) > 0);
    answer(&t, turn);
    t.stop_after = 0;
    say(&t, "Go on.");
    turn_destroy(listen(&t, 30));

    turn = open_turn(&t);
    struct sampler *sampler = open_sampler();
    struct session_params params = {.sampler = sampler, .on_event = on_event, .arg = &t};
    assert_int_equal(session_turn(t.session, turn, &params, &t.result), SOL_E_ARGUMENT);
    turn_destroy(turn);
    sampler_destroy(sampler);
    end(&t);
}

static void test_context(void **state)
{
    (void)state;
    struct talk t;
    begin(&t, CONTEXT);
    say(&t, "Hm.");
    struct turn *turn = open_turn(&t);
    const int64_t prompt = (int64_t)turn_prompt(turn)->count;
    turn_destroy(turn);
    end(&t);

    begin(&t, prompt + 10);
    say(&t, "Hm.");
    turn = listen(&t, 1000);
    assert_int_equal(t.result.end, SESSION_CONTEXT);
    assert_int_equal(t.result.generated, 11); /* the last needs no position */
    turn_destroy(turn);
    say(&t, "One more, and then another one, which is much longer than all that was said before.");
    turn = open_turn(&t);
    struct sampler *sampler = open_sampler();
    const struct session_params params = {
        .sampler = sampler, .limit = 5, .on_event = on_event, .arg = &t};
    assert_int_equal(session_turn(t.session, turn, &params, &t.result), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "does not fit the context"));
    turn_destroy(turn);
    sampler_destroy(sampler);
    end(&t);
}

/* The last test: what asks once asks for ever. */
static void test_interrupted(void **state)
{
    (void)state;
    struct talk t;
    begin(&t, CONTEXT);
    say(&t, "Tell me a long story, please.");
    interrupt_install();
    t.interrupt = true;
    struct turn *turn = listen(&t, 1000);
    assert_int_equal(t.result.end, SESSION_INTERRUPTED);
    assert_int_equal(t.result.generated, 9);
    assert_int_equal(conversation_count(turn_messages(turn)), 1);
    turn_destroy(turn);
    end(&t);
}

static int with_guesses(void **state)
{
    (void)state;
    guesses = DRAFT_MOST;
    return 0;
}

static int open_all(void **state)
{
    (void)state;
    must(model_open(NULL, &model));
    must(turn_model_create(model, &shared));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    turn_model_destroy(shared);
    model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),     cmocka_unit_test(test_ends),
        cmocka_unit_test(test_context),     cmocka_unit_test_setup(test_by_hand, with_guesses),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_context),
        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
