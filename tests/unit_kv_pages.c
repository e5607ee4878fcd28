/* Pages of the key/value cache: the table by itself, then engines whose sequences grow, end and
 * begin again in random turns, against each sequence alone, bit for bit; caches that run full; and
 * what a GPU is sent. */
#include "infer/kv_pages.h"

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
#include "ops/args.h"
#include "ops/ops.h"
#include "support/effort.h"
#include "support/fail_calls.h"

static struct model *tiny;

/* ---- the table ---- */

enum { SEQUENCES = 5, ROW = 6, PAGES = 17 };

/* Every page is free once, or some sequence's once. */
static void check_pages(const struct kv_pages *p, const int64_t *positions)
{
    int seen[PAGES] = {0};
    for (int64_t i = 0; i < p->n_free; i++) seen[p->free[i]]++;
    for (int s = 0; s < SEQUENCES; s++) {
        assert_int_equal(p->held[s], (positions[s] + KV_PAGE - 1) / KV_PAGE);
        for (int i = 0; i < p->held[s]; i++) seen[p->table[s * ROW + i]]++;
    }
    for (int i = 0; i < PAGES; i++) assert_int_equal(seen[i], 1);
}

/* What a device would see that is sent only what is named as changed. */
static void send(struct kv_pages *p, int32_t *there)
{
    if (p->unsent)
        memcpy(there + p->changed, p->table + p->changed, (size_t)p->unsent * sizeof *there);
    kv_pages_sent(p);
}

static void test_table(void **state)
{
    (void)state;
    struct kv_pages p;
    struct rng rng;
    int32_t table[SEQUENCES * ROW] = {0}, there[SEQUENCES * ROW] = {0};
    int64_t positions[SEQUENCES] = {0}, full = 0;
    assert_int_equal(kv_pages_init(&p, SEQUENCES, ROW, PAGES), SOL_OK);
    p.table = table;
    rng_seed(&rng, 7);
    for (int step = 0; step < 4000; step++) {
        int32_t s = (int32_t)rng_range(&rng, 0, SEQUENCES - 1);
        int64_t wanted = rng_range(&rng, 0, 9) ? positions[s] + rng_range(&rng, 0, 300)
                                               : rng_range(&rng, 0, positions[s]);
        if (rng_range(&rng, 0, 19) == 0) wanted = 0;
        if (wanted > ROW * KV_PAGE) wanted = ROW * KV_PAGE;
        int32_t before[ROW];
        int64_t kept = p.held[s];
        memcpy(before, table + s * ROW, sizeof before);
        if (kv_pages_missing(&p, s, wanted) > p.n_free) {
            full++;
            continue;
        }
        kv_pages_hold(&p, s, wanted);
        positions[s] = wanted;
        check_pages(&p, positions);
        if (kept > p.held[s]) kept = p.held[s];
        assert_memory_equal(before, table + s * ROW, (size_t)kept * sizeof *before);
        if (rng_range(&rng, 0, 2)) continue;
        send(&p, there);
        for (s = 0; s < SEQUENCES; s++)
            assert_memory_equal(there + s * ROW, table + s * ROW,
                                (size_t)p.held[s] * sizeof *there);
    }
    assert_true(full > 100);
    kv_pages_free(&p);
    assert_int_equal(kv_pages_init(&p, 1, 1, (int64_t)1 << 31), SOL_E_ARGUMENT);
    assert_null(p.free);
    kv_pages_free(&p);
}

/* ---- engines ---- */

enum { CONTEXT = 700, SLOTS = 4, BATCH = 40 };

static struct engine *make_engine(const struct engine_params *params)
{
    struct engine *e;
    if (engine_create(tiny, params, &e) != SOL_OK) fail_msg("%s", sol_last_error());
    return e;
}

static struct engine_params params_for(bool reference, int64_t positions)
{
    struct engine_params p;
    engine_params_init(&p);
    p.context = CONTEXT;
    p.sequences = SLOTS;
    p.max_batch = BATCH;
    p.max_outputs = BATCH;
    p.cache_positions = positions;
    p.chooser.reference = reference;
    p.threads = 2;
    return p;
}

/* Token `position` of text number `text`. */
static int32_t token_at(int64_t text, int64_t position)
{
    return (int32_t)((text * 7919 + position * 104729 + position * position * 31) %
                     tiny->config.vocab);
}

