/* Sequences that begin as others did: copies and snapshots, in random turns, against engines that
 * compute every text from its beginning, bit for bit; that a sequence from a snapshot has the bits
 * of the one that went on, also by a GPU's kernels (SOL_TEST_BACKEND=cuda); sequences that go back;
 * and what a GPU is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "infer/engine.h"
#include "infer/fit.h"
#include "model/upload.h"
#include "ops/batch.h"
#include "support/backend.h"
#include "support/effort.h"
#include "support/fail_calls.h"

enum { CONTEXT = 420, SEQUENCES = 4, SLOTS = 3, BATCH = 45, RUN = 20, PAGES = 7 };

static const char *const names[] = {"synth:tiny", SOL_SOURCE_DIR "/tests/golden/gpt_2026_07"};
static struct model *models[2];
static struct gpu *gpu; /* SOL_TEST_BACKEND=cuda; else NULL */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct engine *open_engine(const struct model *model, bool exact, int64_t sequences,
                                  int64_t snapshots, int64_t pages)
{
    struct engine_params p;
    struct engine *engine;
    engine_params_init(&p);
    p.context = CONTEXT < model->config.context ? CONTEXT : model->config.context;
    p.sequences = sequences;
    p.snapshots = snapshots;
    p.cache_positions = pages * KV_PAGE;
    p.max_batch = BATCH;
    p.max_outputs = 1;
    p.max_run = RUN; /* so that rings are overwritten soon */
    p.threads = 1;
    p.chooser.device.gpu = gpu;
    if (exact) p.chooser.loosest = NUMERICS_EXACT;
    must(engine_create(model, &p, &engine));
    return engine;
}

/* ---- random turns ---- */

struct text {
    int32_t tokens[CONTEXT];
    int64_t n;
};

struct world {
    const struct model *model;
    struct engine *shared, *alone;
    struct rng rng;
    int64_t context;
    struct text sequences[SEQUENCES], slots[SLOTS];
    int64_t passed[SEQUENCES]; /* before the last step, of who took part in it */
    int64_t full, checked, restored, carried, back, refused;
};

static const float *eval_text(struct world *w, struct engine *e, int32_t sequence,
                              const struct text *t, int64_t from)
{
    static struct engine_row rows[CONTEXT];
    const float *logits;
    for (int64_t i = from; i < t->n; i++)
        rows[i - from] = (struct engine_row){t->tokens[i], sequence, i == t->n - 1};
    (void)w;
    must(engine_eval(e, rows, t->n - from, NULL, NULL, &logits));
    return logits;
}

static void check_text(struct world *w, const struct text *t, const float *got)
{
    engine_reset(w->alone, 0);
    const float *wanted = eval_text(w, w->alone, 0, t, 0);
    assert_memory_equal(wanted, got, (size_t)w->model->config.vocab * sizeof *got);
    w->checked++;
}

