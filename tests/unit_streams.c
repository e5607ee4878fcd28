/* Several streams and GPUs in a process, from several threads, without a GPU: the fake driver
 * counts calls whose thread has not the context of what they name. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "driver/fake_cuda.h"
#include "gpu/gpu_private.h"
#include "infer/engine.h"
#include "model/upload.h"
#include "ops/ops.h"
#include "ops/plan.h"
#include "support/fail_calls.h"
#include "tensor_map_args.h"

static const struct fake_cuda_params hopper = {
    .devices = 2, .major = 9, .minor = 0, .memory = (size_t)64 << 20};
static const struct gpu_launch small = {.grid = {1}, .block = {32}};
static struct model *tiny;

static void finish(void)
{
    assert_int_equal(fake_cuda_misuses(), 0);
    assert_int_equal(fake_cuda_live(), 0);
    assert_int_equal(fake_cuda_bytes(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* ---- what the fake driver notices ---- */

static void *ask_alone(void *arg)
{
    const struct cuda_api *cuda = arg;
    cuda_address address;
    return cuda->memory_alloc(&address, 16) == CUDA_E_CONTEXT ? arg : NULL;
}

static void test_wrong_use(void **state)
{
    (void)state;
    const struct cuda_api *cuda = fake_cuda_start(&hopper);
    cuda_context contexts[2];
    cuda_stream streams[2];
    cuda_event events[2];
    cuda_module module;
    cuda_function function;
    pthread_t thread;
    void *noticed;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuda->context_retain(&contexts[i], i), CUDA_OK);
        assert_int_equal(cuda->context_set(contexts[i]), CUDA_OK);
        assert_int_equal(cuda->stream_create(&streams[i], 0), CUDA_OK);
        assert_int_equal(cuda->event_create(&events[i], 0), CUDA_OK);
    }
    assert_int_equal(cuda->module_load(&module, ""), CUDA_OK);
    assert_int_equal(cuda->module_function(&function, module, "some"), CUDA_OK);
    struct cuda_launch launch = {.stream = streams[1]};
    assert_int_equal(cuda->launch(&launch, function, (void *[]){NULL}, NULL), CUDA_OK);
    assert_int_equal(cuda->event_record(events[1], streams[1]), CUDA_OK);
    assert_int_equal(fake_cuda_misuses(), 0);

    assert_int_equal(pthread_create(&thread, NULL, ask_alone, (void *)(uintptr_t)cuda), 0);
    assert_int_equal(pthread_join(thread, &noticed), 0);
    assert_non_null(noticed); /* a new thread has no context */
    assert_int_equal(cuda->stream_wait(streams[0]), CUDA_E_CONTEXT);
    assert_int_equal(cuda->event_record(events[0], streams[1]), CUDA_E_HANDLE);
    assert_int_equal(cuda->stream_wait_event(streams[1], events[0], 0), CUDA_OK);
    assert_int_equal(cuda->context_set(contexts[0]), CUDA_OK);
    launch.stream = streams[0];
    assert_int_equal(cuda->launch(&launch, function, (void *[]){NULL}, NULL), CUDA_E_HANDLE);
    assert_int_equal(cuda->module_unload(module), CUDA_OK);
    assert_int_equal(fake_cuda_misuses(), 5);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuda->context_set(contexts[i]), CUDA_OK);
        assert_int_equal(cuda->event_destroy(events[i]), CUDA_OK);
        assert_int_equal(cuda->stream_destroy(streams[i]), CUDA_OK);
    }
    fake_cuda_stop();
}

/* ---- every call enters ---- */

/* Calls on one GPU, before each of which the thread has the context of another one. */
struct disturbed {
    struct gpu *gpu, *other;
    struct gpu_stream *stream, *second;
    struct gpu_event *events[2];
    struct gpu_graph *graph;
    void *memory, *pinned;
};

