/* Ranks that share a model: each rank's part, and that together they compute what one does, in any
 * way an engine can be asked, with the same bits each time. Here they are threads on the processor;
 * on GPUs: cli_emulate_team. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/threads.h"
#include "check/verify_model.h"
#include "infer/engine.h"
#include "infer/team.h"
#include "model/shard.h"

enum { ROWS = 40, OUTPUTS = 6, CONTEXT = 256, RANKS_MAX = 4 };

static const struct model_params later = {.later = true};

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct engine_params params_of(bool exact)
{
    struct engine_params p;
    engine_params_init(&p);
    p.context = CONTEXT;
    p.sequences = 3;
    p.snapshots = 2;
    p.max_batch = 32;
    p.max_outputs = OUTPUTS;
    p.threads = 1;
    if (!exact) return p;
    p.kv_dtype = DTYPE_F32;
    p.chooser.loosest = NUMERICS_EXACT;
    return p;
}

/* One engine, or one of a team. */
struct side {
    struct model *model;
    struct team *team;
    struct engine *engine;
};

static struct side open_shared(const char *name, int ranks, enum shard_way way, bool exact)
{
    struct side s = {0};
    struct engine_params p = params_of(exact);
    must(model_open_with(name, ranks > 1 ? &later : NULL, &s.model));
    if (ranks > 1) must(team_create(s.model, &p, ranks, way, NULL, &s.team));
    p.team = s.team;
    must(engine_create(s.model, &p, &s.engine));
    return s;
}

static struct side open_side(const char *name, int ranks, bool exact)
{
    return open_shared(name, ranks, SHARD_TENSOR, exact);
}

static void close_side(struct side *s)
{
    engine_destroy(s->engine);
    team_destroy(s->team);
    model_close(s->model);
}

/* ---- what they compute ---- */

/* Rows of a text in `sequence`, the last `outputs` of which ask for logits. */
static void make_rows(struct engine_row *rows, int n, int32_t sequence, int outputs, int seed)
{
    for (int i = 0; i < n; i++)
        rows[i] = (struct engine_row){
            .token = (i * 37 + seed * 11) % 250, .sequence = sequence, .output = i >= n - outputs};
}

/* Logits of `outputs` rows, added to what `all` has. */
static void eval(struct side *s, const struct engine_row *rows, int n, int outputs, float *all,
                 size_t *at)
{
    const float *logits;
    const int64_t vocab = s->model->config.vocab;
    must(engine_eval(s->engine, rows, n, NULL, NULL, &logits));
    memcpy(all + *at, logits, (size_t)(outputs * vocab) * sizeof *all);
    *at += (size_t)(outputs * vocab);
}

/* A prompt in two steps, tokens one by one, sequences together, a copy, a snapshot. */
static size_t compute(struct side *s, float *all)
{
    struct engine_row rows[ROWS];
    size_t at = 0;
    make_rows(rows, ROWS, 0, 3, 1);
    eval(s, rows, ROWS, 3, all, &at);
    for (int i = 0; i < 3; i++) {
        rows[0] = (struct engine_row){.token = 20 + i, .sequence = 0, .output = true};
        eval(s, rows, 1, 1, all, &at);
    }
    must(engine_copy(s->engine, 0, 1));
    must(engine_snapshot(s->engine, 0, engine_position(s->engine, 0), 1));
    make_rows(rows, 5, 1, 0, 3);
    make_rows(rows + 5, 8, 2, 1, 4);
    rows[4].output = true;
    eval(s, rows, 13, 2, all, &at);
    engine_reset(s->engine, 0);
    must(engine_restore(s->engine, 1, 0));
    for (int i = 0; i < 3; i++)
        rows[i] = (struct engine_row){.token = 7, .sequence = i, .output = true};
    eval(s, rows, 3, 3, all, &at);
    return at;
}

/* The largest difference of a row, in its standard deviations. */
static double difference(const float *a, const float *b, size_t n, int64_t vocab)
{
    double worst = 0;
    for (size_t row = 0; row < n; row += (size_t)vocab) {
        double sum = 0, squares = 0, most = 0;
        for (size_t i = row; i < row + (size_t)vocab; i++) {
            sum += (double)b[i];
            squares += (double)b[i] * (double)b[i];
            most = fmax(most, fabs((double)a[i] - (double)b[i]));
        }
        const double mean = sum / (double)vocab;
        worst = fmax(worst, most / sqrt(squares / (double)vocab - mean * mean));
    }
    return worst;
}

