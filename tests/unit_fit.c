/* What a model is said to need is what an engine takes, on the CPU and on a GPU (a driver that only
 * counts): to the byte, for every shape of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/status.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "infer/fit.h"
#include "model/upload.h"
#include "support/effort.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { ROWS_MAX = 512 };

static struct model *tiny;

static const struct engine_params cases[] = {
    {.context = 4096, .sequences = 1, .max_batch = 512, .max_outputs = 1, .kv_dtype = DTYPE_F16},
    {.context = 100, .sequences = 3, .max_batch = 7, .max_outputs = 5, .kv_dtype = DTYPE_F32},
    {.context = 33, .sequences = 1, .max_batch = 512, .max_outputs = 64, .kv_dtype = DTYPE_F16},
    {.context = 512, .sequences = 8, .max_batch = 64, .max_outputs = 8, .kv_dtype = DTYPE_BF16},
    {.context = 512, /* fewer than 8 contexts: 9 pages */
     .sequences = 8,
     .cache_positions = 1100,
     .max_batch = 64,
     .max_outputs = 8,
     .kv_dtype = DTYPE_F16},
    {.context = 300,
     .sequences = 2,
     .cache_positions = 1 << 20,
     .max_batch = 64,
     .max_outputs = 1,
     .kv_dtype = DTYPE_F32},
    {.context = 512,
     .sequences = 8,
     .max_batch = 200,
     .max_outputs = 8,
     .kv_dtype = DTYPE_F16,
     .keep = true},
};

static struct engine_params params_of(size_t i, struct gpu *gpu)
{
    struct engine_params p = cases[i];
    chooser_init(&p.chooser, 1);
    p.chooser.device.gpu = gpu;
    p.threads = 1;
    return p;
}

/* A step of `n` rows, dealt to all sequences in turn, the first `outputs` of which want logits. */
static void step(struct engine *e, const struct engine_params *p, int64_t n, int64_t outputs)
{
    static struct engine_row rows[ROWS_MAX];
    for (int32_t s = 0; s < p->sequences; s++) engine_reset(e, s);
    for (int64_t i = 0; i < n; i++)
        rows[i] = (struct engine_row){1, (int32_t)(i % p->sequences), i < outputs};
    if (engine_eval(e, rows, n, NULL, NULL, NULL) != SOL_OK)
        fail_msg("%lld rows: %s", (long long)n, sol_last_error());
}

/* Few rows one by one, and some more. */
static void every_shape(struct engine *e, const struct engine_params *p)
{
    int64_t room = p->cache_positions && p->cache_positions < p->context * p->sequences
                       ? p->cache_positions / 2
                       : p->context * p->sequences;
    enum { FEW = 40 };
    const int64_t few = effort("steps of few rows", FEW, 8), apart = few < FEW ? 6 * 41 : 41;
    for (int64_t n = 1; n <= p->max_batch && n <= room; n += n < few ? 1 : apart) {
        int64_t outputs = n < p->max_outputs ? n : p->max_outputs;
        if (few == FEW || n < few) step(e, p, n, 0);
        step(e, p, n, outputs);
    }
    if (p->max_batch <= room) step(e, p, p->max_batch, p->max_outputs);
}

static void expect_parts(const struct engine *e, const struct engine_parts *fit)
{
    struct engine_parts taken;
    engine_memory_parts(e, &taken);
    assert_int_equal(taken.cache, fit->cache);
    assert_int_equal(taken.buffers, fit->buffers);
    assert_int_equal(taken.scratch, fit->scratch);
    assert_int_equal(engine_memory(e), engine_parts_total(fit));
}

static void check_cpu(const struct model *model)
{
    const int64_t most = model->config.context;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct engine_params p = params_of(i, NULL);
        struct engine_parts fit;
        struct engine *e;
        int64_t longest;
        if (p.context > most) p.context = most;
        assert_int_equal(fit_engine(model, &p, &fit), SOL_OK);
        assert_int_equal(engine_create(model, &p, &e), SOL_OK);
        expect_parts(e, &fit);
        every_shape(e, &p);
        expect_parts(e, &fit);
        engine_destroy(e);
        longest = fit_longest_context(model, &p, engine_parts_total(&fit), most);
        assert_true(longest >= p.context);
    }
}

static void test_cpu(void **state)
{
    (void)state;
    check_cpu(tiny);
}