static enum sol_status disturb(const struct disturbed *d)
{
    size_t bytes;
    return d->gpu && d->other ? gpu_memory_free(d->other, &bytes) : SOL_OK;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        SOL_TRY(disturb(d));                                                                       \
        SOL_TRY(call);                                                                             \
    } while (0)

static enum sol_status move_bytes(struct disturbed *d)
{
    char *memory;
    size_t bytes;
    TRY(gpu_alloc(d->gpu, "some", 4096, &d->memory));
    TRY(gpu_alloc_pinned(d->gpu, 64, &d->pinned));
    memory = d->memory;
    TRY(gpu_memory_free(d->gpu, &bytes));
    TRY(gpu_zero(d->stream, memory, 64));
    TRY(gpu_copy_in(d->stream, memory, d->pinned, 64));
    TRY(gpu_copy_on(d->stream, memory + 64, memory, 64));
    TRY(gpu_copy_out(d->stream, d->pinned, memory + 64, 64));
    TRY(gpu_wait(d->stream));
    return SOL_OK;
}

static enum sol_status run_kernels(struct disturbed *d)
{
    const struct gpu_kernel *kernel;
    const int args[2] = {1, 2};
    struct tensor_map map;
    struct gpu_tensor tensor = {.data = args, .rank = 2, .sizes = {64, 8}, .box = {64, 8}};
    int blocks;
    TRY(gpu_kernel_find(d->gpu, "add/add.cu", "add_f32", &kernel));
    TRY(gpu_kernel_occupancy(kernel, 128, 0, &blocks));
    TRY(gpu_launch(d->stream, kernel, &small, args));
    SOL_TRY(disturb(d));
    gpu_put(d->stream, "rope/rope.cu", "rope_f32", &small, args);
    SOL_TRY(disturb(d));
    gpu_put_map(d->stream, &tensor, &map);
    TRY(gpu_graph_begin(d->stream));
    gpu_put(d->stream, "add/add.cu", "add_f32", &small, args);
    TRY(gpu_graph_end(d->stream, &d->graph));
    TRY(gpu_graph_launch(d->graph));
    return gpu_put_status(d->stream);
}

static enum sol_status use_events(struct disturbed *d)
{
    double ns;
    for (int i = 0; i < 2; i++) TRY(gpu_event_create(d->gpu, &d->events[i]));
    TRY(gpu_event_record(d->events[0], d->stream));
    TRY(gpu_stream_wait_event(d->second, d->events[0]));
    TRY(gpu_event_record(d->events[1], d->second));
    TRY(gpu_event_wait(d->events[1]));
    TRY(gpu_event_elapsed(d->events[0], d->events[1], &ns));
    return SOL_OK;
}

static enum sol_status use_disturbed(struct disturbed *d)
{
    SOL_TRY(gpu_open(0, &d->gpu));
    SOL_TRY(gpu_open(1, &d->other));
    TRY(gpu_stream_create(d->gpu, &d->stream));
    TRY(gpu_stream_create(d->gpu, &d->second));
    SOL_TRY(move_bytes(d));
    SOL_TRY(run_kernels(d));
    return use_events(d);
}

/* Gives something back, whatever fails before. */
#define GIVE(call)                                                                                 \
    do {                                                                                           \
        enum sol_status disturbed_ = disturb(d);                                                   \
        if (status == SOL_OK) status = disturbed_;                                                 \
        call;                                                                                      \
    } while (0)

static enum sol_status disturbed_scenario(void)
{
    struct disturbed *d = &(struct disturbed){.gpu = NULL};
    enum sol_status status = use_disturbed(d);
    GIVE(gpu_graph_destroy(d->graph));
    for (int i = 0; i < 2; i++) GIVE(gpu_event_destroy(d->events[i]));
    if (d->stream) GIVE(gpu_settle(d->stream));
    GIVE(gpu_stream_destroy(d->stream));
    GIVE(gpu_stream_destroy(d->second));
    if (d->gpu) GIVE(gpu_free_pinned(d->gpu, d->pinned));
    if (d->gpu) GIVE(gpu_free(d->gpu, d->memory));
    GIVE(gpu_close(d->gpu));
    gpu_close(d->other);
    return status;
}

