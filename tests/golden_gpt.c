/* GPT against logits of nanochat's own code, and of transformers (tests/golden/README.md): the text
 * at once, token by token, and twice in one engine, rows of both in turn. Kernels that keep
 * float32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/engine.h"
#include "sol/status.h"

static const double BOUND = 1e-4; /* of a row's distance, relative to its norm */

enum { TOKENS_MAX = 256, LATE = 7, CHUNK = 48 };

/* What the file holds. */
struct golden {
    uint32_t n_tokens, n_positions, vocab;
    int32_t tokens[TOKENS_MAX], positions[TOKENS_MAX];
    float *logits;
};

/* What of it was compared: by position, in each of the two sequences. */
struct seen {
    const struct golden *golden;
    const struct engine_row *rows;
    int32_t next[2];
    int compared;
    double worst;
};

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static void read_golden(const char *name, struct golden *g)
{
    char path[256], magic[8];
    snprintf(path, sizeof path, SOL_SOURCE_DIR "/tests/golden/%s.bin", name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    assert_int_equal(fread(magic, 1, 8, from), 8);
    assert_memory_equal(magic, "SOLGPT_1", 8);
    assert_int_equal(fread(&g->n_tokens, sizeof(uint32_t), 3, from), 3);
    assert_in_range(g->n_tokens, 1, TOKENS_MAX);
    assert_in_range(g->n_positions, 1, g->n_tokens);
    size_t count = (size_t)g->n_positions * g->vocab;
    g->logits = malloc(count * sizeof *g->logits);
    assert_non_null(g->logits);
    assert_int_equal(fread(g->tokens, 4, g->n_tokens, from), g->n_tokens);
    assert_int_equal(fread(g->positions, 4, g->n_positions, from), g->n_positions);
    assert_int_equal(fread(g->logits, 4, count, from), count);
    fclose(from);
}

static void compare(struct seen *s, int32_t position, const float *logits)
{
    const struct golden *g = s->golden;
    for (uint32_t p = 0; p < g->n_positions; p++) {
        double apart = 0, norm = 0;
        const float *want = g->logits + (size_t)p * g->vocab;
        if (g->positions[p] != position) continue;
        for (uint32_t i = 0; i < g->vocab; i++) {
            apart += ((double)logits[i] - want[i]) * ((double)logits[i] - want[i]);
            norm += (double)want[i] * want[i];
        }
        double distance = sqrt(apart / norm);
        if (!(distance <= BOUND)) fail_msg("position %d: %g over %g", position, distance, BOUND);
        if (distance > s->worst) s->worst = distance;
        s->compared++;
    }
}

/* All rows want output, so that output row i is row i of the step. */
static enum sol_status on_logits(void *arg, int64_t first, const int32_t *rows, int64_t n,
                                 const float *logits)
{
    struct seen *s = arg;
    for (int64_t i = 0; i < n; i++) {
        int32_t sequence = s->rows[first + rows[i]].sequence;
        compare(s, s->next[sequence]++, logits + i * s->golden->vocab);
    }
    return SOL_OK;
}

static struct engine *make_engine(const struct model *model, int64_t batch)
{
    struct engine *engine;
    struct engine_params params;
    engine_params_init(&params);
    params.context = TOKENS_MAX;
    params.sequences = 2;
    params.max_batch = params.max_outputs = batch;
    params.kv_dtype = DTYPE_F32;
    params.chooser.loosest = NUMERICS_EXACT;
    must(engine_create(model, &params, &engine));
    return engine;
}

/* `each` rows a call; `times` must be seen of every position that the file has. */
static void check(const struct model *model, const struct golden *g, const char *how,
                  const struct engine_row *rows, int64_t n, int64_t batch, int64_t each, int times)
{
    struct engine *engine = make_engine(model, batch);
    struct seen seen = {.golden = g};
    for (int64_t at = 0; at < n; at += each) {
        seen.rows = rows + at;
        must(engine_eval(engine, rows + at, n - at < each ? n - at : each, on_logits, &seen, NULL));
    }
    print_message("%-12s worst %.2g of %g\n", how, seen.worst, BOUND);
    assert_int_equal(seen.compared, times * (int)g->n_positions);
    engine_destroy(engine);
}

static void check_model(const char *name)
{
    struct golden g;
    struct model *model;
    char path[256];
    struct engine_row rows[2 * TOKENS_MAX];
    int64_t n = 0;
    read_golden(name, &g);
    snprintf(path, sizeof path, SOL_SOURCE_DIR "/tests/golden/%s", name);
    must(model_open(path, &model));
    assert_int_equal(model->config.vocab, g.vocab);
    for (uint32_t i = 0; i < g.n_tokens; i++)
        rows[i] = (struct engine_row){.token = g.tokens[i], .output = true};
    check(model, &g, "at once", rows, g.n_tokens, TOKENS_MAX, TOKENS_MAX, 1);
    check(model, &g, "in chunks", rows, g.n_tokens, CHUNK, TOKENS_MAX, 1);
    check(model, &g, "one by one", rows, g.n_tokens, 1, 1, 1);
    for (uint32_t i = 0; i < g.n_tokens + LATE; i++) {
        if (i < g.n_tokens) rows[n++] = (struct engine_row){g.tokens[i], 1, true};
        if (i >= LATE) rows[n++] = (struct engine_row){g.tokens[i - LATE], 0, true};
    }
    check(model, &g, "in turn", rows, n, CHUNK, CHUNK - 5, 2);
    free(g.logits);
    model_close(model);
}

static void july(void **state)
{
    (void)state;
    check_model("gpt_2026_07");
}

static void january(void **state)
{
    (void)state;
    check_model("gpt_2026_01");
}

static void transformers(void **state)
{
    (void)state;
    check_model("gpt_transformers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(july), cmocka_unit_test(january),
                                       cmocka_unit_test(transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