/* Its layers differ in windows and in what they have. */
static void test_cpu_gpt(void **state)
{
    (void)state;
    struct model *model;
    assert_int_equal(model_open("synth:gpt-tiny,layers=7", &model), SOL_OK);
    check_cpu(model);
    model_close(model);
}

/* Pages of this process's address space. */
static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What the system counts, of an engine large enough for the heap's tables not to matter. */
static void test_system(void **state)
{
    (void)state;
    struct engine_params p = params_of(3, NULL);
    struct engine_parts fit;
    struct engine *e;
    p.context = 4096;
    p.sequences = 64;
    assert_int_equal(fit_engine(tiny, &p, &fit), SOL_OK);
    size_t before = address_space(), said = engine_parts_total(&fit);
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    size_t taken = address_space() - before;
    engine_destroy(e);
    assert_true(said > (size_t)100 << 20);
    if (taken < said - said / 100 || taken > said + said / 100)
        fail_msg("%zu bytes said, %zu taken", said, taken);
}

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .memory = (size_t)256 << 20};
static const struct fake_cuda_params blackwell = {
    .devices = 1, .major = 12, .memory = (size_t)256 << 20};

static void check_gpu(const struct fake_cuda_params *device, size_t i)
{
    struct gpu *gpu;
    struct engine_parts fit;
    struct engine *e;
    struct model *up;
    cuda_replace(fake_cuda_start(device));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params p = params_of(i, gpu);
    assert_int_equal(model_upload_outline(tiny, gpu, &up), SOL_OK);
    assert_int_equal(fit_engine(up, &p, &fit), SOL_OK);
    assert_int_equal(fake_cuda_bytes(), 0);
    assert_int_equal(model_upload_load(up, gpu), SOL_OK);
    assert_int_equal(fake_cuda_bytes(), model_upload_bytes(up));
    p.uploaded = up;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    expect_parts(e, &fit);
    every_shape(e, &p);
    expect_parts(e, &fit);
    assert_int_equal(fake_cuda_bytes(), model_upload_bytes(up) + engine_parts_total(&fit));
    engine_destroy(e);
    model_upload_destroy(up, gpu);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void test_gpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        check_gpu(&hopper, i);
        check_gpu(&blackwell, i);
    }
}

/* A wider engine needs as much as any narrower one. */
static void compare_rows(const struct model *model, struct gpu *gpu, int64_t most)
{
    static const int64_t rows[] = {1, 2, 3, 8, 9, 16, 17, 48, 63, 64, 90, 128, 129, 250};
    struct engine_params p = params_of(3, gpu);
    struct engine_parts all, one;
    p.context = 4096;
    p.sequences = 64;
    p.max_outputs = 64;
    p.max_batch = most;
    assert_int_equal(fit_engine(model, &p, &all), SOL_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        p.max_batch = rows[i];
        assert_int_equal(fit_engine(model, &p, &one), SOL_OK);
        if (one.scratch > all.scratch)
            fail_msg("%lld rows need %zu bytes of scratch, %lld rows %zu", (long long)rows[i],
                     one.scratch, (long long)most, all.scratch);
    }
}