static void test_each_call_enters(void **state)
{
    (void)state;
    fail_each_call(&hopper, disturbed_scenario, 300);
}

/* ---- streams ---- */

/* A failure belongs to the stream that it was put on. */
static void test_failures_apart(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct gpu_stream *bad, *good;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(gpu_stream_create(gpu, &bad), SOL_OK);
    assert_int_equal(gpu_stream_create(gpu, &good), SOL_OK);
    assert_ptr_not_equal(gpu_stream_counters(bad), gpu_stream_counters(good));
    gpu_put(bad, "no/such.cu", "none", &small, NULL);
    gpu_put(good, "add/add.cu", "add_f32", &small, NULL);
    gpu_put(bad, "add/add.cu", "add_f32", &small, NULL);
    assert_int_equal(fake_cuda_launches(), 1);
    assert_int_equal(gpu_put_status(good), SOL_OK);
    assert_int_equal(gpu_wait(good), SOL_OK);
    assert_int_equal(gpu_wait(bad), SOL_E_INTERNAL);
    assert_int_equal(gpu_wait(bad), SOL_OK);
    gpu_stream_destroy(bad);
    gpu_stream_destroy(good);
    gpu_close(gpu);
    finish();
}

static struct engine_params params_on(struct gpu *gpu)
{
    struct engine_params params;
    engine_params_init(&params);
    params.threads = 1;
    params.context = 64;
    params.max_batch = 6;
    params.chooser.device.gpu = gpu;
    return params;
}

/* A graph has the counters of the stream that it was captured on: elsewhere there is another. The
 * engine's stream may be the caller's. */
static void test_graph_of_stream(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct gpu_stream *streams[2];
    struct engine *engine;
    struct plan *plan;
    static const int order[] = {0, 0, 0, 1, 1, 0}; /* loads, captures, replays, ... */
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(gpu_stream_create(gpu, &streams[i]), SOL_OK);
    struct engine_params params = params_on(gpu);
    params.stream = streams[0];
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_OK);
    assert_ptr_equal(engine_context(engine)->stream, streams[0]);
    assert_int_equal(engine_make_plan(engine, &params.chooser, 1, 1, NULL, NULL, &plan), SOL_OK);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct op_context context = {.stream = streams[order[i]]};
        assert_int_equal(plan_run(plan, &context, false, NULL), SOL_OK);
        assert_int_equal(gpu_wait(context.stream), SOL_OK);
    }
    assert_int_equal(fake_cuda_count("capture_begin"), 3);
    assert_int_equal(fake_cuda_count("graph_launch"), 5);
    plan_destroy(plan);
    engine_destroy(engine);
    for (int i = 0; i < 2; i++) gpu_stream_destroy(streams[i]);
    gpu_close(gpu);
    finish();
}

/* Calls beside others go to the second stream, behind all before them; what meets waits for it. The
 * same in a graph, which is joined again before it ends, and with one stream in the list's order.
 * The adds' rows say which is which: 1 and 2, then 3 and 4 beside 5, then 6. */
static struct plan *plan_with_lanes(struct gpu *gpu, float *x)
{
    struct chooser chooser;
    struct plan *plan;
    chooser_init(&chooser, 1);
    chooser.device.gpu = gpu;
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    for (int i = 1; i <= 6; i++) {
        plan_beside(plan, i == 3 || i == 4);
        if (i == 6) plan_meet(plan);
        plan_call(plan, &op_add,
                  &(struct add_args){
                      .m = i, .n = 8, .y = matrix_f32(x, i, 8), .x = matrix_f32(x + 64, i, 8)});
    }
    assert_int_equal(plan_finish(plan), SOL_OK);
    return plan;
}