/* A sequence alone in its own engine, fed the same chunks as in the other. */
struct alone {
    struct engine *engine;
    int64_t text, length;
};

static const float *eval_rows(struct engine *e, int32_t sequence, int64_t text, int64_t from,
                              int64_t n)
{
    static struct engine_row rows[BATCH];
    const float *logits;
    for (int64_t i = 0; i < n; i++)
        rows[i] = (struct engine_row){token_at(text, from + i), sequence, true};
    if (engine_eval(e, rows, n, NULL, NULL, &logits) != SOL_OK) fail_msg("%s", sol_last_error());
    return logits;
}

static void grow(struct engine *shared, struct alone *a, int32_t s, int64_t n)
{
    size_t bytes = (size_t)(n * tiny->config.vocab) * sizeof(float);
    const float *wanted = eval_rows(a->engine, 0, a->text, a->length, n);
    const float *got = eval_rows(shared, s, a->text, a->length, n);
    assert_memory_equal(wanted, got, bytes);
    a->length += n;
    assert_int_equal(engine_position(shared, s), a->length);
}

/* The shared cache has fewer pages than all sequences could fill, so that it runs full, and pages
 * go from one sequence to another: most steps read pages in no order. */
static void turns(bool reference, int64_t steps)
{
    enum { POSITIONS = 11 * KV_PAGE };
    struct engine_params p = params_for(reference, POSITIONS), single = params_for(reference, 0);
    struct engine *shared = make_engine(&p);
    struct alone alone[SLOTS];
    struct rng rng;
    int64_t texts = 0, full = 0, ended = 0;
    single.sequences = 1;
    rng_seed(&rng, 3);
    for (int s = 0; s < SLOTS; s++) alone[s] = (struct alone){make_engine(&single), texts++, 0};
    for (int64_t step = 0; step < steps; step++) {
        int32_t s = (int32_t)rng_range(&rng, 0, SLOTS - 1);
        int64_t n = rng_range(&rng, 0, 2) ? rng_range(&rng, 20, BATCH) : 1, free_pages = 0;
        int64_t needed = kv_pages_for(alone[s].length + n) - kv_pages_for(alone[s].length);
        free_pages = engine_free_positions(shared) / KV_PAGE;
        if (alone[s].length + n > CONTEXT || needed > free_pages || rng_range(&rng, 0, 60) == 0) {
            struct engine_row rows[BATCH];
            for (int64_t i = 0; i < n; i++) rows[i] = (struct engine_row){.sequence = s};
            if (needed > free_pages && alone[s].length + n <= CONTEXT) {
                assert_int_equal(engine_eval(shared, rows, n, NULL, NULL, NULL), SOL_E_MEMORY);
                assert_int_equal(engine_position(shared, s), alone[s].length);
                full++;
            }
            s = (int32_t)rng_range(&rng, 0, SLOTS - 1);
            engine_reset(shared, s);
            engine_reset(alone[s].engine, 0);
            alone[s].text = texts++;
            alone[s].length = 0;
            ended++;
            continue;
        }
        grow(shared, &alone[s], s, n);
    }
    print_message("%lld steps, %lld times full, %lld sequences ended\n", (long long)steps,
                  (long long)full, (long long)ended);
    if (steps >= 300) assert_true(full >= 3 && ended >= 10);
    for (int s = 0; s < SLOTS; s++) engine_destroy(alone[s].engine);
    engine_destroy(shared);
}

static void test_turns(void **state)
{
    (void)state;
    turns(false, effort("steps", 600, 60));
}

/* Rows of all sequences in one step, where a row's result does not depend on the others': the
 * references. Pages were mixed before. */
