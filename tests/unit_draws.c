/* Steps whose outputs differ in what becomes of them: drawn on a GPU (SOL_TEST_BACKEND=cuda) or on
 * the host, with logits or without, none at all. What an output gets depends on no other one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/device.h"
#include "infer/engine.h"
#include "infer/sampler.h"
#include "model/model.h"
#include "support/backend.h"

enum { TEXTS = 5, STEPS = 12 };

/* What a GPU can draw, or cannot: of the likeliest token alone top_k and top_p leave what it is.
 * The last one draws nothing beside the others. */
static const struct sampler_params asked[TEXTS] = {
    {.temperature = 0.8, .top_p = 1, .seed = 1},
    {.temperature = 1, .top_k = 9, .top_p = 1, .seed = 2},
    {.temperature = 0, .top_k = 3, .top_p = 0.5},
    {.temperature = 1.5, .top_p = 0.9, .seed = 4},
    {.temperature = 1, .top_p = 1, .seed = 5}};
static const bool by_gpu[TEXTS] = {true, false, true, false, true};
enum { DRAWS_NOTHING = 4 };

static struct model *model;
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct engine *open_engine(void)
{
    struct engine_params p;
    struct engine *engine;
    engine_params_init(&p);
    p.context = STEPS + 1;
    p.sequences = p.max_batch = p.max_outputs = TEXTS;
    p.threads = 1;
    p.chooser.device.gpu = gpu;
    must(engine_create(model, &p, &engine));
    return engine;
}

static struct sampler *sampler_of(int i)
{
    struct sampler *sampler;
    must(sampler_create(&asked[i], model->config.vocab, NULL, &sampler));
    return sampler;
}

/* What becomes of one output. */
struct text {
    int32_t tokens[STEPS];
    float *logits; /* [STEPS][vocab] */
};

/* Step s of all texts, whose tokens do not depend on what is drawn. */
static const float *step(struct engine *e, int s, const struct engine_outputs *outputs,
                         int32_t drawn[TEXTS])
{
    struct engine_row rows[TEXTS];
    const float *logits;
    for (int32_t i = 0; i < TEXTS; i++)
        rows[i] = (struct engine_row){(7 * i + 3 * s + 1) % (int32_t)model->config.vocab, i, true};
    must(engine_begin(e, rows, TEXTS, outputs));
    must(engine_finish(e, drawn, &logits));
    return logits;
}

/* Nothing becomes of the others' outputs. */
static void draw_alone(struct engine *e, int i, struct text *t)
{
    const size_t vocab = (size_t)model->config.vocab;
    struct sampler *samplers[TEXTS] = {NULL};
    bool wanted[TEXTS] = {false};
    int32_t drawn[TEXTS];
    samplers[i] = sampler_of(i);
    wanted[i] = true;
    t->logits = malloc(STEPS * vocab * sizeof *t->logits);
    assert_non_null(t->logits);
    for (int32_t k = 0; k < TEXTS; k++) engine_reset(e, k);
    for (int s = 0; s < STEPS; s++) {
        const struct engine_outputs outputs = {
            .samplers = samplers, .logits = wanted, .draws_late = s % 2 != 0};
        const float *logits = step(e, s, &outputs, drawn);
        memcpy(t->logits + (size_t)s * vocab, logits + (size_t)i * vocab, vocab * sizeof *logits);
        t->tokens[s] = drawn[i];
        assert_in_range(drawn[i], 0, vocab - 1);
    }
    sampler_destroy(samplers[i]);
}

/* `wants`, a bit each: whose logits. */
static void draw_together(struct engine *e, struct sampler **samplers, const struct text *alone,
                          int s, unsigned wants)
{
    const size_t vocab = (size_t)model->config.vocab;
    bool wanted[TEXTS];
    int32_t drawn[TEXTS];
    for (int i = 0; i < TEXTS; i++) wanted[i] = wants >> i & 1;
    const struct engine_outputs outputs = {
        .samplers = samplers, .logits = wanted, .draws_late = s % 3 == 0};
    const float *logits = step(e, s, &outputs, drawn);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(drawn[i], i == DRAWS_NOTHING ? ENGINE_NOT_DRAWN : alone[i].tokens[s]);
        if (wanted[i])
            assert_memory_equal(logits + (size_t)i * vocab, alone[i].logits + (size_t)s * vocab,
                                vocab * sizeof *logits);
    }
}

static void what_an_output_gets_depends_on_no_other(void **state)
{
    (void)state;
    struct engine *e = open_engine();
    struct text alone[TEXTS];
    struct sampler *samplers[TEXTS] = {NULL};
    for (int i = 0; i < TEXTS; i++) draw_alone(e, i, &alone[i]);
    for (int i = 0; i < TEXTS; i++) engine_reset(e, i);
    for (int i = 0; i < DRAWS_NOTHING; i++) samplers[i] = sampler_of(i);
    for (int s = 0; s < STEPS; s++) draw_together(e, samplers, alone, s, (unsigned)s * 7 % 32);
    for (int i = 0; i < TEXTS; i++) {
        sampler_destroy(samplers[i]);
        free(alone[i].logits);
    }
    engine_destroy(e);
}

/* Where a token is drawn there its logits stay there: the host's buffer keeps what was in it. */
static void only_what_is_wanted_comes(void **state)
{
    (void)state;
    if (!gpu) {
        print_message("skipped: on a processor logits are where they are made\n");
        return;
    }
    const int64_t vocab = model->config.vocab;
    const bool all[TEXTS] = {true, true, true, true, true};
    struct engine *e = open_engine();
    struct sampler *samplers[TEXTS];
    int32_t drawn[TEXTS];
    for (int i = 0; i < TEXTS; i++) samplers[i] = sampler_of(i);
    float *here = (float *)(uintptr_t)step(
        e, 0, &(struct engine_outputs){.samplers = samplers, .logits = all}, drawn);
    for (int64_t i = 0; i < TEXTS; i++) here[i * vocab] = 12345;
    step(e, 1, &(struct engine_outputs){.samplers = samplers}, drawn);
    for (int i = 0; i < TEXTS; i++) {
        const bool came = here[i * vocab] != 12345;
        assert_int_equal(came, !by_gpu[i]);
        sampler_destroy(samplers[i]);
    }
    engine_destroy(e);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_an_output_gets_depends_on_no_other),
                                       cmocka_unit_test(only_what_is_wanted_comes)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