static void check_lanes(const struct op_context *context, long from)
{
    for (int i = 1; i <= 6; i++) {
        const struct gpu_stream *want =
            context->beside && (i == 3 || i == 4) ? context->beside : context->stream;
        assert_ptr_equal(fake_cuda_launch(from + i - 1)->config.stream, want->handle);
    }
}

static void run_lanes(struct plan *plan, const struct op_context *context)
{
    static const char *const counted[] = {"event_record", "stream_wait_event", "capture_begin"};
    for (int run = 0; run < 3; run++) {
        long before[3], launches = fake_cuda_launches();
        for (int i = 0; i < 3; i++) before[i] = fake_cuda_count(counted[i]);
        assert_int_equal(plan_run(plan, context, false, NULL), SOL_OK);
        assert_int_equal(gpu_wait(context->stream), SOL_OK);
        const int turns = run < 2 && context->beside ? 2 : 0; /* a fork and a join */
        for (int i = 0; i < 3; i++)
            assert_int_equal(fake_cuda_count(counted[i]) - before[i], i < 2 ? turns : run == 1);
        if (run < 2) check_lanes(context, launches);
        if (run == 2) assert_int_equal(fake_cuda_launches(), launches);
    }
    assert_int_equal(gpu_stream_kernels(context->stream), 3 * 6);
}

static void test_lanes(void **state)
{
    (void)state;
    struct gpu *gpu;
    void *x;
    for (int lanes = 1; lanes <= 2; lanes++) {
        struct op_context context = {.stream = NULL};
        cuda_replace(fake_cuda_start(&hopper));
        assert_int_equal(gpu_open(0, &gpu), SOL_OK);
        assert_int_equal(gpu_stream_create(gpu, &context.stream), SOL_OK);
        if (lanes == 2) assert_int_equal(gpu_stream_create(gpu, &context.beside), SOL_OK);
        assert_int_equal(gpu_alloc(gpu, "x", 4096, &x), SOL_OK);
        struct plan *plan = plan_with_lanes(gpu, x);
        run_lanes(plan, &context);
        if (context.beside) { /* what fails there is the stream's */
            gpu_put(context.beside, "no/such.cu", "none", &small, NULL);
            assert_int_equal(gpu_stream_join(context.stream, context.beside), SOL_OK);
            assert_int_equal(gpu_wait(context.stream), SOL_E_INTERNAL);
            assert_int_equal(gpu_wait(context.beside), SOL_OK);
        }
        plan_destroy(plan);
        gpu_stream_destroy(context.beside);
        gpu_stream_destroy(context.stream);
        gpu_close(gpu);
        finish();
    }
}

/* What a timed run could not make the next one makes. */
static void test_events_that_fail(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *engine;
    struct plan *plan;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    struct engine_params params = params_on(gpu);
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_OK);
    assert_int_equal(engine_make_plan(engine, &params.chooser, 1, 1, NULL, NULL, &plan), SOL_OK);
    fake_cuda_fail_in("event_create", 3, CUDA_E_MEMORY, false);
    assert_int_equal(plan_run(plan, engine_context(engine), true, NULL), SOL_E_MEMORY);
    fake_cuda_fail_in("", 0, CUDA_OK, false);
    assert_int_equal(plan_run(plan, engine_context(engine), true, NULL), SOL_OK);
    plan_destroy(plan);
    engine_destroy(engine);
    gpu_close(gpu);
    finish();
}

/* ---- engines in threads ---- */

enum { ENGINES = 2, STEPS = 30 };

struct player {
    int number;
    struct gpu *gpu;
    struct engine *engine;
    pthread_barrier_t *together;
    enum sol_status status;
    int failed;
    char message[256];
};

/* A prompt in two steps, then a row a step. */
static enum sol_status play(struct player *p)
{
    const struct engine_params params = params_on(p->gpu);
    struct engine_row rows[9];
    const float *logits;
    for (int i = 0; i < 9; i++) rows[i] = (struct engine_row){.token = i, .output = i == 8};
    SOL_TRY(engine_create(tiny, &params, &p->engine));
    SOL_TRY(engine_eval(p->engine, rows, 9, NULL, NULL, &logits));
    for (int i = 0; i < STEPS; i++) SOL_TRY(engine_eval(p->engine, &rows[8], 1, NULL, NULL, NULL));
    return SOL_OK;
}