static void test_together(void **state)
{
    (void)state;
    struct engine_params p = params_for(true, 9 * KV_PAGE), single = p;
    struct engine *shared = make_engine(&p), *alone;
    struct engine_row rows[BATCH];
    const float *logits;
    int64_t vocab = tiny->config.vocab, steps = effort("positions", 300, 140);
    float *wanted[3];
    /* 1 and 2 take pages in turns, and give back those of 1. */
    for (int i = 0; i < 8; i++) assert_int_equal(engine_pretend(shared, 1 + i % 2, 64 * i), SOL_OK);
    engine_reset(shared, 1);
    engine_reset(shared, 2);
    single.sequences = 1;
    for (int s = 0; s < 3; s++) {
        wanted[s] = malloc((size_t)(steps * vocab) * sizeof(float));
        assert_non_null(wanted[s]);
        alone = make_engine(&single);
        for (int64_t i = 0; i < steps; i++)
            memcpy(wanted[s] + i * vocab, eval_rows(alone, 0, s, i, 1),
                   (size_t)vocab * sizeof(float));
        engine_destroy(alone);
    }
    for (int64_t i = 0; i < steps; i += 5) {
        for (int n = 0; n < 15; n++)
            rows[n] = (struct engine_row){token_at(n % 3, i + n / 3), n % 3, true};
        if (engine_eval(shared, rows, 15, NULL, NULL, &logits) != SOL_OK)
            fail_msg("%s", sol_last_error());
        for (int n = 0; n < 15; n++)
            assert_memory_equal(wanted[n % 3] + (i + n / 3) * vocab, logits + n * vocab,
                                (size_t)vocab * sizeof(float));
    }
    for (int s = 0; s < 3; s++) free(wanted[s]);
    engine_destroy(shared);
}

/* A call that there is no room for changes nothing, whichever of its rows it is that does not fit,
 * also when it takes many steps; the others go on, and it can when there is room. */
static void test_full(void **state)
{
    (void)state;
    struct engine_params p = params_for(false, 3 * KV_PAGE), plenty = params_for(false, 0);
    struct engine *e = make_engine(&p), *other = make_engine(&plenty);
    static struct engine_row rows[2 * CONTEXT];
    size_t bytes = (size_t)tiny->config.vocab * sizeof(float);
    assert_int_equal(engine_free_positions(e), 3 * KV_PAGE);
    assert_int_equal(engine_free_positions(other), SLOTS * 6 * KV_PAGE);
    for (int i = 0; i < 150; i++) rows[i] = (struct engine_row){.token = i};
    assert_int_equal(engine_eval(e, rows, 150, NULL, NULL, NULL), SOL_OK);
    assert_int_equal(engine_eval(other, rows, 150, NULL, NULL, NULL), SOL_OK);
    assert_int_equal(engine_free_positions(e), KV_PAGE);
    for (int i = 0; i < 2 * 129; i++) rows[i] = (struct engine_row){.token = 1, .sequence = i % 2};
    assert_int_equal(engine_eval(e, rows, 2 * 129, NULL, NULL, NULL), SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "128 of its 384 positions are free, 384 are needed"));
    assert_int_equal(engine_position(e, 0), 150);
    assert_int_equal(engine_position(e, 1), 0);
    assert_int_equal(engine_free_positions(e), KV_PAGE);
    assert_int_equal(engine_pretend(e, 1, 129), SOL_E_MEMORY);
    assert_int_equal(engine_pretend(e, 1, 128), SOL_OK);
    assert_int_equal(engine_free_positions(e), 0);
    assert_memory_equal(eval_rows(e, 0, 5, 150, 1), eval_rows(other, 0, 5, 150, 1), bytes);
    struct engine_row one = {.token = 2, .sequence = 1};
    assert_int_equal(engine_eval(e, &one, 1, NULL, NULL, NULL), SOL_E_MEMORY);
    engine_reset(e, 0);
    engine_reset(other, 0);
    assert_int_equal(engine_eval(e, &one, 1, NULL, NULL, NULL), SOL_OK);
    engine_reset(e, 1);
    assert_int_equal(engine_free_positions(e), 3 * KV_PAGE);
    assert_memory_equal(eval_rows(e, 2, 9, 0, 30), eval_rows(other, 2, 9, 0, 30), bytes);
    engine_destroy(e);
    engine_destroy(other);
    p.cache_positions = -1;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_E_ARGUMENT);
}

/* ---- a GPU ---- */

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

/* The pages of a sequence as the last step's attention finds them. */
static void pages_there(struct engine *e, int32_t sequence, int32_t pages[6])
{
    const struct plan *plan = engine_last_plan(e);
    const int32_t *table = NULL;
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        const struct attention_args *a = step->args;
        if (step->op == &op_attention && a->kv.pages) table = a->kv.pages;
    }
    assert_non_null(table);
    struct gpu_stream *stream = engine_context(e)->stream;
    assert_int_equal(gpu_copy_out(stream, pages, table + 6 * sequence, 6 * sizeof *pages), SOL_OK);
    assert_int_equal(gpu_wait(stream), SOL_OK);
}