/* Of many rows only some are looked at: no plan between them needs more than there is. */
static void test_scratch_of_many_rows(void **state)
{
    (void)state;
    enum { FEW = 1000, MOST = 2900 };
    struct gpu *gpu;
    struct engine *e;
    struct engine_parts parts;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params p = params_of(0, gpu);
    p.max_outputs = 64;
    p.max_batch = MOST;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    engine_memory_parts(e, &parts);
    for (int64_t rows = FEW; rows <= MOST; rows++) {
        struct plan *plan;
        assert_int_equal(engine_make_plan(e, &p.chooser, rows, 64, NULL, NULL, &plan), SOL_OK);
        if (plan_bytes(plan) > parts.scratch)
            fail_msg("%lld rows need %zu bytes of scratch of %zu", (long long)rows,
                     plan_bytes(plan), parts.scratch);
        plan_destroy(plan);
    }
    engine_destroy(e);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* Kernels of texts and prompts need more than those of texts alone. */
static void compare_outputs(const struct model *model, struct gpu *gpu)
{
    struct engine_params p = params_of(3, gpu);
    struct engine_parts all, some;
    p.context = 4096;
    p.sequences = p.max_batch = p.max_outputs = 256;
    assert_int_equal(fit_engine(model, &p, &all), SOL_OK);
    p.max_outputs = 200;
    assert_int_equal(fit_engine(model, &p, &some), SOL_OK);
    if (some.scratch > all.scratch)
        fail_msg("with fewer outputs %zu bytes of scratch for %zu", some.scratch, all.scratch);
}

static void test_scratch(void **state)
{
    (void)state;
    static const char *const models[] = {"synth:gpt-oss-20b,layers=2",
                                         "synth:gpt-oss-120b,layers=2,dense=q8_0", "synth:tiny"};
    static const struct gpu_info gpus[] = {
        {.major = 9, .sm_count = 132, .shared_per_block = 227 << 10, .shared_per_sm = 228 << 10},
        {.major = 8, .sm_count = 108, .shared_per_block = 163 << 10, .shared_per_sm = 164 << 10},
        {.major = 12, .sm_count = 48, .shared_per_block = 99 << 10, .shared_per_sm = 100 << 10}};
    static const struct model_params later = {.later = true};
    for (size_t i = 0; i < COUNT(models); i++) {
        struct model *model, *up;
        struct gpu *gpu;
        assert_int_equal(model_open_with(models[i], &later, &model), SOL_OK);
        compare_rows(model, NULL, 512);
        for (size_t g = 0; g < COUNT(gpus); g++) {
            assert_int_equal(gpu_describe(&gpus[g], &gpu), SOL_OK);
            assert_int_equal(model_upload_outline(model, gpu, &up), SOL_OK);
            compare_rows(up, gpu, 700);
            compare_outputs(up, gpu);
            model_upload_destroy(up, gpu);
            gpu_close(gpu);
        }
        model_close(model);
    }
}

/* ---- many shapes ---- */

enum { SHAPES = 64, ROUNDS = 5, ROUNDS_LEAST = 2 };

static void all_shapes(struct engine *e, const struct engine_params *p)
{
    for (int64_t i = 0; i < SHAPES; i++) step(e, p, 1 + i % 48, i < 48 ? 0 : 1 + i % 16);
}

/* What making the plan of each takes: the least of some tries, as other programs run beside. */
static double time_of_plans(struct engine *e, const struct engine_params *p)
{
    enum { TRIES = 5 };
    double least = 0;
    for (int t = 0; t < TRIES; t++) {
        uint64_t start = clock_ns();
        for (int64_t i = 0; i < SHAPES; i++) {
            struct plan *plan;
            assert_int_equal(engine_make_plan(e, &p->chooser, 1 + i % 48, i < 48 ? 0 : 1 + i % 16,
                                              NULL, NULL, &plan),
                             SOL_OK);
            plan_destroy(plan);
        }
        double took = (double)(clock_ns() - start);
        if (!t || took < least) least = took;
    }
    return least;
}

/* 64 shapes of a step in turn: memory is what it was, and the time goes to the steps. */
static void test_shapes(void **state)
{
    (void)state;
    struct engine_params p = params_of(3, NULL);
    struct engine_parts fit;
    struct engine *e;
    p.max_outputs = 16;
    assert_int_equal(fit_engine(tiny, &p, &fit), SOL_OK);
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    const int64_t rounds = effort("rounds of 64 shapes", ROUNDS, ROUNDS_LEAST);
    size_t before = address_space();
    uint64_t start = clock_ns();
    all_shapes(e, &p);
    size_t first = address_space();
    for (int64_t i = 1; i < rounds; i++) all_shapes(e, &p);
    double took = (double)(clock_ns() - start), plans = time_of_plans(e, &p);
    expect_parts(e, &fit);
    assert_int_equal(engine_plans_made(e), SHAPES);
    assert_true(first - before < SHAPES * (size_t)(128 << 10)); /* the lists themselves */
    assert_true(address_space() - first < (size_t)1 << 20);
    took *= (double)ROUNDS / (double)rounds;
    if (plans > 0.02 * took) fail_msg("%.2f ms for plans of %.2f ms", 1e-6 * plans, 1e-6 * took);
    engine_destroy(e);
}

static void test_shapes_gpu(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *e;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params p = params_of(3, gpu);
    p.max_outputs = 16;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    size_t bytes = fake_cuda_bytes();
    for (int i = 0; i < ROUNDS; i++) { /* the second makes graphs, the others run them */
        if (i == 2) assert_int_equal(fake_cuda_count("graph_instantiate"), SHAPES);
        all_shapes(e, &p);
        assert_int_equal(fake_cuda_bytes(), bytes);
    }
    assert_int_equal(fake_cuda_count("graph_instantiate"), SHAPES);
    assert_int_equal(engine_plans_made(e), SHAPES);
    engine_destroy(e);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* Where shapes vary, one that comes again and again has a graph at last. */
static void test_graphs_of_varied(void **state)
{
    (void)state;
    enum { SINGLE = 32 };
    struct gpu *gpu;
    struct engine *e;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params p = params_of(3, gpu);
    p.shapes_vary = true;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    for (int64_t i = 0; i < SINGLE; i++) step(e, &p, 2, 1);
    step(e, &p, 3, 1);
    assert_int_equal(fake_cuda_count("graph_instantiate"), 0);
    for (int64_t i = 0; i < 2; i++) step(e, &p, 2, 1);
    assert_int_equal(fake_cuda_count("graph_instantiate"), 1);
    assert_int_equal(fake_cuda_count("graph_launch"), 2);
    engine_destroy(e);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* More shapes than are kept: those that were not used for longest go, and their graphs. */
static void test_eviction(void **state)
{
    (void)state;
    enum { MOST = 44, GRAPHS = 3 };
    struct gpu *gpu;
    struct engine *e;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params p = params_of(3, gpu);
    p.max_batch = p.max_outputs = MOST;
    assert_int_equal(engine_create(tiny, &p, &e), SOL_OK);
    size_t bytes = fake_cuda_bytes();
    int64_t shapes = 0;
    for (int64_t rows = MOST; rows > 0; rows--)
        for (int64_t outputs = 0; outputs <= rows; outputs++, shapes++)
            for (int i = 0; i < (shapes < GRAPHS ? 2 : 1); i++) step(e, &p, rows, outputs);
    assert_int_equal(engine_plans_made(e), shapes);
    assert_int_equal(fake_cuda_count("graph_instantiate"), GRAPHS);
    assert_int_equal(fake_cuda_count("graph_exec_destroy"), GRAPHS);
    step(e, &p, 1, 1);
    assert_int_equal(engine_plans_made(e), shapes);
    step(e, &p, MOST, 0);
    assert_int_equal(engine_plans_made(e), shapes + 1);
    assert_int_equal(fake_cuda_bytes(), bytes);
    engine_destroy(e);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* ---- places ---- */

struct span {
    const char *name;
    uintptr_t begin, end;
};

static bool apart(const struct span *a, const struct span *b)
{
    return a->end <= b->begin || b->end <= a->begin;
}

/* What is needed at the same time lies apart; with `keep`, everything. */
static void test_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct engine_params p = params_of(i, NULL);
        struct buffers b;
        engine_params_settle(&p);
        assert_int_equal(buffers_describe(&tiny->config, &p, &b), SOL_OK);
        const struct model_config *c = &tiny->config;
        size_t rows = (size_t)p.max_batch, wide = rows * (size_t)(c->n_heads * c->head_dim) * 4;
        size_t narrow = rows * (size_t)c->hidden * 4, first = (uintptr_t)plan_nowhere;
        const struct span spans[] = {
            {"x", (uintptr_t)b.at.x, (uintptr_t)b.at.x + narrow},
            {"q", (uintptr_t)b.at.q, (uintptr_t)b.at.q + wide},
            {"attn", (uintptr_t)b.at.attn, (uintptr_t)b.at.attn + wide},
            {"normed", (uintptr_t)b.at.normed, (uintptr_t)b.at.normed + narrow},
            {"step", (uintptr_t)b.step, (uintptr_t)(b.step + 4 * rows)},
            {"keys", (uintptr_t)b.at.kv[0].k, (uintptr_t)b.at.kv[0].v}};
        for (size_t j = 0; j < COUNT(spans); j++) {
            assert_true(spans[j].begin >= first && spans[j].end <= first + b.size);
            assert_int_equal(spans[j].begin % 256, 0);
            for (size_t k = 0; k < j; k++) {
                bool shared = !p.keep && strcmp(spans[j].name, "normed") == 0 &&
                              strcmp(spans[k].name, "q") == 0;
                if (apart(&spans[j], &spans[k]) == shared)
                    fail_msg("case %zu: %s and %s", i, spans[k].name, spans[j].name);
            }
        }
        buffers_free(&b);
    }
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
    /* those of this machine do not start on such a driver */
    setenv("SOL_CUBLASLT", "/nowhere", 1);
    setenv("SOL_CUDNN", "/nowhere", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_cpu_gpt),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_scratch_of_many_rows),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_shapes_gpu),
        cmocka_unit_test(test_graphs_of_varied),
        cmocka_unit_test(test_eviction),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