/* In the first engine a launch fails once, of a step with new kernels, while the others replay
 * graphs and launch nothing. */
static enum sol_status fail_one(struct player *p)
{
    struct engine_row rows[3] = {{.token = 1}, {.token = 2}, {.token = 3, .output = true}};
    if (p->number == 0) fake_cuda_fail_in("launch", 3, CUDA_E_LAUNCH, false);
    for (int i = 0; i < STEPS / 2; i++) {
        enum sol_status status = engine_eval(p->engine, p->number ? &rows[2] : rows,
                                             p->number ? 1 : 3, NULL, NULL, NULL);
        if (status != SOL_OK && p->failed++) return status;
        engine_reset(p->engine, 0);
    }
    return SOL_OK;
}

static void *play_thread(void *arg)
{
    struct player *p = arg;
    pthread_barrier_wait(p->together);
    p->status = play(p);
    pthread_barrier_wait(p->together);
    if (p->status == SOL_OK) p->status = fail_one(p);
    if (p->status != SOL_OK) snprintf(p->message, sizeof p->message, "%s", sol_last_error());
    engine_destroy(p->engine);
    return NULL;
}

/* Engine i is on gpus[i]. */
static void play_together(struct gpu *const gpus[ENGINES])
{
    struct player players[ENGINES] = {{.number = 0}};
    pthread_t threads[ENGINES];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, ENGINES);
    for (int i = 0; i < ENGINES; i++) {
        players[i] = (struct player){.number = i, .gpu = gpus[i], .together = &together};
        assert_int_equal(pthread_create(&threads[i], NULL, play_thread, &players[i]), 0);
    }
    for (int i = 0; i < ENGINES; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < ENGINES; i++) {
        if (players[i].status != SOL_OK) fail_msg("engine %d: %s", i, players[i].message);
        assert_int_equal(players[i].failed, i == 0);
    }
}

/* How many streams kernels of steps were launched on; those of loading have others. */
static int streams_of_steps(void)
{
    cuda_stream seen[8];
    int n = 0;
    for (long i = 0; i < fake_cuda_launches(); i++) {
        const struct fake_launch *l = fake_cuda_launch(i);
        int s = 0;
        if (strncmp(l->kernel, "pack_", 5) == 0) continue;
        while (s < n && seen[s] != l->config.stream) s++;
        assert_in_range(s, 0, 7);
        if (s == n) seen[n++] = l->config.stream;
    }
    return n;
}

static void test_one_gpu(void **state)
{
    (void)state;
    struct gpu *gpu;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    play_together((struct gpu *const[]){gpu, gpu});
    assert_int_equal(gpu_memory_used(gpu), 0);
    assert_int_equal(streams_of_steps(), ENGINES);
    gpu_close(gpu);
    finish();
}

static void test_two_gpus(void **state)
{
    (void)state;
    struct gpu *gpus[ENGINES];
    cuda_replace(fake_cuda_start(&hopper));
    for (int i = 0; i < ENGINES; i++) assert_int_equal(gpu_open(i, &gpus[i]), SOL_OK);
    play_together(gpus);
    assert_int_equal(streams_of_steps(), ENGINES);
    for (int i = 0; i < ENGINES; i++) gpu_close(gpus[i]);
    finish();
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
        cmocka_unit_test(test_wrong_use),        cmocka_unit_test(test_each_call_enters),
        cmocka_unit_test(test_failures_apart),   cmocka_unit_test(test_graph_of_stream),
        cmocka_unit_test(test_events_that_fail), cmocka_unit_test(test_one_gpu),
        cmocka_unit_test(test_two_gpus),         cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
