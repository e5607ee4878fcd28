/* Steps begun ahead: two engines are told the same at random, and one of them now and then that a
 * step probably goes on. It draws the same tokens. On a GPU (SOL_TEST_BACKEND=cuda) steps are begun
 * ahead and taken, or not; on a processor the hint changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "gpu/device.h"
#include "infer/engine_private.h"
#include "infer/sampler.h"
#include "model/model.h"
#include "ops/batch.h"
#include "support/backend.h"
#include "support/effort.h"

enum { TEXTS = 20, CONTEXT = 150, LONGEST = 6, SEEDS = 6 };

static struct model *model;
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

/* An engine, and how its texts are drawn. */
struct side {
    struct engine *engine;
    struct sampler *samplers[TEXTS];
    int taken; /* steps that had been begun ahead */
};

/* What both are told. */
struct play {
    struct side plain, ahead;
    struct rng rng;
    int texts, rounds;
    int64_t longest;       /* rows of a text in a step; 0: LONGEST */
    int32_t newest[TEXTS]; /* drawn last, and not yet a row */
    int64_t kept;          /* the snapshot's position; 0: there is none */
    int32_t kept_newest;
};

static int64_t pick(struct play *p, int64_t n)
{
    return rng_range(&p->rng, 0, n - 1);
}

static void open_side(const struct play *p, struct side *s)
{
    const int64_t longest = p->longest ? p->longest : LONGEST;
    struct engine_params e;
    engine_params_init(&e);
    e.context = CONTEXT;
    e.sequences = e.max_outputs = p->texts;
    e.max_batch = p->texts + longest; /* odd with three texts: what is sent in turns is aligned */
    e.max_run = longest;
    e.snapshots = 1;
    e.cache_positions = (2 * p->texts + 2) * 128; /* two pages a text, and two of the snapshot */
    e.threads = 1;
    e.chooser.device.gpu = gpu;
    must(engine_create(model, &e, &s->engine));
}

/* Greedy, at several temperatures, with min_p, and one that the host draws. */
static void set_sampler(struct side *s, int text, int seed, bool bans)
{
    const int kind = seed % SEEDS;
    const struct sampler_params params = {.temperature = 0.5 * kind,
                                          .top_p = 1,
                                          .min_p = kind == 2 ? 0.05 : 0,
                                          .top_k = seed % 24 == 5 ? 9 : 0,
                                          .seed = (uint64_t)seed};
    unsigned char *banned = calloc((size_t)model->config.vocab, 1);
    assert_non_null(banned);
    for (int64_t i = 0; i < model->config.vocab; i++) banned[i] = bans && i % 2;
    sampler_destroy(s->samplers[text]);
    must(sampler_create(&params, model->config.vocab, banned, &s->samplers[text]));
    free(banned);
}

static void set_samplers(struct play *p, int text, int seed, bool bans)
{
    set_sampler(&p->plain, text, seed, bans);
    set_sampler(&p->ahead, text, seed, bans);
}

/* ---- what can be told ---- */

struct told {
    struct engine_row rows[TEXTS];
    int texts[TEXTS], n;
    bool draws, goes_on, given; /* given: `then` says what is next */
    bool late, logits, restricted;
    int without; /* which of them draws nothing; -1: none */
    int32_t then[TEXTS];
};

static const uint32_t even[4096 / 32] = {0x55555555, 0x55555555, 0x55555555, 0x55555555};

static void do_step(struct side *s, const struct told *t, bool goes_on, int32_t *drawn)
{
    struct sampler *samplers[TEXTS];
    bool logits[TEXTS];
    for (int i = 0; i < t->n; i++) {
        samplers[i] = i == t->without ? NULL : s->samplers[t->texts[i]];
        logits[i] = t->logits;
        sampler_allow(s->samplers[t->texts[i]], t->restricted ? even : NULL);
    }
    const struct engine_outputs outputs = {.samplers = t->draws ? samplers : NULL,
                                           .logits = logits,
                                           .draws_late = t->late,
                                           .goes_on = goes_on,
                                           .then = t->given ? t->then : NULL};
    const int waits = s->engine->ahead.turn;
    must(engine_begin(s->engine, t->rows, t->n, &outputs));
    s->taken += waits == s->engine->turns.now; /* any other step leaves that as it is */
    must(engine_finish(s->engine, drawn, NULL));
}