static void grow(struct world *w, int32_t s)
{
    struct text *t = &w->sequences[s];
    int64_t n = rng_range(&w->rng, 0, 2) ? rng_range(&w->rng, 1, BATCH) : 1, from = t->n;
    if (n > w->context - from) n = w->context - from;
    if (n == 0) return;
    int64_t pages = (from + n + KV_PAGE - 1) / KV_PAGE - (from + KV_PAGE - 1) / KV_PAGE;
    if (pages * KV_PAGE > engine_free_positions(w->shared)) {
        struct engine_row rows[BATCH] = {0};
        for (int i = 0; i < n; i++) rows[i].sequence = s;
        assert_int_equal(engine_eval(w->shared, rows, n, NULL, NULL, NULL), SOL_E_MEMORY);
        w->full++;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        t->tokens[t->n++] = (int32_t)rng_range(&w->rng, 0, w->model->config.vocab - 1);
    const float *got = eval_text(w, w->shared, s, t, from);
    if (rng_range(&w->rng, 0, 3) == 0) check_text(w, t, got);
    for (int i = 0; i < SEQUENCES; i++) w->passed[i] = w->sequences[i].n;
    w->passed[s] = from + (n - 1) / RUN * RUN;
    assert_int_equal(engine_position(w->shared, s), t->n);
}

static void keep(struct world *w, int32_t s, int32_t slot)
{
    int64_t position = rng_range(&w->rng, w->passed[s], w->sequences[s].n);
    bool possible = position > 0;
    enum sol_status status = engine_snapshot(w->shared, s, position, slot);
    assert_int_equal(status, possible ? SOL_OK : SOL_E_ARGUMENT);
    if (!possible) return;
    w->slots[slot] = w->sequences[s];
    w->slots[slot].n = position;
    assert_int_equal(engine_snapshot_position(w->shared, slot), position);
}

/* `status` is what copying or restoring said. */
static void take(struct world *w, enum sol_status status, const struct text *from, int32_t s)
{
    if (status == SOL_E_MEMORY) {
        assert_true(from->n % KV_PAGE != 0 && engine_free_positions(w->shared) == 0);
        w->sequences[s].n = 0;
    } else {
        must(status);
        w->sequences[s] = *from;
        w->restored++;
    }
    w->passed[s] = w->sequences[s].n;
    assert_int_equal(engine_position(w->shared, s), w->sequences[s].n);
}

/* Whether a slot or another sequence may have the page of `position` with more in it. */
static bool may_be_shared(const struct world *w, int32_t s, int64_t position)
{
    const int64_t page = position / KV_PAGE * KV_PAGE;
    bool shared = false;
    for (int i = 0; i < SLOTS; i++) shared |= w->slots[i].n > position;
    for (int i = 0; i < SEQUENCES; i++) shared |= i != s && w->sequences[i].n >= page + KV_PAGE;
    return shared && position > page;
}

/* Over rows of the last step, or farther than that; at times a snapshot has seen some of them. */
static void go_back(struct world *w, int32_t s)
{
    if (rng_range(&w->rng, 0, 2) == 0) keep(w, s, 0);
    const int64_t n = w->sequences[s].n, low = w->passed[s] < 3 ? 0 : w->passed[s] - 3;
    const int64_t position = rng_range(&w->rng, low, n + 1);
    const enum sol_status status = engine_go_back(w->shared, s, position);
    if (position == n) {
        must(status);
    } else if (position > n || position < w->passed[s]) {
        assert_int_equal(status, SOL_E_ARGUMENT);
    } else if (status != SOL_OK) {
        assert_int_equal(status, SOL_E_ARGUMENT);
        assert_true(may_be_shared(w, s, position));
        w->refused++;
    } else {
        w->sequences[s].n = position;
        w->back++;
    }
    assert_int_equal(engine_position(w->shared, s), w->sequences[s].n);
}

/* Another slot gets the bytes of one. */
static void carry(struct world *w, int32_t from, int32_t to)
{
    struct engine *e = w->shared;
    const int64_t n = w->slots[from].n;
    const int64_t pages = (n + KV_PAGE - 1) / KV_PAGE;
    if (!n || from == to) return;
    engine_drop_snapshot(e, to);
    w->slots[to].n = 0;
    const bool room = pages * KV_PAGE <= engine_free_positions(e);
    enum sol_status status = engine_snapshot_make(e, to, n, w->slots[from].tokens[n - 1], -1);
    assert_int_equal(status, room ? SOL_OK : SOL_E_MEMORY);
    assert_int_equal(engine_snapshot_position(e, to), room ? n : 0);
    for (int64_t l = 0; room && l < w->model->config.n_layers; l++) {
        void *bytes = malloc(engine_snapshot_bytes(e, l, n, 0));
        assert_non_null(bytes);
        must(engine_snapshot_read(e, from, l, 0, bytes));
        must(engine_snapshot_write(e, to, l, 0, bytes));
        free(bytes);
    }
    if (!room) return;
    w->slots[to] = w->slots[from];
    w->carried++;
}

static void turn(struct world *w)
{
    int32_t s = (int32_t)rng_range(&w->rng, 0, SEQUENCES - 1);
    int32_t slot = (int32_t)rng_range(&w->rng, 0, SLOTS - 1);
    int32_t other = (s + (int32_t)rng_range(&w->rng, 1, SEQUENCES - 1)) % SEQUENCES;
    int64_t what = rng_range(&w->rng, 0, 99);
    if (what < 58) {
        grow(w, s);
        if (what < 20) go_back(w, s);
    } else if (what < 68) {
        go_back(w, s);
    } else if (what < 78) {
        keep(w, s, slot);
    } else if (what < 86) {
        if (w->slots[slot].n)
            take(w, engine_restore(w->shared, slot, s), &w->slots[slot], s);
        else
            assert_int_equal(engine_restore(w->shared, slot, s), SOL_E_ARGUMENT);
    } else if (what < 89) {
        take(w, engine_copy(w->shared, other, s), &w->sequences[other], s);
    } else if (what < 93) {
        carry(w, slot, (slot + 1) % SLOTS);
    } else if (what < 94) {
        engine_drop_snapshot(w->shared, slot);
        w->slots[slot].n = 0;
    } else if (what < 95) {
        must(engine_pretend(w->shared, s, 0));
        w->sequences[s].n = w->passed[s] = 0;
    } else {
        engine_reset(w->shared, s);
        w->sequences[s].n = w->passed[s] = 0;
    }
}

static void run_world(const struct model *model, uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->model = model;
    w->context = CONTEXT < model->config.context ? CONTEXT : model->config.context;
    w->shared = open_engine(model, true, SEQUENCES, SLOTS, PAGES);
    w->alone = open_engine(model, true, 1, 0, 0);
    rng_seed(&w->rng, seed);
    const int64_t all = engine_free_positions(w->shared), turns = effort("turns", 600, 150);
    for (int64_t i = 0; i < turns; i++) turn(w);
    print_message(
        "%s: %lld turns, %lld begun as others, %lld times full, %lld texts compared; back "
        "%lld times, %lld refused\n",
        model->name, (long long)turns, (long long)w->restored, (long long)w->full,
        (long long)w->checked, (long long)w->back, (long long)w->refused);
    assert_true(w->restored > turns / 30 && w->checked > turns / 20 && w->carried);
    assert_true(w->back > turns / 30);
    for (int32_t i = 0; i < SLOTS; i++) engine_drop_snapshot(w->shared, i);
    for (int32_t i = 0; i < SEQUENCES; i++) engine_reset(w->shared, i);
    assert_int_equal(engine_free_positions(w->shared), all);
    engine_destroy(w->shared);
    engine_destroy(w->alone);
    free(w);
}

static void test_turns(void **state)
{
    (void)state;
    if (gpu) skip();
    for (int i = 0; i < 2; i++) run_world(models[i], 5);
}

/* ---- the same steps ---- */

/* The last logits of `n` tokens in steps of `step`. */
static void say(struct engine *e, int32_t sequence, int64_t from, int64_t n, int64_t step,
                float *out)
{
    struct engine_row rows[BATCH];
    const float *logits;
    const struct model_config *c = &engine_model(e)->config;
    for (int64_t at = 0; at < n; at += step) {
        for (int64_t i = 0; i < step; i++)
            rows[i] = (struct engine_row){(int32_t)((from + at + i) * 7919 % c->vocab), sequence,
                                          i == step - 1};
        must(engine_eval(e, rows, step, NULL, NULL, &logits));
    }
    memcpy(out, logits, (size_t)c->vocab * sizeof *out);
}

/* By whatever kernels: in steps of the same shape. The snapshot is of a position within a step. */
static void test_goes_on(void **state)
{
    (void)state;
    const struct model *model = models[0];
    enum { STEP = 9, BEFORE = 21 * STEP, AFTER = 4 * STEP };
    size_t bytes = (size_t)model->config.vocab * sizeof(float);
    float *wanted = malloc(bytes), *got = malloc(bytes);
    assert_true(wanted && got);
    struct engine *e = open_engine(model, false, 3, 2, 8);
    say(e, 0, 0, BEFORE + STEP, STEP, got);
    must(engine_snapshot(e, 0, BEFORE, 1));
    must(engine_snapshot(e, 0, BEFORE + STEP, 0));
    say(e, 0, BEFORE + STEP, AFTER, STEP, wanted);
    say(e, 1, 5, 170, 10, got); /* what is in the rings of 1 is another's */
    must(engine_restore(e, 1, 1));
    must(engine_restore(e, 0, 2));
    engine_reset(e, 0);
    say(e, 0, 3, 160, 20, got); /* nor do pages stay as they were where they were given back */
    say(e, 1, BEFORE, AFTER + STEP, STEP, got);
    assert_memory_equal(got, wanted, bytes);
    say(e, 2, BEFORE + STEP, AFTER, STEP, got);
    assert_memory_equal(got, wanted, bytes);
    engine_destroy(e);
    free(wanted);
    free(got);
}

static void refused(struct engine *e, int32_t sequence, int64_t to, const char *why)
{
    const int64_t position = engine_position(e, sequence);
    assert_int_equal(engine_go_back(e, sequence, to), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), why));
    assert_int_equal(engine_position(e, sequence), position);
}

