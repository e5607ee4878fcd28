/* From a prompt to its tokens: where a text ends, what may be drawn, texts side by side in one
 * engine, and that the public API writes the same. */
#include "generate/generate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sol/sol.h"

enum { CONTEXT = 64, BATCH = 6, TOKENS = 24, TEXTS = 3 };

static struct model *model;
static const int32_t prompts[TEXTS][9] = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {9, 8, 7}, {50, 40, 30, 20}};
static const int64_t lengths[TEXTS] = {9, 3, 4};

static struct engine *open_engine(void)
{
    struct engine *engine;
    struct engine_params params;
    engine_params_init(&params);
    params.context = CONTEXT;
    params.max_batch = BATCH;
    params.sequences = TEXTS;
    params.threads = 1;
    params.chooser.loosest = NUMERICS_EXACT; /* the same bits whatever else is computed */
    if (engine_create(model, &params, &engine) != SOL_OK) fail_msg("%s", sol_last_error());
    return engine;
}

static struct sampler *open_sampler(uint64_t seed, bool control)
{
    struct sampler *sampler;
    struct sampler_params params;
    sampler_params_init(&params);
    params.seed = seed;
    assert_int_equal(generate_sampler(model, &params, control, &sampler), SOL_OK);
    return sampler;
}

static struct generation begin(struct engine *engine, int32_t text, int64_t limit, int64_t step)
{
    const float *logits;
    struct generation g = {.engine = engine,
                           .sampler = open_sampler((uint64_t)text, false),
                           .sequence = text,
                           .limit = limit,
                           .context = CONTEXT};
    assert_int_equal(generate_prefill(engine, text, prompts[text], lengths[text], step, &logits),
                     SOL_OK);
    assert_int_equal(generate_first(&g, logits), SOL_OK);
    return g;
}

/* One after the other, then a token of each in turn. */
static void texts_side_by_side(void **state)
{
    (void)state;
    int32_t alone[TEXTS][TOKENS];
    int64_t count[TEXTS];
    struct generation g[TEXTS];
    for (int32_t t = 0; t < TEXTS; t++) {
        struct engine *engine = open_engine();
        g[t] = begin(engine, t, TOKENS, BATCH);
        while (!g[t].end) {
            alone[t][g[t].count - 1] = g[t].token;
            assert_int_equal(generate_next(&g[t]), SOL_OK);
        }
        count[t] = g[t].count;
        assert_true(count[t] > 1);
        sampler_destroy(g[t].sampler);
        engine_destroy(engine);
    }
    assert_true(alone[0][0] != alone[1][0] || alone[0][1] != alone[1][1]);
    struct engine *engine = open_engine();
    for (int32_t t = 0; t < TEXTS; t++) g[t] = begin(engine, t, TOKENS, 0);
    for (bool on = true; on;) {
        on = false;
        for (int32_t t = 0; t < TEXTS; t++) {
            if (g[t].end) continue;
            assert_int_equal(g[t].token, alone[t][g[t].count - 1]);
            assert_int_equal(generate_next(&g[t]), SOL_OK);
            on = true;
        }
    }
    for (int32_t t = 0; t < TEXTS; t++) {
        assert_int_equal(g[t].count, count[t]);
        sampler_destroy(g[t].sampler);
    }
    engine_destroy(engine);
}

static void ends(void **state)
{
    (void)state;
    struct engine *engine = open_engine();
    struct generation none = begin(engine, 0, 0, 0), one = begin(engine, 1, 1, 0);
    assert_int_equal(none.end, GENERATE_LENGTH);
    assert_int_equal(none.count, 0);
    assert_int_equal(one.end, GENERATE_LENGTH);
    assert_int_equal(one.count, 1);
    sampler_destroy(one.sampler);
    sampler_destroy(none.sampler);
    engine_reset(engine, 0);

    /* Every position is used, and one token more is known than was computed. Greedily this text has
     * no stop token before. */
    struct generation g = begin(engine, 0, 1000, 0);
    struct sampler *drawn = g.sampler;
    struct sampler_params greedy;
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    assert_int_equal(generate_sampler(model, &greedy, false, &g.sampler), SOL_OK);
    while (!g.end) assert_int_equal(generate_next(&g), SOL_OK);
    assert_int_equal(g.end, GENERATE_CONTEXT);
    assert_int_equal(g.count, CONTEXT - lengths[0] + 1);
    assert_int_equal(engine_position(engine, 0), CONTEXT);
    const float *logits;
    assert_int_equal(generate_prefill(engine, 0, prompts[1], 1, 0, &logits), SOL_E_ARGUMENT);
    sampler_destroy(drawn);

    /* Logits that leave only one token. */
    int64_t vocab = model->config.vocab;
    float *certain = calloc((size_t)vocab, sizeof *certain);
    assert_non_null(certain);
    int32_t stop = 0;
    while (stop < vocab && !generate_is_stop(model, stop)) stop++;
    assert_true(stop < vocab);
    certain[stop] = 100;
    assert_int_equal(generate_first(&g, certain), SOL_OK);
    assert_int_equal(g.end, GENERATE_STOP_TOKEN);
    assert_int_equal(g.token, stop);
    assert_int_equal(g.count, 0);
    free(certain);
    sampler_destroy(g.sampler);
    engine_destroy(engine);
}