static void step(struct play *p, struct told *t)
{
    int32_t drawn[2][TEXTS];
    for (int i = 0; i < t->n; i++) {
        const int text = t->texts[i];
        if (engine_position(p->plain.engine, text) == CONTEXT) return;
        t->rows[i] = (struct engine_row){p->newest[text], text, true};
        t->then[i] = (int32_t)pick(p, model->config.vocab);
    }
    do_step(&p->plain, t, false, drawn[0]);
    do_step(&p->ahead, t, t->goes_on, drawn[1]);
    for (int i = 0; i < t->n; i++) {
        const bool draws = t->draws && i != t->without;
        if (t->draws) assert_int_equal(drawn[0][i], drawn[1][i]);
        p->newest[t->texts[i]] = t->given ? t->then[i] : draws ? drawn[0][i] : 1;
    }
}

/* The same texts for a while, as most callers do. */
static void steps(struct play *p)
{
    struct told t = {.draws = pick(p, 4) > 0};
    const int first = (int)pick(p, p->texts), n = 1 + (int)pick(p, p->texts);
    t.given = !t.draws || pick(p, 3) == 0;
    for (t.n = 0; t.n < n; t.n++) t.texts[t.n] = (first + t.n) % p->texts;
    for (int i = 1 + (int)pick(p, 5); i > 0; i--) {
        t.goes_on = pick(p, 4) > 0;
        t.late = pick(p, 30) == 0;
        t.logits = pick(p, 30) == 0;
        t.restricted = pick(p, 30) == 0;
        t.without = pick(p, 30) ? -1 : (int)pick(p, n);
        step(p, &t);
    }
}

static void write_prompt(struct play *p, int32_t text, int64_t n)
{
    struct engine_row rows[CONTEXT];
    engine_reset(p->plain.engine, text);
    engine_reset(p->ahead.engine, text);
    for (int64_t i = 0; i < n; i++)
        rows[i] = (struct engine_row){(int32_t)pick(p, model->config.vocab), text, false};
    must(engine_eval(p->plain.engine, rows, n, NULL, NULL, NULL));
    must(engine_eval(p->ahead.engine, rows, n, NULL, NULL, NULL));
}

static void prompt(struct play *p)
{
    write_prompt(p, (int32_t)pick(p, p->texts), 1 + pick(p, 140));
}

/* By the last step's rows; both can or cannot. */
static void go_back(struct play *p)
{
    const int32_t text = (int32_t)pick(p, p->texts);
    const int64_t position = engine_position(p->plain.engine, text) - 1 - pick(p, LONGEST);
    const enum sol_status status = engine_go_back(p->plain.engine, text, position);
    assert_int_equal(engine_go_back(p->ahead.engine, text, position), status);
}

/* Its newest token stays. */
static void copy_text(struct play *p, int32_t from, int32_t to)
{
    must(engine_copy(p->plain.engine, from, to));
    must(engine_copy(p->ahead.engine, from, to));
}

static void copy(struct play *p)
{
    const int32_t from = (int32_t)pick(p, p->texts);
    copy_text(p, from, (from + 1) % p->texts);
}

static void keep(struct play *p)
{
    const int32_t text = (int32_t)pick(p, p->texts);
    const int64_t position = engine_position(p->plain.engine, text);
    if (!position) return;
    must(engine_snapshot(p->plain.engine, text, position, 0));
    must(engine_snapshot(p->ahead.engine, text, position, 0));
    p->kept = position;
    p->kept_newest = p->newest[text];
}

static void restore(struct play *p)
{
    const int32_t text = (int32_t)pick(p, p->texts);
    if (!p->kept) return;
    const enum sol_status status = engine_restore(p->plain.engine, 0, text);
    assert_int_equal(engine_restore(p->ahead.engine, 0, text), status);
    p->newest[text] = p->kept_newest;
}

static void change_sampler(struct play *p)
{
    set_samplers(p, (int)pick(p, p->texts), (int)pick(p, 100), pick(p, 8) == 0);
}

/* ---- the play ---- */

static void close_side(struct side *s)
{
    for (int i = 0; i < TEXTS; i++) sampler_destroy(s->samplers[i]);
    engine_destroy(s->engine);
}

