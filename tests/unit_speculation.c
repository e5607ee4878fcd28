/* Texts with guesses against the same texts without, by float32 kernels: tokens, ends, what the
 * engine holds, and what comes next have to be the same, bit for bit. Guesses come from a text that
 * was written before and damaged at some places, so that many are right and some are not. */
#include "generate/speculation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "generate/generate.h"
#include "infer/eagle.h"
#include "support/eagle_file.h"
#include "support/temp_folder.h"

enum { CONTEXT = 400, PROMPT = 20, MODELS = 3 };

/* With windows of 128 and of 129 positions, the second of them with the token before in its rows;
 * and one that writes text. */
static const char *const names[MODELS] = {"synth:tiny", SOL_SOURCE_DIR "/tests/golden/gpt_2026_07",
                                          SOL_SOURCE_DIR "/models/builtin.gguf"};
static struct model *models[MODELS];

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

/* ---- a text ---- */

struct wanted {
    const struct model *model;
    struct sampler_params sampling;
    int64_t limit, context, run; /* run: rows of a step */
    const struct grammar *grammar;
    const struct eagle_head *head; /* that guesses; NULL: what was foretold does */
    int64_t most;                  /* its guesses at a time */
};

struct written {
    int32_t ids[CONTEXT + 1];
    int64_t count, position;
    enum generate_end end;
    int32_t last, behind; /* the newest token; one that the sampler draws next */
    float *logits;        /* of what comes next, where there is room */
    struct speculation_counts counts;
};

static int32_t prompt_token(const struct model *model, int64_t i)
{
    const int64_t vocab = model->tokenizer ? 200 : model->config.vocab;
    return (int32_t)((i * 7919 + 11) % vocab);
}

static struct engine *open_engine(const struct wanted *w, int64_t guesses)
{
    struct engine_params p;
    struct engine *engine;
    engine_params_init(&p);
    p.context = w->context;
    p.max_batch = 64;
    p.max_run = w->run;
    p.threads = 1;
    p.chooser.loosest = NUMERICS_EXACT;
    speculation_engine_params(&p, guesses);
    if (w->head) eagle_engine_params(&p, w->head);
    must(engine_create(w->model, &p, &engine));
    return engine;
}

static void set_constraint(const struct wanted *w, struct generation *g, struct token_trie **trie)
{
    *trie = NULL;
    if (!w->grammar) return;
    must(constraint_vocabulary(w->model, trie));
    must(constraint_create(w->model, w->grammar, *trie, NULL, &g->constraint));
}

/* What comes next, in the engine and from the sampler. */
static void look_behind(const struct wanted *w, struct generation *g, struct written *out)
{
    const size_t bytes = (size_t)w->model->config.vocab * sizeof(float);
    const float *logits;
    out->logits = calloc(1, bytes);
    assert_non_null(out->logits);
    out->position = engine_position(g->engine, 0);
    if (out->position < w->context) {
        must(generate_prefill(g->engine, 0, &out->last, 1, 0, &logits));
        memcpy(out->logits, logits, bytes);
    }
    sampler_allow(g->sampler, NULL);
    memset(out->logits + w->model->config.vocab / 2, 0,
           8); /* any will do, but for not being flat */
    must(sampler_next(g->sampler, out->logits, &out->behind));
}

/* Beside the engine, where the text is written with one. */
static struct draft *open_head(const struct wanted *w, struct engine *engine, struct eagle **eagle)
{
    struct draft *draft;
    must(eagle_create(engine, w->head, eagle));
    must(draft_create_eagle(*eagle, w->most, true, &draft));
    return draft;
}

static void write_text(const struct wanted *w, struct draft *draft, struct written *out)
{
    int32_t prompt[PROMPT];
    const float *logits;
    struct token_trie *trie;
    struct generation g = {.engine = open_engine(w, draft || w->head ? DRAFT_MOST : 0),
                           .limit = w->limit,
                           .context = w->context,
                           .draft = draft};
    struct eagle *eagle = NULL;
    if (w->head) g.draft = draft = open_head(w, g.engine, &eagle);
    *out = (struct written){0};
    for (int i = 0; i < PROMPT; i++) prompt[i] = prompt_token(w->model, i);
    if (draft) draft_add(draft, prompt, PROMPT);
    must(generate_sampler(w->model, &w->sampling, false, &g.sampler));
    set_constraint(w, &g, &trie);
    must(generate_prefill(g.engine, 0, prompt, PROMPT, 0, &logits));
    must(generate_first(&g, logits));
    for (int64_t n = 0; n < g.count;) {
        assert_true(g.count == n + 1 && g.count <= w->limit);
        out->ids[n++] = g.token;
        if (!g.end) must(generate_next(&g));
    }
    out->count = g.count;
    out->end = g.end;
    out->last = g.token;
    out->counts = g.speculation.counts;
    look_behind(w, &g, out);
    constraint_destroy(g.constraint);
    token_trie_destroy(trie);
    sampler_destroy(g.sampler);
    if (eagle) draft_destroy(draft);
    eagle_destroy(eagle);
    engine_destroy(g.engine);
}