/* Over steps that should not have been, while rings go round, by whatever kernels. */
static void test_back(void **state)
{
    (void)state;
    enum { STEP = 9, ALL = 25 * STEP };
    for (int m = 0; m < 2; m++) {
        const size_t bytes = (size_t)models[m]->config.vocab * sizeof(float);
        float *wanted = malloc(bytes), *got = malloc(bytes);
        assert_true(wanted && got);
        struct engine *e = open_engine(models[m], false, 2, 0, 8);
        say(e, 0, 0, ALL, STEP, wanted);
        const int64_t room = engine_free_positions(e);
        for (int64_t at = 0; at < ALL; at += STEP) {
            say(e, 1, at + 5, STEP, STEP, got);
            must(engine_go_back(e, 1, at));
            say(e, 1, at, STEP, STEP, got);
        }
        assert_memory_equal(got, wanted, bytes);
        assert_int_equal(engine_free_positions(e), room - 2 * KV_PAGE);
        engine_destroy(e);
        free(wanted);
        free(got);
    }
}

static void test_back_refused(void **state)
{
    (void)state;
    enum { STEP = 10, ALL = 13 * STEP }; /* the last rows are on both sides of a page's end */
    const size_t bytes = (size_t)models[0]->config.vocab * sizeof(float);
    float *got = malloc(bytes);
    assert_non_null(got);
    struct engine *e = open_engine(models[0], false, 2, 1, 8);
    const int64_t all = engine_free_positions(e);
    say(e, 0, 0, ALL, STEP, got);
    refused(e, 0, ALL + 1, "only over rows of the last step");
    refused(e, 0, ALL - STEP - 1, "only over rows of the last step");
    refused(e, 0, -1, "only over rows of the last step");
    must(engine_go_back(e, 0, ALL));
    /* A snapshot has rows behind 129 on the page, another sequence the whole page before it. */
    must(engine_snapshot(e, 0, ALL, 0));
    must(engine_copy(e, 0, 1));
    refused(e, 0, KV_PAGE + 1, "a snapshot or another sequence");
    engine_drop_snapshot(e, 0);
    must(engine_go_back(e, 0, KV_PAGE + 1));
    must(engine_go_back(e, 0, KV_PAGE));
    assert_int_equal(engine_free_positions(e), all - 2 * KV_PAGE);
    refused(e, 0, KV_PAGE - 1, "a snapshot or another sequence");
    must(engine_snapshot(e, 0, KV_PAGE - 1, 0));
    engine_reset(e, 1);
    must(engine_go_back(e, 0, KV_PAGE - 1)); /* the snapshot sees nothing behind */
    refused(e, 0, ALL - STEP - 1, "only over rows of the last step");
    refused(e, 0, ALL - STEP, "a snapshot or another sequence");
    engine_drop_snapshot(e, 0);
    must(engine_go_back(e, 0, ALL - STEP));
    engine_reset(e, 0);
    assert_int_equal(engine_free_positions(e), all);
    engine_destroy(e);
    free(got);
}