/* A token outside the vocabulary is found before the first step, wherever it stands. */
static void nothing_changes(void **state)
{
    (void)state;
    struct engine *engine = open_engine();
    const float *logits;
    int32_t tokens[4 * BATCH] = {0};
    tokens[4 * BATCH - 1] = (int32_t)model->config.vocab;
    assert_int_equal(generate_prefill(engine, 1, tokens, 4 * BATCH, 0, &logits), SOL_E_ARGUMENT);
    assert_int_equal(engine_position(engine, 1), 0);
    engine_destroy(engine);
}

static void what_may_be_drawn(void **state)
{
    (void)state;
    const struct tokenizer *t = model->tokenizer;
    int64_t vocab = model->config.vocab, controls = 0;
    float *logits = calloc((size_t)vocab, sizeof *logits);
    assert_non_null(logits);
    for (int with = 0; with < 2; with++) {
        struct sampler *sampler = open_sampler(1, with);
        for (int32_t id = 0; id < vocab; id++) {
            bool token = id < tokenizer_vocab(t) && tokenizer_bytes(t, id).length > 0;
            bool control = token && tokenizer_is_control(t, id);
            bool may = generate_is_stop(model, id) || (token && (with || !control));
            int32_t drawn;
            controls += control && !generate_is_stop(model, id);
            if (may && !control && id % 16) continue; /* texts: some */
            logits[id] = 1000;
            assert_int_equal(sampler_next(sampler, logits, &drawn), SOL_OK);
            assert_int_equal(drawn == id, may);
            logits[id] = 0;
        }
        sampler_destroy(sampler);
    }
    assert_true(controls > 0);
    free(logits);
}

/* The loop of examples/continue.c, drawing as sol run does. */
static void the_api_writes_the_same(void **state)
{
    (void)state;
    enum { LIMIT = 30 };
    int32_t ids[LIMIT];
    const char *text = "Once upon a time there was";
    struct token_list prompt = {0};
    assert_int_equal(tokenizer_encode(model->tokenizer, text, strlen(text), false, &prompt),
                     SOL_OK);
    struct engine *engine;
    struct engine_params params;
    const float *logits;
    engine_params_init(&params);
    params.threads = 1;
    assert_int_equal(engine_create(model, &params, &engine), SOL_OK);
    struct generation g = {
        .engine = engine, .sampler = open_sampler(7, false), .limit = LIMIT, .context = 4096};
    assert_int_equal(generate_prefill(engine, 0, prompt.ids, (int64_t)prompt.count, 512, &logits),
                     SOL_OK);
    assert_int_equal(generate_first(&g, logits), SOL_OK);
    for (int64_t n = 0; n < g.count;) {
        ids[n++] = g.token;
        if (!g.end) assert_int_equal(generate_next(&g), SOL_OK);
    }
    sampler_destroy(g.sampler);
    engine_destroy(engine);

    struct sol_model *m;
    struct sol_session *session;
    struct sol_sampler *sampler;
    struct sol_session_params how;
    struct sol_sampler_params drawing;
    sol_session_params_init(&how);
    how.threads = 1;
    sol_sampler_params_init(&drawing);
    drawing.seed = 7;
    assert_int_equal(sol_model_open(NULL, NULL, &m), SOL_OK);
    assert_int_equal(sol_session_create(m, &how, &session), SOL_OK);
    assert_int_equal(sol_sampler_create(m, &drawing, &sampler), SOL_OK);
    assert_int_equal(sol_session_eval(session, prompt.ids, prompt.count), SOL_OK);
    for (int64_t n = 0;; n++) {
        int32_t id;
        assert_int_equal(sol_sampler_next(sampler, sol_session_logits(session), &id), SOL_OK);
        if (n == g.count) {
            assert_int_equal(sol_model_is_stop(m, id), g.end == GENERATE_STOP_TOKEN);
            break;
        }
        assert_int_equal(id, ids[n]);
        assert_int_equal(sol_session_eval(session, &id, 1), SOL_OK);
    }
    sol_sampler_destroy(sampler);
    sol_session_destroy(session);
    sol_model_close(m);
    token_list_free(&prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_side_by_side),      cmocka_unit_test(ends),
        cmocka_unit_test(nothing_changes),         cmocka_unit_test(what_may_be_drawn),
        cmocka_unit_test(the_api_writes_the_same),
    };
    if (access(SOL_SOURCE_DIR "/models/builtin.gguf", R_OK) != 0) {
        print_message("skipped: there is no built-in model\n");
        return 0;
    }
    if (model_open(NULL, &model) != SOL_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_close(model);
    return failed;
}