static const struct together {
    const char *model;
    int ranks;
    enum shard_way way;
} together[] = {
    {"synth:small", 2, SHARD_TENSOR},   {"synth:small", 3, SHARD_TENSOR},
    {"synth:small", 4, SHARD_TENSOR},   {"synth:gpt-tiny", 2, SHARD_TENSOR},
    {"synth:tiny", 2, SHARD_TENSOR},    {"synth:small,dense=q8_0", 3, SHARD_TENSOR},
    {"builtin", 2, SHARD_TENSOR},       {"synth:small", 2, SHARD_EXPERT},
    {"synth:small", 5, SHARD_EXPERT},   {"synth:tiny", 2, SHARD_EXPERT},
    {"builtin", 2, SHARD_EXPERT},       {"synth:small", 2, SHARD_PIPELINE},
    {"synth:small", 3, SHARD_PIPELINE}, {"synth:gpt-tiny", 4, SHARD_PIPELINE},
    {"builtin", 2, SHARD_PIPELINE},
};

static void test_same_as_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof together / sizeof *together; i++) {
        const char *name = together[i].model;
        const int ranks = together[i].ranks;
        struct side one = open_side(name, 1, true);
        struct side all = open_shared(name, ranks, together[i].way, true);
        struct side again = open_shared(name, ranks, together[i].way, true);
        const size_t vocab = (size_t)one.model->config.vocab;
        float *expected = calloc(32 * vocab, sizeof *expected);
        float *got = calloc(32 * vocab, sizeof *got), *twice = calloc(32 * vocab, sizeof *twice);
        assert_true(expected && got && twice);
        const size_t n = compute(&one, expected);
        assert_int_equal(compute(&all, got), n);
        assert_int_equal(compute(&again, twice), n);
        const double off = difference(got, expected, n, (int64_t)vocab);
        const double allowed = plan_margin(engine_last_plan(one.engine));
        print_message("%s on %d: %.1e standard deviations of %.1e\n", name, ranks, off, allowed);
        if (!(off <= allowed)) fail_msg("%s on %d ranks: %g", name, ranks, off);
        /* Whole layers have the sums of one. */
        if (together[i].way == SHARD_PIPELINE) assert_memory_equal(got, expected, n * sizeof *got);
        assert_memory_equal(got, twice, n * sizeof *got);
        free(expected);
        free(got);
        free(twice);
        close_side(&again);
        close_side(&all);
        close_side(&one);
    }
}

/* A step in pieces, of which ranks have different ones at a time: two texts of which one ends in a
 * piece where the other begins, and rows that no piece divides. */
static void eval_in_pieces(const char *name, int ranks, float *all, size_t *n)
{
    enum { LONG = 100, SHORT = 75 };
    struct engine_row rows[LONG + SHORT];
    struct side s = {0};
    struct engine_params p = params_of(false);
    p.max_batch = LONG + SHORT;
    must(model_open_with(name, ranks > 1 ? &later : NULL, &s.model));
    if (ranks > 1) must(team_create(s.model, &p, ranks, SHARD_PIPELINE, NULL, &s.team));
    p.team = s.team;
    must(engine_create(s.model, &p, &s.engine));
    make_rows(rows, LONG, 0, 2, 1);
    make_rows(rows + LONG, SHORT, 1, 3, 2);
    rows[30].output = true;
    eval(&s, rows, LONG + SHORT, OUTPUTS, all, (*n = 0, n));
    close_side(&s);
}

static void test_pieces(void **state)
{
    (void)state;
    static float first[OUTPUTS * 600], got[OUTPUTS * 600];
    static const char *const names[] = {"synth:small", "synth:gpt-tiny"}; /* of up to 600 tokens */
    for (int i = 0; i < 2; i++) {
        size_t n;
        eval_in_pieces(names[i], 1, first, &n);
        for (int ranks = 2; ranks <= 4; ranks++) {
            eval_in_pieces(names[i], ranks, got, &n);
            assert_memory_equal(got, first, n * sizeof *got);
        }
    }
}

/* Two texts on their way through the same ranks and weights, again and again. */
struct traveller {
    struct engine *engine;
    pthread_t thread;
    int times;
    enum sol_status status; /* of the first step that failed, which ends it */
    float logits[600];
};

static void *travel(void *arg)
{
    struct traveller *t = arg;
    struct engine_row rows[ROWS];
    const float *logits;
    t->status = SOL_OK;
    for (int i = 0; i < t->times && t->status == SOL_OK; i++) {
        engine_reset(t->engine, 0);
        make_rows(rows, ROWS, 0, 1, 1);
        t->status = engine_eval(t->engine, rows, ROWS, NULL, NULL, &logits);
        rows[0] = (struct engine_row){.token = 3, .output = true};
        if (t->status == SOL_OK) t->status = engine_eval(t->engine, rows, 1, NULL, NULL, &logits);
        if (t->status == SOL_OK) memcpy(t->logits, logits, sizeof t->logits);
    }
    return NULL;
}

static void go(struct traveller *t)
{
    assert_int_equal(thread_start(&t->thread, travel, t), 0);
}