/* ---- memory ---- */

static void test_memory(void **state)
{
    (void)state;
    struct engine_params p;
    struct engine_parts with, without;
    engine_params_init(&p);
    p.max_batch = 64;
    p.context = 512;
    p.chooser.device.gpu = gpu;
    must(fit_engine(models[0], &p, &without));
    p.snapshots = 10;
    must(fit_engine(models[0], &p, &with));
    const struct model_config *c = &models[0]->config;
    int64_t positions = 0;
    for (int64_t i = 0; i < c->n_layers; i++) {
        int64_t seen = model_layer_window(c, i) - 1; /* and what its first block has before it */
        if (seen > 0) positions += (seen + 2 * (KV_BLOCK - 1)) / KV_BLOCK * KV_BLOCK;
    }
    assert_true(positions > 0);
    int64_t each = 2 * positions * c->n_kv_heads * c->head_dim * 2;
    assert_int_equal(with.cache - without.cache, 10 * each);
    p.snapshots = -1;
    struct engine *e;
    assert_int_equal(engine_create(models[0], &p, &e), SOL_E_ARGUMENT);
}

/* ---- a GPU ---- */

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

static enum sol_status gpu_scenario(void)
{
    struct engine *e = NULL;
    struct engine_params p;
    struct engine_row rows[30];
    struct gpu *card;
    SOL_TRY(gpu_open(0, &card));
    engine_params_init(&p);
    p.context = CONTEXT;
    p.sequences = 3;
    p.snapshots = 2;
    p.cache_positions = 3 * KV_PAGE;
    p.max_batch = 30;
    p.threads = 1;
    p.chooser.device.gpu = card;
    for (int i = 0; i < 30; i++) rows[i] = (struct engine_row){.token = 1};
    enum sol_status status = engine_create(models[0], &p, &e);
    if (status == SOL_OK) status = engine_eval(e, rows, 30, NULL, NULL, NULL);
    if (status == SOL_OK) status = engine_snapshot(e, 0, 17, 1);
    if (status == SOL_OK) status = engine_restore(e, 1, 2);
    if (status == SOL_OK) status = engine_copy(e, 2, 1);
    if (status == SOL_OK) assert_int_equal(engine_free_positions(e), 0);
    if (status == SOL_OK) status = engine_restore(e, 1, 1); /* its own page comes free */
    if (status == SOL_OK) {
        for (int32_t i = 0; i < 3; i++) engine_reset(e, i);
        assert_int_equal(engine_free_positions(e), 2 * KV_PAGE);
        engine_drop_snapshot(e, 1);
        assert_int_equal(engine_free_positions(e), 3 * KV_PAGE);
    }
    engine_destroy(e);
    gpu_close(card);
    return status;
}