static void play(int texts, int rounds)
{
    static void (*const others[])(struct play *) = {prompt, go_back, copy,
                                                    keep,   restore, change_sampler};
    enum { OTHERS = sizeof others / sizeof *others };
    struct play p = {.texts = texts, .rounds = rounds};
    rng_seed(&p.rng, (uint64_t)texts);
    open_side(&p, &p.plain);
    open_side(&p, &p.ahead);
    for (int i = 0; i < texts; i++) set_samplers(&p, i, i, false);
    for (int i = 0; i < rounds; i++) {
        steps(&p);
        if (pick(&p, 2)) others[pick(&p, OTHERS)](&p);
        for (int32_t t = 0; t < texts; t++)
            assert_int_equal(engine_position(p.plain.engine, t),
                             engine_position(p.ahead.engine, t));
    }
    print_message("%d steps had been begun ahead\n", p.ahead.taken);
    assert_true(gpu ? p.ahead.taken > rounds / 4 : !p.ahead.taken);
    assert_int_equal(p.plain.taken, 0);
    close_side(&p.plain);
    close_side(&p.ahead);
}

static void the_same_tokens_are_drawn(void **state)
{
    (void)state;
    play(3, (int)effort("rounds", 60, 24));
}

/* What is sent for so many rows is a copy, not a kernel's argument. */
static void of_many_texts_too(void **state)
{
    (void)state;
    play(TEXTS, 8);
}

/* A step that looks the same, of a text that became another one meanwhile; and draws that are the
 * same but for what is banned. */
static void what_changes_meanwhile_counts(void **state)
{
    (void)state;
    struct play p = {.texts = 3};
    struct told t = {.n = 1, .draws = true, .goes_on = true, .without = -1};
    open_side(&p, &p.plain);
    open_side(&p, &p.ahead);
    for (int i = 0; i < 16; i++) {
        set_samplers(&p, 0, 0, i % 2);
        write_prompt(&p, 0, 5);
        write_prompt(&p, 1, 6);
        p.newest[0] = (int32_t)pick(&p, model->config.vocab);
        step(&p, &t);
        if (i < 8)
            copy_text(&p, 1, 0);
        else
            set_samplers(&p, 0, 0, !(i % 2));
        step(&p, &t);
    }
    assert_int_equal(p.ahead.taken, 0); /* tokens may be the same by chance */
    close_side(&p.plain);
    close_side(&p.ahead);
}

/* Where steps have one row, the next one, which is not taken, leaves what a window sees after going
 * back by one. A window of whole blocks has no room by rounding. */
static void windows_have_room_for_both(void **state)
{
    (void)state;
    const int64_t window = model->config.window;
    struct play p = {.texts = 1, .longest = 1};
    rng_seed(&p.rng, 1);
    model->config.window = KV_BLOCK;
    open_side(&p, &p.plain);
    open_side(&p, &p.ahead);
    write_prompt(&p, 0, 2 * KV_BLOCK);
    for (int i = 0; i < 4; i++) {
        struct told t = {.n = 1, .draws = true, .goes_on = true, .without = -1};
        const struct engine_row row = {(int32_t)pick(&p, model->config.vocab), 0, true};
        const float *logits[2];
        set_samplers(&p, 0, 0, false);
        step(&p, &t);
        assert_int_equal(p.ahead.engine->ahead.turn != ENGINE_NO_TURN, gpu != NULL);
        const int64_t position = engine_position(p.plain.engine, 0) - 1;
        must(engine_go_back(p.plain.engine, 0, position));
        must(engine_go_back(p.ahead.engine, 0, position));
        must(engine_eval(p.plain.engine, &row, 1, NULL, NULL, &logits[0]));
        must(engine_eval(p.ahead.engine, &row, 1, NULL, NULL, &logits[1]));
        assert_memory_equal(logits[0], logits[1], (size_t)model->config.vocab * sizeof(float));
    }
    close_side(&p.plain);
    close_side(&p.ahead);
    model->config.window = window;
}

static int open_all(void **state)
{
    (void)state;
    gpu = test_gpu();
    must(model_open("synth:tiny,layers=2", &model));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    model_close(model);
    gpu_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_tokens_are_drawn),
                                       cmocka_unit_test(of_many_texts_too),
                                       cmocka_unit_test(windows_have_room_for_both),
                                       cmocka_unit_test(what_changes_meanwhile_counts)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
