/* What sol tune makes of times that are made up, and a search on a GPU that runs nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "check/tune.h"
#include "check/tune_select.h"
#include "check/tune_train.h"
#include "driver/cuda.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "ops/linear_cross_entropy.h"
#include "ops/ops.h"
#include "support/fail_calls.h"

/* ---- made-up times ---- */

struct clock {
    double ns[TUNE_CANDIDATES_MAX]; /* true times */
    double noise, drift;            /* of each measurement, as a part; of each next one */
    int wild;                       /* each so many-th takes five times as long; 0: none */
    int calls, of[TUNE_CANDIDATES_MAX];
    int fails_at; /* 0: never */
    struct rng rng;
};

static enum sol_status read_clock(void *arg, int candidate, double *ns)
{
    struct clock *c = arg;
    c->of[candidate]++;
    if (++c->calls == c->fails_at) return status_set(SOL_E_DEVICE, "planted");
    *ns =
        c->ns[candidate] * (1 + c->noise * (double)rng_normal(&c->rng)) * (1 + c->drift * c->calls);
    if (c->wild && c->calls % c->wild == 0) *ns *= 5;
    return SOL_OK;
}

static struct tune_choice choice_of(struct clock *c, int n, int usual)
{
    struct tune_choice out;
    assert_int_equal(tune_select(read_clock, c, n, usual, TUNE_LEAST_GAIN, &out), SOL_OK);
    return out;
}

static void the_fastest_wins_beyond_noise(void **state)
{
    (void)state;
    struct clock c = {.ns = {100, 300, 90, 97}, .noise = 0.01};
    rng_seed(&c.rng, 1);
    struct tune_choice t = choice_of(&c, 4, 0);
    assert_int_equal(t.fastest, 2);
    assert_true(fabs(t.gain - 100.0 / 90 + 1) < 0.01 && t.low > 0.08 && t.high < 0.15);
    assert_true(t.low <= t.gain && t.gain <= t.high && fabs(t.usual_ns - 100) < 2);
    assert_int_equal(c.of[1], 1); /* three times as slow: once is enough */
}

static void drifts_and_wild_values_change_nothing(void **state)
{
    (void)state;
    struct clock c = {.ns = {100, 103, 101}, .noise = 0.002, .drift = 0.002, .wild = 13};
    rng_seed(&c.rng, 2);
    assert_int_equal(choice_of(&c, 3, 0).fastest, 0);
    c.ns[2] = 95;
    assert_int_equal(choice_of(&c, 3, 0).fastest, 2);
}

static void small_gains_are_none(void **state)
{
    (void)state;
    struct clock c = {.ns = {100, 99.4}, .noise = 0.0005};
    rng_seed(&c.rng, 3);
    struct tune_choice t = choice_of(&c, 2, 0);
    assert_int_equal(t.fastest, 0);
    assert_true(t.gain == 0 && t.low == 0 && t.ns == t.usual_ns);
}

/* Twenty that are all alike: the luckiest of them must not win, in a hundred tries hardly ever. */
static void luck_does_not_win(void **state)
{
    (void)state;
    int won = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct clock c = {.noise = 0.05};
        for (int i = 0; i < 20; i++) c.ns[i] = 100;
        rng_seed(&c.rng, seed);
        won += choice_of(&c, 20, 7).fastest != 7;
    }
    assert_true(won <= 5);
}

static void one_candidate_and_failures(void **state)
{
    (void)state;
    struct clock c = {.ns = {100, 50}};
    rng_seed(&c.rng, 4);
    assert_int_equal(choice_of(&c, 1, 0).fastest, 0);
    int all = 2 * 9 + 2 * 15;
    for (int i = 1; i <= all + 1; i++) {
        struct tune_choice out;
        struct clock fails = {.ns = {100, 50}, .fails_at = i};
        rng_seed(&fails.rng, 5);
        assert_int_equal(tune_select(read_clock, &fails, 2, 0, TUNE_LEAST_GAIN, &out),
                         i > all ? SOL_OK : SOL_E_DEVICE);
    }
}

/* ---- a search ---- */

static const struct fake_cuda_params roomy = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)1 << 30};
static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)256 << 20};