static void test_beside(void **state)
{
    (void)state;
    struct side one = open_side("synth:small", 1, true);
    struct side first = open_shared("synth:small", 3, SHARD_PIPELINE, true), second = {0};
    struct engine_params p = params_of(true);
    struct traveller alone = {.engine = one.engine, .times = 1};
    struct traveller t[2] = {{.engine = first.engine, .times = 20}, {.times = 20}};
    must(team_create_beside(first.team, NULL, &second.team));
    assert_ptr_equal(team_model(second.team, 1), team_model(first.team, 1));
    p.team = second.team;
    must(engine_create(first.model, &p, &second.engine));
    t[1].engine = second.engine;
    travel(&alone);
    for (int i = 0; i < 2; i++) go(&t[i]);
    for (int i = 0; i < 2; i++) pthread_join(t[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].status, SOL_OK);
        assert_memory_equal(t[i].logits, alone.logits, sizeof alone.logits);
    }
    /* One fails on its way; the other goes on, and no turn is left open. */
    t[1].times = 1000000;
    for (int i = 0; i < 2; i++) go(&t[i]);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    team_break(second.team, 1, status_set(SOL_E_FORMAT, "a planted fault"));
    for (int i = 0; i < 2; i++) pthread_join(t[i].thread, NULL);
    assert_int_equal(t[0].status, SOL_OK);
    assert_int_equal(t[1].status, SOL_E_FORMAT);
    struct engine_row row = {.token = 1, .output = true};
    assert_int_equal(engine_eval(second.engine, &row, 1, NULL, NULL, NULL), SOL_E_FORMAT);
    must(engine_eval(first.engine, &row, 1, NULL, NULL, NULL));
    engine_destroy(second.engine);
    team_destroy(second.team);
    close_side(&first);
    close_side(&one);
}

/* Rounded activations and a narrow cache: the same tokens, near enough. */
static void test_fast_kernels(void **state)
{
    (void)state;
    struct side one = open_side("synth:small", 1, false), all = open_side("synth:small", 4, false);
    struct side dealt = open_shared("synth:small", 3, SHARD_EXPERT, false);
    const size_t vocab = (size_t)one.model->config.vocab;
    float *expected = calloc(32 * vocab, sizeof *expected), *got = calloc(32 * vocab, sizeof *got);
    assert_true(expected && got);
    const size_t n = compute(&one, expected);
    assert_int_equal(compute(&all, got), n);
    const double allowed = plan_margin(engine_last_plan(one.engine));
    assert_true(difference(got, expected, n, (int64_t)vocab) <= allowed);
    assert_int_equal(compute(&dealt, got), n);
    assert_true(difference(got, expected, n, (int64_t)vocab) <= allowed);
    free(expected);
    free(got);
    close_side(&dealt);
    close_side(&all);
    close_side(&one);
}

static void test_verified(void **state)
{
    (void)state;
    struct model *model;
    struct verify_shared v;
    must(model_open("synth:small,layers=1", &model));
    must(verify_shared(model, 1, 2, NULL, &v));
    assert_int_equal(v.ranks, 2);
    assert_true(v.result.compared && v.result.kl_max < 1e-6 && v.tolerance > 0);
    model_close(model);
}

/* Bytes of a snapshot are those of any engine of the model. */
static void pass_snapshots(enum shard_way way)
{
    struct side one = open_side("synth:small", 1, true);
    struct side all = open_shared("synth:small", 3, way, true);
    struct engine_row rows[ROWS];
    float logits[2][600];
    size_t at;
    assert_int_equal(one.model->config.vocab, 600);
    make_rows(rows, ROWS, 0, 0, 1);
    must(engine_eval(one.engine, rows, ROWS, NULL, NULL, NULL));
    must(engine_snapshot(one.engine, 0, ROWS, 0));
    must(engine_snapshot_make(all.engine, 0, ROWS, rows[ROWS - 1].token, -1));
    for (int64_t layer = 0; layer < one.model->config.n_layers; layer++) {
        const size_t bytes = engine_snapshot_bytes(one.engine, layer, ROWS, 0);
        char *kept = malloc(bytes), *back = malloc(bytes);
        assert_true(kept && back);
        assert_int_equal(engine_snapshot_bytes(all.engine, layer, ROWS, 0), bytes);
        must(engine_snapshot_read(one.engine, 0, layer, 0, kept));
        must(engine_snapshot_write(all.engine, 0, layer, 0, kept));
        must(engine_snapshot_read(all.engine, 0, layer, 0, back));
        assert_memory_equal(kept, back, bytes);
        memset(kept, 0xff, bytes);
        assert_int_equal(engine_snapshot_write(all.engine, 0, layer, 0, kept), SOL_E_FORMAT);
        free(kept);
        free(back);
    }
    must(engine_restore(all.engine, 0, 2));
    rows[0] = (struct engine_row){.token = 9, .sequence = 0, .output = true};
    eval(&one, rows, 1, 1, logits[0], (at = 0, &at));
    rows[0].sequence = 2;
    eval(&all, rows, 1, 1, logits[1], (at = 0, &at));
    assert_true(difference(logits[1], logits[0], 600, 600) <=
                plan_margin(engine_last_plan(one.engine)));
    close_side(&all);
    close_side(&one);
}