static void test_gpu_failures(void **state)
{
    (void)state;
    if (gpu) skip();
    fail_each_call(&hopper, gpu_scenario, effort("failing calls", 60, 20));
}

/* Keys of all layers in one copy, and values; what begins a page as well. */
static void test_few_copies(void **state)
{
    struct engine_params p;
    struct engine_row rows[30] = {{.token = 1}};
    struct model *model;
    struct engine *e;
    struct gpu *card;
    (void)state;
    if (gpu) skip();
    cuda_replace(fake_cuda_start(&hopper));
    must(model_open("synth:tiny,layers=9", &model));
    must(gpu_open(0, &card));
    engine_params_init(&p);
    p.context = CONTEXT;
    p.sequences = p.snapshots = 2;
    p.max_batch = 30;
    p.threads = 1;
    p.chooser.device.gpu = card;
    must(engine_create(model, &p, &e));
    must(engine_eval(e, rows, 30, NULL, NULL, NULL));
    long before = fake_cuda_count("copy_box");
    must(engine_snapshot(e, 0, 17, 1));
    assert_int_equal(fake_cuda_count("copy_box") - before, 2);
    must(engine_restore(e, 1, 1));
    assert_int_equal(fake_cuda_count("copy_box") - before, 6);
    engine_destroy(e);
    gpu_close(card);
    model_close(model);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static int open_models(void **state)
{
    (void)state;
    gpu = test_gpu();
    for (int i = 0; i < 2; i++)
        if (model_open(gpu && !i ? "synth:tiny,layers=2" : names[i], &models[i]) != SOL_OK)
            return -1;
    return 0;
}

static int close_models(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) model_close(models[i]);
    gpu_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),      cmocka_unit_test(test_back),
        cmocka_unit_test(test_back_refused), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_memory),       cmocka_unit_test(test_few_copies),
        cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