static void check_same(const struct wanted *w, const struct written *a, const struct written *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
    assert_int_equal(a->end, b->end);
    assert_int_equal(a->last, b->last);
    assert_int_equal(a->position, b->position);
    assert_memory_equal(a->logits, b->logits, (size_t)w->model->config.vocab * sizeof(float));
    assert_int_equal(a->behind, b->behind);
}

/* The text as it was written, with another token here and there. */
static struct draft *foretell(const struct wanted *w, const struct written *text, int64_t most,
                              int64_t every)
{
    struct draft *draft;
    int32_t tokens[PROMPT + CONTEXT + 1];
    must(draft_create(3 * CONTEXT, most, &draft));
    for (int i = 0; i < PROMPT; i++) tokens[i] = prompt_token(w->model, i);
    memcpy(tokens + PROMPT, text->ids, (size_t)text->count * sizeof *tokens);
    for (int64_t i = PROMPT + 4; i < PROMPT + text->count; i += every)
        tokens[i] = (tokens[i] + 1) % (int32_t)w->model->config.vocab;
    draft_add(draft, tokens, PROMPT + text->count);
    return draft;
}

/* With guesses, up to `most` at a time: a head's, or what was foretold. */
static struct speculation_counts check(const struct wanted *w, int64_t most, int64_t every)
{
    struct written alone, guessed;
    struct wanted without = *w, with = *w;
    without.head = NULL;
    with.most = most;
    write_text(&without, NULL, &alone);
    struct draft *draft = w->head ? NULL : foretell(w, &alone, most, every);
    write_text(&with, draft, &guessed);
    check_same(w, &alone, &guessed);
    const struct speculation_counts c = guessed.counts;
    assert_true(c.guessed <= most * c.steps && c.accepted <= c.guessed);
    /* Each step gives a token and those that were guessed right; the first comes with the prompt,
     * and the one that ends a text is no part of it. */
    if (guessed.count)
        assert_int_equal(c.steps + c.accepted,
                         guessed.count - 1 + (guessed.end == GENERATE_STOP_TOKEN));
    draft_destroy(draft);
    free(alone.logits);
    free(guessed.logits);
    return c;
}

static struct wanted usual(const struct model *model)
{
    struct wanted w = {.model = model, .limit = 220, .context = CONTEXT};
    if (model->config.context < CONTEXT) w.context = model->config.context;
    sampler_params_init(&w.sampling);
    return w;
}

/* ---- tests ---- */

static const struct sampler_params ways[] = {
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 1, .seed = 5},
    {.temperature = 0.8, .top_p = 0.9, .seed = 6},
    {.temperature = 1.2, .top_k = 20, .top_p = 1, .seed = 7},
    {.temperature = 0.9, .top_p = 1, .min_p = 0.05, .seed = 8},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Longer than windows, and many times back in each. */
static void test_same_text(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct speculation_counts all = {0};
        for (int way = 0; way < WAYS; way++) {
            static const int64_t most[WAYS] = {16, 8, 5, 1, 16};
            struct wanted w = usual(models[m]);
            w.sampling = ways[way];
            w.run = way % 2 ? 17 : 0;
            const struct speculation_counts c = check(&w, most[way], 9 + way);
            all.steps += c.steps;
            all.guessed += c.guessed;
            all.accepted += c.accepted;
        }
        print_message("%s: %lld steps, %lld tokens guessed, %lld of them right\n", names[m],
                      (long long)all.steps, (long long)all.guessed, (long long)all.accepted);
        assert_true(all.accepted > 200 && all.guessed > all.accepted + 50);
    }
}

/* Limits within guesses, and none at all. */
static void test_limits(void **state)
{
    (void)state;
    for (int64_t limit = 0; limit < 24; limit++) {
        struct wanted w = usual(models[limit % 2]);
        w.limit = limit;
        check(&w, DRAFT_MOST, 50);
    }
}