static enum sol_status search(struct tuning *found, struct tune_report *report, bool list_only)
{
    static const int64_t rows[] = {1, 8}, depths[] = {0, 40};
    struct model *model = NULL;
    struct gpu *gpu = NULL;
    struct tune_params params = {.rows = rows,
                                 .n_rows = 2,
                                 .depths = depths,
                                 .n_depths = 2,
                                 .seconds = 60,
                                 .list_only = list_only};
    enum sol_status status = model_open("synth:tiny,layers=2", &model);
    if (status == SOL_OK) status = gpu_open(0, &gpu);
    if (status == SOL_OK) {
        engine_params_init(&params.engine);
        params.engine.threads = 1;
        params.engine.chooser.device.gpu = gpu;
        status = tune_run(model, &params, found, report);
    }
    gpu_close(gpu);
    model_close(model);
    return status;
}

static void a_search_finds_a_models_problems(void **state)
{
    (void)state;
    struct tuning found = {0};
    struct tune_report report = {0};
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(search(&found, &report, true), SOL_OK);
    assert_int_equal(found.count, 0);
    size_t listed = report.count;
    bool experts = false, gemm = false;
    for (size_t i = 0; i < report.count; i++) {
        const struct tune_result *r = &report.results[i];
        assert_int_equal(r->state, TUNE_LISTED);
        assert_true(r->candidates >= 2 && r->entry.ns == 0);
        experts = experts || (r->entry.op == &op_moe && r->step_rows == 8 && r->calls == 2);
        gemm = gemm || (r->entry.op == &op_gemm && r->entry.problem.rows == 32);
    }
    assert_true(experts && gemm);
    tune_report_free(&report);
    assert_int_equal(search(&found, &report, false), SOL_OK);
    assert_int_equal(report.count, listed);
    assert_int_equal(found.count, listed); /* all alike on this GPU: each stays as it is */
    for (size_t i = 0; i < found.count; i++)
        assert_true(tuning_is_usual(&found.entries[i]) && found.entries[i].ns > 0);
    tune_report_free(&report);
    tuning_clear(&found);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static enum sol_status short_search(void)
{
    static const int64_t rows[] = {2}, depths[] = {0};
    struct tuning found = {0};
    struct tune_report report = {0};
    struct model *model = NULL;
    struct gpu *gpu = NULL;
    struct tune_params params = {
        .rows = rows, .n_rows = 1, .depths = depths, .n_depths = 1, .seconds = 60};
    enum sol_status status = model_open("synth:tiny,layers=1", &model);
    if (status == SOL_OK) status = gpu_open(0, &gpu);
    if (status == SOL_OK) {
        engine_params_init(&params.engine);
        params.engine.threads = 1;
        params.engine.chooser.device.gpu = gpu;
        status = chooser_force(&params.engine.chooser, "gemm=gemm_f32_any_cuda");
    }
    if (status == SOL_OK) status = tune_run(model, &params, &found, &report);
    tune_report_free(&report);
    tuning_clear(&found);
    gpu_close(gpu);
    model_close(model);
    return status;
}

static void failing_calls_are_reported(void **state)
{
    (void)state;
    fail_each_call(&hopper, short_search, 60);
}

/* ---- a search over a step of training ---- */

enum { VOCAB = 4096 };

struct train_stage {
    struct train_recipe recipe;
    struct gpu *gpu;
    struct tune_train_params params;
};

static enum sol_status open_train_stage(struct train_stage *s)
{
    struct train_flags flags;
    train_flags_init(&flags);
    flags.depth = 1;
    flags.aspect_ratio = flags.head_dim = 64;
    flags.max_seq_len = 64;
    flags.device_batch_size = 8;
    flags.total_batch_size = 512;
    *s = (struct train_stage){.params = {.update = true, .seconds = 60}};
    SOL_TRY(recipe_settle(&flags, VOCAB, &s->recipe));
    SOL_TRY(gpu_open(0, &s->gpu));
    trainer_params_init(&s->params.trainer);
    s->params.trainer.recipe = &s->recipe;
    s->params.trainer.sequences = 8;
    s->params.trainer.bf16 = true;
    s->params.trainer.threads = 1;
    s->params.trainer.chooser.device.gpu = s->gpu;
    return SOL_OK;
}

static size_t count_state(const struct tune_report *report, enum tune_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < report->count; i++) n += report->results[i].state == state;
    return n;
}