static void test_snapshots_pass(void **state)
{
    (void)state;
    pass_snapshots(SHARD_TENSOR);
    pass_snapshots(SHARD_PIPELINE);
}

/* What an engine refuses it refuses in a team, and goes on. */
static void test_refusals(void **state)
{
    (void)state;
    struct side all = open_side("synth:small", 2, true);
    struct engine_row rows[ROWS];
    const float *logits;
    make_rows(rows, 4, 0, 1, 1);
    rows[1].token = 600;
    assert_int_equal(engine_eval(all.engine, rows, 4, NULL, NULL, &logits), SOL_E_ARGUMENT);
    rows[1].token = 5;
    must(engine_eval(all.engine, rows, 4, NULL, NULL, &logits));
    assert_int_equal(engine_pretend(all.engine, 0, CONTEXT + 1), SOL_E_ARGUMENT);
    must(engine_pretend(all.engine, 0, CONTEXT));
    assert_int_equal(engine_eval(all.engine, rows, 1, NULL, NULL, NULL), SOL_E_ARGUMENT);
    must(engine_fill_cache(all.engine));
    engine_reset(all.engine, 0);
    must(engine_eval(all.engine, rows, 4, NULL, NULL, &logits));
    close_side(&all);
}

static const struct refused {
    const char *model;
    int ranks;
    enum shard_way way;
    const char *said;
} refused[] = {
    {"synth:tiny", 3, SHARD_TENSOR, "it has 2 heads of keys; at most 2"},
    {"synth:small", 6, SHARD_TENSOR, "it has 5 heads of keys; at most 5"},
    {SOL_SOURCE_DIR "/tests/golden/odd_bf16.gguf", 2, SHARD_TENSOR,
     "1 blocks of the intermediate layer"},
    {"synth:gpt-tiny", 2, SHARD_EXPERT, "has no experts that ranks could share"},
    {"synth:gpt-tiny", 5, SHARD_PIPELINE, "it has 4 layers; at most 4"},
};

static void test_models_that_cannot(void **state)
{
    (void)state;
    struct engine_params p = params_of(true);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct model *model;
        struct team *team;
        must(model_open_with(refused[i].model, &later, &model));
        assert_int_equal(team_create(model, &p, refused[i].ranks, refused[i].way, NULL, &team),
                         SOL_E_UNSUPPORTED);
        if (!strstr(sol_last_error(), refused[i].said)) fail_msg("%s", sol_last_error());
        model_close(model);
    }
}

/* ---- who fails ---- */

struct work {
    struct team *team;
    int fails;     /* which rank */
    bool meets;    /* before that is known */
    bool together; /* what the others wait for */
};

static enum sol_status do_work(void *arg, int rank)
{
    const struct work *w = arg;
    int all[RANKS_MAX];
    enum sol_status mine = SOL_OK;
    if (rank == w->fails) mine = status_set(SOL_E_FORMAT, "a planted fault");
    if (w->meets) SOL_TRY(team_meet(w->team, rank, mine));
    if (w->together && mine != SOL_OK) team_break(w->team, rank, mine);
    if (!w->together || mine != SOL_OK) return mine;
    return communicator_all_gather(team_communicator(w->team, rank), &rank, sizeof rank, all);
}

static void test_failing_ranks(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct side all = open_side("synth:small", 3, true);
        struct work w = {.team = all.team, .fails = -1, .meets = way == 1, .together = way == 2};
        must(team_run(all.team, do_work, &w));
        w.fails = 2;
        assert_int_equal(team_run(all.team, do_work, &w), SOL_E_FORMAT);
        assert_string_equal(sol_last_error(), "rank 2: a planted fault");
        w.fails = 0;
        assert_int_equal(team_run(all.team, do_work, &w), SOL_E_FORMAT);
        struct engine_row row = {.token = 1, .output = true};
        const float *logits;
        const enum sol_status status = engine_eval(all.engine, &row, 1, NULL, NULL, &logits);
        assert_int_equal(status, way == 2 ? SOL_E_FORMAT : SOL_OK);
        if (way == 2) assert_string_equal(sol_last_error(), "rank 2: a planted fault");
        close_side(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_one),   cmocka_unit_test(test_fast_kernels),
        cmocka_unit_test(test_verified),      cmocka_unit_test(test_snapshots_pass),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_models_that_cannot),
        cmocka_unit_test(test_failing_ranks), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