/* Up to the last position, wherever that is in a step. */
static void test_context(void **state)
{
    (void)state;
    for (int64_t context = PROMPT; context < PROMPT + 20; context++) {
        struct wanted w = usual(models[0]);
        w.context = context;
        check(&w, DRAFT_MOST, 50);
    }
}

/* Steps with less room than there are guesses. */
static void test_small_steps(void **state)
{
    (void)state;
    for (int64_t run = 1; run < 5; run++) {
        struct wanted w = usual(models[0]);
        w.run = run;
        w.limit = 60;
        const struct speculation_counts c = check(&w, DRAFT_MOST, 50);
        assert_true(run == 1 ? !c.guessed : c.accepted > 10);
    }
}

/* Each token has its own mask, also behind a guess. */
static void test_constraint(void **state)
{
    (void)state;
    struct grammar *grammar;
    must(grammar_any_object(GRAMMAR_SPACE_ONE, &grammar));
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct wanted w = usual(models[2]);
        w.sampling.seed = seed;
        w.limit = 120;
        w.grammar = grammar;
        assert_true(check(&w, DRAFT_MOST, 11).accepted > 0);
    }
    grammar_destroy(grammar);
}

/* A head of random numbers is wrong nearly always, so each step goes back; prompts come in pieces,
 * texts end within guesses and at the end of the context. */
static void test_head(void **state)
{
    (void)state;
    const struct eagle_file file = {.target = &models[0]->config, .draft_vocab = 40};
    struct eagle_head *head;
    eagle_file_write(temp_folder(), &file);
    must(eagle_head_open(temp_folder(), &models[0]->config, &head));
    for (int way = 0; way < WAYS; way++) {
        static const int64_t run[WAYS] = {0, 7, 17, 2, 40};
        struct wanted w = usual(models[0]);
        w.sampling = ways[way];
        w.run = run[way];
        w.head = head;
        w.limit = 60 + way;
        const struct speculation_counts c = check(&w, 1 + 3 * way, 0);
        assert_true(c.guessed > 20);
    }
    struct wanted w = usual(models[0]);
    w.head = head;
    for (w.context = PROMPT; w.context < PROMPT + 9; w.context++) check(&w, 4, 0);
    eagle_head_close(head);
}

/* A text is left in the middle of a step, and the engine then holds what was drawn. */
static void test_left(void **state)
{
    (void)state;
    struct wanted w = usual(models[0]);
    struct written alone;
    w.limit = 40;
    write_text(&w, NULL, &alone);
    for (int64_t stop = 1; stop < 12; stop++) {
        struct draft *draft = foretell(&w, &alone, DRAFT_MOST, 1000);
        struct engine *engine = open_engine(&w, DRAFT_MOST);
        struct generation g = {
            .engine = engine, .limit = w.limit, .context = w.context, .draft = draft};
        int32_t prompt[PROMPT];
        const float *logits;
        for (int i = 0; i < PROMPT; i++) prompt[i] = prompt_token(w.model, i);
        draft_add(draft, prompt, PROMPT);
        must(generate_sampler(w.model, &w.sampling, false, &g.sampler));
        must(generate_prefill(engine, 0, prompt, PROMPT, 0, &logits));
        must(generate_first(&g, logits));
        while (g.count < stop) must(generate_next(&g));
        assert_int_equal(speculation_position(&g.speculation), PROMPT + stop - 1);
        must(speculation_end(&g.speculation));
        must(speculation_end(&g.speculation));
        assert_int_equal(engine_position(engine, 0), PROMPT + stop - 1);
        g.draft = NULL; /* it goes on without */
        speculation_begin(&g.speculation, engine, 0, NULL);
        while (!g.end) {
            assert_int_equal(g.token, alone.ids[g.count - 1]);
            must(generate_next(&g));
        }
        sampler_destroy(g.sampler);
        engine_destroy(engine);
        draft_destroy(draft);
    }
    free(alone.logits);
}

static int open_models(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        if (model_open(names[i], &models[i]) != SOL_OK) return -1;
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) model_close(models[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_text),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_small_steps),
        cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_left),
        cmocka_unit_test_setup_teardown(test_head, temp_folder_make, temp_folder_remove),
    };
    if (access(names[2], R_OK) != 0) {
        print_message("skipped: there is no built-in model\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, open_models, close_models);
}