static enum sol_status gpu_scenario(void)
{
    struct gpu *gpu;
    struct engine *e = NULL;
    struct engine_params p = params_for(false, 4 * KV_PAGE);
    static struct engine_row rows[200];
    SOL_TRY(gpu_open(0, &gpu));
    p.chooser.device.gpu = gpu;
    p.threads = 1;
    for (int i = 0; i < 200; i++) rows[i] = (struct engine_row){.token = 1, .sequence = i % 2};
    enum sol_status status = engine_create(tiny, &p, &e);
    if (status == SOL_OK) status = engine_eval(e, rows, 200, NULL, NULL, NULL);
    if (status == SOL_OK) status = engine_eval(e, rows, 200, NULL, NULL, NULL);
    if (status == SOL_OK) assert_int_equal(engine_free_positions(e), 0);
    if (status == SOL_OK)
        assert_int_equal(engine_eval(e, rows, 120, NULL, NULL, NULL), SOL_E_MEMORY);
    if (e) engine_reset(e, 0);
    struct engine_row third = {.token = 1, .sequence = 2};
    for (int i = 0; i < 3 && status == SOL_OK; i++)
        status = engine_eval(e, &third, 1, NULL, NULL, NULL);
    engine_destroy(e);
    gpu_close(gpu);
    return status;
}

static void test_gpu_failures(void **state)
{
    (void)state;
    fail_each_call(&hopper, gpu_scenario, effort("failing calls", 60, 20));
}

/* Entries are there when a step runs, of the sequences that took part and of the others; a new
 * page costs one copy and no new plan; a step that fails gives its pages back. */
static void test_gpu_table(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *e;
    struct engine_params p = params_for(false, 6 * KV_PAGE);
    struct engine_row one = {.token = 1, .sequence = 3}, two = {.token = 1, .sequence = 1};
    int32_t pages[6];
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    p.chooser.device.gpu = gpu;
    p.threads = 1;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    assert_int_equal(engine_pretend(e, 3, 126), SOL_OK);
    assert_int_equal(engine_pretend(e, 1, 300), SOL_OK);
    assert_int_equal(engine_eval(e, &one, 1, NULL, NULL, NULL), SOL_OK);
    pages_there(e, 3, pages);
    assert_int_equal(pages[0], 0);
    pages_there(e, 1, pages);
    for (int i = 0; i < 3; i++) assert_int_equal(pages[i], 1 + i);
    const struct plan *plan = engine_last_plan(e);
    assert_int_equal(engine_eval(e, &one, 1, NULL, NULL, NULL), SOL_OK); /* 128 are held */
    assert_int_equal(engine_pretend(e, 3, 126), SOL_OK);
    long calls[4];
    for (int i = 0; i < 4; i++) {
        long before = fake_cuda_calls();
        assert_int_equal(engine_eval(e, &one, 1, NULL, NULL, NULL), SOL_OK);
        calls[i] = fake_cuda_calls() - before;
    }
    assert_int_equal(calls[1], calls[0]);
    assert_int_equal(calls[2], calls[0] + 1); /* position 128 */
    assert_int_equal(calls[3], calls[0]);
    assert_ptr_equal(plan, engine_last_plan(e));
    pages_there(e, 3, pages);
    assert_true(pages[0] == 0 && pages[1] == 4);
    engine_reset(e, 3);
    assert_int_equal(engine_pretend(e, 1, 3 * KV_PAGE), SOL_OK);
    int64_t room = engine_free_positions(e);
    fake_cuda_fail(1, 700, false);
    assert_int_not_equal(engine_eval(e, &two, 1, NULL, NULL, NULL), SOL_OK);
    assert_int_equal(engine_position(e, 1), 3 * KV_PAGE);
    assert_int_equal(engine_free_positions(e), room);
    engine_destroy(e);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static int set_up(void **state)
{
    (void)state;
    return model_open("synth:tiny", &tiny) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),     cmocka_unit_test(test_turns),
        cmocka_unit_test(test_together),  cmocka_unit_test(test_full),
        cmocka_unit_test(test_gpu_table), cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