static const struct tune_result *result_of(const struct tune_report *report, const struct op *op)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->results[i].entry.op == op) return &report->results[i];
    return NULL;
}

static void a_training_step_is_searched_once(void **state)
{
    (void)state;
    struct train_stage s;
    struct tuning found = {0};
    struct tune_report report = {0};
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(open_train_stage(&s), SOL_OK);
    assert_int_equal(tune_train(&s.params, &found, &report), SOL_OK);
    const size_t all = report.count;
    assert_true(all > 4 && count_state(&report, TUNE_KEPT) == all && report.n_steps == 2);
    assert_true(result_of(&report, &op_self_attention) && result_of(&report, &op_matmul));
    assert_true(result_of(&report, &op_linear_cross_entropy)->calls == 1);
    tune_report_free(&report);
    assert_int_equal(tune_train(&s.params, &found, &report), SOL_OK);
    assert_int_equal(count_state(&report, TUNE_KNOWN), all);
    tune_report_free(&report);
    s.params.again = true;
    assert_int_equal(tune_train(&s.params, &found, &report), SOL_OK);
    assert_int_equal(count_state(&report, TUNE_KEPT), all);
    tune_report_free(&report);
    tuning_clear(&found);
    gpu_close(s.gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static enum sol_status short_train_search(void)
{
    struct train_stage s = {.gpu = NULL};
    struct tuning found = {0};
    struct tune_report report = {0};
    enum sol_status status = open_train_stage(&s);
    if (status == SOL_OK) status = tune_train(&s.params, &found, &report);
    tune_report_free(&report);
    tuning_clear(&found);
    gpu_close(s.gpu);
    return status;
}

static void failing_calls_of_training_are_reported(void **state)
{
    (void)state;
    fail_each_call(&hopper, short_train_search, 40);
}

/* A limit of memory leaves no room beside what the trainer takes. */
static void scratch_may_grow_into_what_is_free(void **state)
{
    (void)state;
    struct train_stage s;
    struct trainer *trainer;
    struct trainer_memory memory;
    size_t room;
    cuda_replace(fake_cuda_start(&roomy));
    assert_int_equal(open_train_stage(&s), SOL_OK);
    struct trainer_params *p = &s.params.trainer;
    assert_int_equal(trainer_create(p, &trainer), SOL_OK);
    trainer_memory(trainer, &memory);
    assert_int_equal(trainer_scratch_room(trainer, &room), SOL_OK);
    assert_true(room > memory.scratch && room < roomy.memory);
    trainer_destroy(trainer);
    p->memory = trainer_memory_total(&memory) + 1000;
    assert_int_equal(trainer_create(p, &trainer), SOL_OK);
    assert_int_equal(trainer_scratch_room(trainer, &room), SOL_OK);
    assert_int_equal(room, memory.scratch + 1000);
    trainer_destroy(trainer);
    gpu_close(s.gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* ---- memory ---- */

enum { LOSS_ROWS = 64, LOSS_VOCAB = 128, LOSS_HIDDEN = 16 };

/* All logits at once against 16 rows at a time, where nothing else is measured. */
static struct tune_candidate measured_plain(const struct linear_cross_entropy_args *args,
                                            size_t most_scratch, int *fastest)
{
    const struct op *op = &op_linear_cross_entropy;
    struct op_context context = {.pool = NULL};
    struct tune_site site = {.context = &context, .most_scratch = most_scratch};
    struct tune_candidate candidates[] = {{.v = 0, .choice = 0}, {.v = op->n_variants}};
    const struct tune_calls calls = {.op = op, .args = {args}, .n = 1};
    struct tune_choice choice;
    chooser_init(&site.chooser, 1);
    assert_int_equal(pool_create(1, &context.pool), SOL_OK);
    assert_int_equal(tune_measure(&site, &calls, candidates, 2, 0, &choice), SOL_OK);
    assert_null(site.scratch);
    pool_destroy(context.pool);
    assert_false(candidates[0].large || candidates[0].wrong);
    *fastest = choice.fastest;
    return candidates[1];
}

static void what_does_not_fit_is_not_measured(void **state)
{
    (void)state;
    static float x[LOSS_ROWS * LOSS_HIDDEN], w[LOSS_VOCAB * LOSS_HIDDEN], nll[LOSS_ROWS];
    static float dx[LOSS_ROWS * LOSS_HIDDEN], dw[LOSS_VOCAB * LOSS_HIDDEN], scale = 1;
    static int32_t target[LOSS_ROWS];
    struct rng rng;
    rng_seed(&rng, 7);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) w[i] = rng_normal(&rng);
    const struct linear_cross_entropy_args args = {.m = LOSS_ROWS,
                                                   .hidden = LOSS_HIDDEN,
                                                   .vocab = LOSS_VOCAB,
                                                   .cap = 15,
                                                   .gradient = true,
                                                   .target = target,
                                                   .scale = &scale,
                                                   .x = matrix_f32(x, LOSS_ROWS, LOSS_HIDDEN),
                                                   .w = matrix_f32(w, LOSS_VOCAB, LOSS_HIDDEN),
                                                   .dx = matrix_f32(dx, LOSS_ROWS, LOSS_HIDDEN),
                                                   .dw = matrix_f32(dw, LOSS_VOCAB, LOSS_HIDDEN),
                                                   .nll = nll};
    const size_t logits = LOSS_ROWS * LOSS_VOCAB * sizeof(float);
    int fastest;
    struct tune_candidate plain = measured_plain(&args, 0, &fastest);
    assert_false(plain.large || plain.wrong);
    plain = measured_plain(&args, logits - 1, &fastest);
    assert_true(plain.large && fastest == 0);
}

/* ---- what a call updates ---- */

static enum sol_status never(void *arg)
{
    (void)arg;
    fail();
    return SOL_OK;
}

/* More than is compared: each candidate finds the input that the first one found. */
static void long_updates_are_put_back(void **state)
{
    (void)state;
    enum { ROWS = 3000, COLS = 3000 };
    const size_t count = (size_t)ROWS * COLS;
    const struct op *op = &op_swiglu;
    float *gate = malloc(count * sizeof *gate), *up = malloc(count * sizeof *up);
    assert_true(gate && up);
    for (size_t i = 0; i < count; i++) {
        gate[i] = (float)((double)(i % 97) / 40 - 1);
        up[i] = (float)((double)(i % 89) / 40 - 1);
    }
    const struct swiglu_args args = {.m = ROWS,
                                     .n = COLS,
                                     .alpha = 1.702f,
                                     .limit = 7,
                                     .up = matrix_f32(up, ROWS, COLS),
                                     .gate = matrix_f32(gate, ROWS, COLS)};
    struct op_context context = {.pool = NULL};
    struct tune_site site = {.context = &context, .renew = never};
    struct tune_candidate candidates[TUNE_CANDIDATES_MAX] = {{0}};
    const struct tune_calls calls = {.op = op, .args = {&args}, .n = 1};
    struct tune_choice choice;
    char why[OP_REASON_MAX];
    int n = 0;
    chooser_init(&site.chooser, 1);
    for (int v = 0; v < op->n_variants; v++)
        if (chooser_can_run(&site.chooser, op, v, &args, why)) candidates[n++].v = v;
    while (n < 2) candidates[n++].v = op->n_variants; /* the reference */
    assert_int_equal(pool_create(1, &context.pool), SOL_OK);
    assert_int_equal(tune_measure(&site, &calls, candidates, n, 0, &choice), SOL_OK);
    for (int i = 0; i < n; i++) assert_false(candidates[i].wrong);
    pool_destroy(context.pool);
    free(up);
    free(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_wins_beyond_noise),
        cmocka_unit_test(drifts_and_wild_values_change_nothing),
        cmocka_unit_test(small_gains_are_none),
        cmocka_unit_test(luck_does_not_win),
        cmocka_unit_test(one_candidate_and_failures),
        cmocka_unit_test(a_search_finds_a_models_problems),
        cmocka_unit_test(failing_calls_are_reported),
        cmocka_unit_test(a_training_step_is_searched_once),
        cmocka_unit_test(failing_calls_of_training_are_reported),
        cmocka_unit_test(scratch_may_grow_into_what_is_free),
        cmocka_unit_test(what_does_not_fit_is_not_measured),
        cmocka_unit_test(long_updates_are_put_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
