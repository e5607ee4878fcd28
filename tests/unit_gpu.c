/* The device layer without a device: the fake driver runs every path, and fails every call in turn.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver/fake_cuda.h"
#include "driver/nvrtc.h"
#include "gpu/kernel.h"
#include "infer/engine.h"
#include "ops/args.h"
#include "ops/ops.h"
#include "support/effort.h"
#include "support/fail_calls.h"
#include "tensor_map_args.h"

static const struct fake_cuda_params hopper = {
    .devices = 2, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

/* ---- scenarios: each does something whole and cleans up, whatever fails ---- */

static void no_args_name(void *arg, const char *name, size_t bytes)
{
    size_t *total = arg;
    assert_true(strlen(name) > 0);
    *total += bytes;
}

static enum sol_status use_device(struct gpu *gpu, struct gpu_stream *stream)
{
    char out[64] = "";
    void *memory, *other, *pinned;
    SOL_TRY(gpu_alloc(gpu, "some", 4096, &memory));
    SOL_TRY(gpu_alloc(gpu, "more", 100, &other));
    SOL_TRY(gpu_alloc_pinned(gpu, 64, &pinned));
    memcpy(pinned, "what goes in comes out", 23);
    enum sol_status status = gpu_zero(stream, memory, 4096);
    if (status == SOL_OK) status = gpu_copy_in(stream, memory, pinned, 23);
    if (status == SOL_OK) status = gpu_copy_on(stream, other, memory, 64);
    if (status == SOL_OK) status = gpu_copy_out(stream, out, other, sizeof out);
    gpu_free_pinned(gpu, pinned);
    if (status != SOL_OK) return status;
    SOL_TRY(gpu_wait(stream));
    assert_string_equal(out, "what goes in comes out");
    size_t total = 0, left;
    gpu_memory_report(gpu, no_args_name, &total);
    assert_int_equal(total, gpu_memory_used(gpu));
    SOL_TRY(gpu_memory_free(gpu, &left));
    gpu_free(gpu, other);
    assert_int_equal(gpu_memory_used(gpu), 4096 + gpu_stream_bytes());
    assert_int_equal(gpu_memory_peak(gpu), 4196 + gpu_stream_bytes());
    return SOL_OK;
}

static enum sol_status launch_some(struct gpu *gpu, struct gpu_stream *stream,
                                   struct gpu_graph **graph, struct gpu_event *events[2])
{
    const struct gpu_kernel *kernel;
    const int args[2] = {1, 2};
    struct tensor_map map;
    int blocks;
    double ns;
    struct gpu_launch launch = {
        .grid = {7, 2}, .block = {128}, .shared_bytes = 64, .overlaps = true};
    SOL_TRY(gpu_kernel_find(gpu, "add/add.cu", "add_f32", &kernel));
    SOL_TRY(gpu_kernel_occupancy(kernel, 128, 64, &blocks));
    SOL_TRY(gpu_event_create(gpu, &events[0]));
    SOL_TRY(gpu_event_create(gpu, &events[1]));
    SOL_TRY(gpu_event_record(events[0], stream));
    SOL_TRY(gpu_launch(stream, kernel, &launch, args));
    gpu_put(stream, "add/add.cu", "add_f32", &launch, args);
    SOL_TRY(gpu_event_record(events[1], stream));
    SOL_TRY(gpu_event_elapsed(events[0], events[1], &ns));
    SOL_TRY(gpu_graph_begin(stream));
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = args,
                                     .element = GPU_BF16,
                                     .rank = 2,
                                     .sizes = {64, 8},
                                     .strides = {128},
                                     .box = {64, 8},
                                     .swizzled = true},
                &map);
    gpu_put(stream, "rope/rope.cu", "rope_f32", &launch, args);
    SOL_TRY(gpu_graph_end(stream, graph));
    SOL_TRY(gpu_graph_launch(*graph));
    return gpu_wait(stream);
}

static enum sol_status device_scenario(void)
{
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_graph *graph = NULL;
    struct gpu_event *events[2] = {NULL, NULL};
    SOL_TRY(gpu_open(1, &gpu));
    enum sol_status status = gpu_stream_create(gpu, &stream);
    if (status == SOL_OK) status = use_device(gpu, stream);
    if (status == SOL_OK) status = launch_some(gpu, stream, &graph, events);
    gpu_graph_destroy(graph);
    gpu_event_destroy(events[0]);
    gpu_event_destroy(events[1]);
    gpu_stream_destroy(stream);
    gpu_close(gpu);
    return status;
}

static struct model *tiny;

/* A prompt in two chunks, then a token. */
static enum sol_status engine_scenario(void)
{
    struct gpu *gpu;
    struct engine *engine = NULL;
    struct engine_params params;
    struct engine_row rows[9];
    const float *logits;
    struct sampler *sampler = NULL;
    struct sampler_params sampling;
    unsigned char banned_ids[4096] = {[3] = 1};
    sampler_params_init(&sampling);
    assert_true(tiny->config.vocab <= (int64_t)sizeof banned_ids);
    SOL_TRY(gpu_open(0, &gpu));
    engine_params_init(&params);
    params.threads = 1;
    params.context = 64;
    params.max_batch = 6;
    params.chooser.device.gpu = gpu;
    for (int i = 0; i < 9; i++) rows[i] = (struct engine_row){.token = i, .output = i == 8};
    enum sol_status status = engine_create(tiny, &params, &engine);
    if (status == SOL_OK) status = engine_eval(engine, rows, 9, NULL, NULL, &logits);
    rows[0].output = true;
    for (int i = 0; i < 3 && status == SOL_OK; i++) /* the second is captured, the third replayed */
        status = engine_eval(engine, rows, 1, NULL, NULL, &logits);
    if (status == SOL_OK) assert_non_null(logits);
    if (status == SOL_OK)
        status = sampler_create(&sampling, tiny->config.vocab, banned_ids, &sampler);
    for (int i = 0; i < 3 && status == SOL_OK; i++) {
        int32_t token = -7;
        status = engine_eval_token(engine, rows, sampler, true, &token);
        if (status == SOL_OK) assert_true(token >= 0);
    }
    uint32_t allowed[4096 / 32] = {[0] = 1 << 5};
    if (status == SOL_OK) sampler_allow(sampler, allowed);
    for (int i = 0; i < 3 && status == SOL_OK; i++) { /* a draw of its own */
        int32_t token = -7;
        status = engine_eval_token(engine, rows, sampler, true, &token);
        if (status == SOL_OK) assert_true(token >= 0);
    }
    if (status == SOL_OK) assert_int_equal(engine_position(engine, 0), 18);
    engine_destroy(engine);
    sampler_destroy(sampler);
    gpu_close(gpu);
    return status;
}

/* ---- */

static void test_device(void **state)
{
    (void)state;
    fail_each_call(&hopper, device_scenario, LONG_MAX);
}

static void test_engine(void **state)
{
    (void)state;
    fail_each_call(&hopper, engine_scenario, 120);
}

/* What is launched for a model: every step's kernels, in order, none of them empty. */
static void test_launches(void **state)
{
    (void)state;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(engine_scenario(), SOL_OK);
    assert_true(fake_cuda_launches() > 0);
    long first = 0; /* behind what laid out the weights */
    while (strcmp(fake_cuda_launch(first)->kernel, "pack_mxfp4") == 0) first++;
    assert_true(first >= 3 * tiny->config.n_layers);
    assert_string_equal(fake_cuda_launch(first)->kernel, "embed_any");
    assert_int_equal(fake_cuda_launch(first)->config.grid[0], 6);
    int heads = 0, draws = 0;
    for (long i = first; i < fake_cuda_launches(); i++) {
        const struct fake_launch *l = fake_cuda_launch(i);
        unsigned threads = l->config.block[0] * l->config.block[1] * l->config.block[2];
        assert_in_range(threads, 32, 1024);
        assert_true(l->config.grid[0] && l->config.grid[1] && l->config.grid[2]);
        assert_true(l->config.shared_bytes <= 99 << 10);
        assert_true(l->programmatic || strcmp(l->kernel, "send_few") == 0);
        heads += strcmp(l->kernel, "attention_any") == 0;
        draws += strcmp(l->kernel, "sample_draw") == 0;
    }
    /* Replays launch no kernels of their own, nor do steps that only leave the draw out. */
    assert_int_equal(heads, 6 * tiny->config.n_layers);
    assert_int_equal(draws, 4);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* What a launch of 256 threads wishes to share on an SM, percent. */
static int wish_of(int shared_per_sm, int driver, unsigned shared_bytes)
{
    const struct fake_cuda_params params = {.devices = 1,
                                            .major = 9,
                                            .memory = (size_t)16 << 20,
                                            .driver = driver,
                                            .shared_per_sm = shared_per_sm};
    const struct gpu_launch launch = {.block = {256}, .shared_bytes = shared_bytes};
    struct gpu *gpu;
    struct gpu_stream *stream;
    const int64_t args[64] = {0};
    cuda_replace(fake_cuda_start(&params));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(gpu_stream_create(gpu, &stream), SOL_OK);
    gpu_put(stream, "add/add.cu", "add_f32", &launch, args);
    assert_int_equal(gpu_wait(stream), SOL_OK);
    int shared = fake_cuda_launch(fake_cuda_launches() - 1)->shared;
    gpu_stream_destroy(stream);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    return shared;
}

/* The fake's kernels have no registers: 8 such blocks are on an SM, each with a KiB of its own. */
static void test_shared_wish(void **state)
{
    (void)state;
    enum { KIB = 1024, HOPPER = 228 * KIB };
    assert_int_equal(wish_of(HOPPER, 0, 0), 43); /* 100 KiB, as all that can */
    assert_int_equal(wish_of(HOPPER, 0, 11 * KIB), 43);
    assert_int_equal(wish_of(HOPPER, 0, 12 * KIB), 57);
    assert_int_equal(wish_of(HOPPER, 0, 18 * KIB), 71);
    assert_int_equal(wish_of(HOPPER, 0, 20 * KIB), 0);
    assert_int_equal(wish_of(HOPPER, 12070, 0), 0); /* drivers that do not know it */
    assert_int_equal(wish_of(0, 0, 0), 0);          /* cards with 100 KiB in all */
}

/* Calls of a kind since `before` was taken, of every function of the driver. */
enum { FIELDS = 64 };
static const char *const fields[] = {
#define CUDA_FUNCTION(field, symbol, parameters) #field,
#include "driver/cuda_functions.list"
#undef CUDA_FUNCTION
};

static void count_calls(long counts[FIELDS])
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        counts[i] = fake_cuda_count(fields[i]);
}

/* What a step of steady generation asks of the driver: the row goes there as a kernel's argument,
 * one graph runs, and while it does so the one before is waited for. Nothing else: no allocation,
 * no copy, as tokens are drawn into the host's memory. With tokens that are allowed no step is
 * begun ahead: the row, these and how to draw are copied, and the draw is a graph. */
static void check_steady(struct engine *engine, struct sampler *sampler)
{
    enum { WARM = 3, STEPS = 20 };
    const bool restricted = sampler_is_restricted(sampler);
    const struct {
        const char *field;
        long calls; /* a step */
    } wanted[] = {{"copy_in", restricted ? 3 : 0},      {"launch", restricted ? 0 : 1},
                  {"graph_launch", restricted ? 2 : 1}, {"event_record", restricted ? 0 : 1},
                  {"event_wait", restricted ? 0 : 1},   {"stream_wait", restricted ? 1 : 0}};
    long before[FIELDS], after[FIELDS];
    size_t copied = 0;
    int32_t token = 1;
    for (int i = 0; i < WARM + STEPS; i++) {
        if (i == WARM) copied = fake_cuda_copied();
        if (i == WARM) count_calls(before);
        struct engine_row row = {.token = token, .output = true};
        assert_int_equal(engine_eval_token(engine, &row, sampler, true, &token), SOL_OK);
    }
    count_calls(after);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        long calls = 0;
        for (size_t j = 0; j < sizeof wanted / sizeof *wanted; j++)
            if (strcmp(wanted[j].field, fields[i]) == 0) calls = wanted[j].calls;
        if (after[i] - before[i] != STEPS * calls)
            fail_msg("%s: %ld calls in %d steps", fields[i], after[i] - before[i], STEPS);
    }
    size_t step = (fake_cuda_copied() - copied) / STEPS;
    size_t more = sizeof(struct sample_draw) + ((size_t)tiny->config.vocab + 31) / 32 * 4;
    assert_int_equal(step, restricted ? 4 * sizeof(int32_t) + more : 0);
}

static void test_steady(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *engine;
    struct engine_params params;
    struct sampler *sampler;
    struct sampler_params sampling;
    uint32_t allowed[4096 / 32] = {[0] = 1};
    sampler_params_init(&sampling);
    for (int greedy = 0; greedy < 2; greedy++) { /* else each step has another random number */
        cuda_replace(fake_cuda_start(&hopper));
        assert_int_equal(gpu_open(0, &gpu), SOL_OK);
        engine_params_init(&params);
        params.threads = 1;
        params.context = 64;
        params.max_batch = 6;
        params.chooser.device.gpu = gpu;
        if (greedy) sampling.temperature = 0;
        assert_int_equal(engine_create(tiny, &params, &engine), SOL_OK);
        assert_int_equal(sampler_create(&sampling, tiny->config.vocab, NULL, &sampler), SOL_OK);
        check_steady(engine, sampler);
        sampler_allow(sampler, allowed);
        check_steady(engine, sampler);
        sampler_destroy(sampler);
        engine_destroy(engine);
        gpu_close(gpu);
        assert_int_equal(fake_cuda_live(), 0);
        cuda_replace(NULL);
        fake_cuda_stop();
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct gpu_info infos[4];
    struct engine *engine;
    struct engine_params params;
    int count;

    cuda_replace(fake_cuda_start(&(struct fake_cuda_params){.devices = 0}));
    assert_int_equal(gpu_list(infos, 4, &count), SOL_OK);
    assert_int_equal(count, 0);
    assert_int_equal(gpu_open(0, &gpu), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no GPU 0"));

    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_list(infos, 4, &count), SOL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(infos[1].name, "Fake GPU 1");
    assert_int_equal(infos[1].sm_count, 4);

    /* A model that does not fit, with the figures; and a launch after a failure does nothing. */
    struct fake_cuda_params small = hopper;
    small.memory = 3 << 20; /* a stream fits */
    cuda_replace(fake_cuda_start(&small));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    engine_params_init(&params);
    params.threads = 1;
    params.chooser.device.gpu = gpu;
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "GiB free"));
    assert_null(engine);
    assert_int_equal(gpu_stream_create(gpu, &stream), SOL_OK);
    gpu_put(stream, "no/such.cu", "none", &(struct gpu_launch){.grid = {1}}, NULL);
    gpu_put(stream, "add/add.cu", "add_f32", &(struct gpu_launch){.grid = {1}}, NULL);
    assert_int_equal(fake_cuda_launches(), 0);
    assert_int_equal(gpu_wait(stream), SOL_E_INTERNAL);
    assert_non_null(strstr(sol_last_error(), "no/such.cu"));
    assert_int_equal(gpu_wait(stream), SOL_OK);
    gpu_stream_destroy(stream);
    assert_int_equal(gpu_use_sources(gpu, "/no/such/folder"), SOL_E_IO);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);

    /* References are host code. */
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    params.chooser.device.gpu = gpu;
    params.chooser.reference = true;
    params.context = 64;
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no CUDA kernel serves"));
    assert_null(engine);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* A launch that fails while a step is captured is told by that step, and by no other. */
static void test_capture_retry(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *engine;
    struct engine_params params;
    const struct engine_row row = {.token = 1, .output = true};
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    engine_params_init(&params);
    params.threads = 1;
    params.context = 64;
    params.max_batch = 6;
    params.chooser.device.gpu = gpu;
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_OK);
    assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_OK);
    fake_cuda_fail_in("launch", 3, CUDA_E_LAUNCH, false);
    assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_E_DEVICE);
    for (int i = 0; i < 2; i++) /* captured, replayed */
        assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_OK);
    engine_destroy(engine);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void count_layer(void *arg, int layer, const float *x, int64_t rows)
{
    int *layers = arg;
    assert_int_equal(layer, *layers);
    assert_non_null(x);
    assert_int_equal(rows, 1);
    (*layers)++;
}

/* Who looks at layers is shown what was copied: a copy that fails ends the step instead. */
static void test_look(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct engine *engine;
    struct engine_params params;
    const struct engine_row row = {.token = 1, .output = true};
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    engine_params_init(&params);
    params.threads = 1;
    params.context = 64;
    params.chooser.device.gpu = gpu;
    assert_int_equal(engine_create(tiny, &params, &engine), SOL_OK);
    for (long copy = 1; copy <= 4; copy++) { /* two a layer; the third is the second layer's */
        int layers = 0;
        engine_set_trace(engine, count_layer, &layers);
        fake_cuda_fail_in("copy_out", copy, CUDA_E_LAUNCH, false);
        assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_E_DEVICE);
        assert_int_equal(layers, (copy - 1) / 2);
        assert_int_equal(engine_position(engine, 0), 0);
        layers = 0;
        assert_int_equal(engine_eval(engine, &row, 1, NULL, NULL, NULL), SOL_OK);
        assert_int_equal(layers, tiny->config.n_layers);
        engine_reset(engine, 0);
    }
    engine_destroy(engine);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static const struct op_variant *variant_of(const struct op *op, const char *name)
{
    for (int i = 0; i < op->n_variants; i++)
        if (strcmp(op->variants[i]->name, name) == 0) return op->variants[i];
    fail_msg("%s has no variant %s", op->name, name);
    return NULL;
}

/* Memory ends where a page begins that nobody may read, so that emulated kernels fault behind it.
 */
static void test_end_of_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 256, 257, 4096, 10000};
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct gpu *gpu;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory;
        assert_int_equal(gpu_alloc(gpu, "some", sizes[i], &memory), SOL_OK);
        const uintptr_t begin = (uintptr_t)memory, end = (begin + sizes[i] + 255) / 256 * 256;
        assert_int_equal(begin % 256, 0);
        assert_int_equal(end % page, 0);
        assert_int_equal(write(ends[1], (const void *)end, 1), -1);
        assert_int_equal(errno, EFAULT);
        gpu_free(gpu, memory);
    }
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    close(ends[0]);
    close(ends[1]);
}

/* The fake GPU has the 99 KB of consumer cards, where 16 columns of 2880 do not fit a block. */
static void test_room(void **state)
{
    (void)state;
    struct gpu *gpu;
    static char data[16] __attribute__((aligned(16)));
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    const struct op_device device = {.gpu = gpu};
    for (int64_t k = 256; k <= 2880; k += 2880 - 256) {
        struct tensor w = {
            .dtype = DTYPE_MXFP4, .layout = LAYOUT_TILES, .groups = 32, .rows = 2880, .cols = k};
        w.data = w.scales = data;
        const struct moe_up_args up = {
            .m = 40, .top_k = 4, .hidden = k, .intermediate = 2880, .gate = w, .up = w};
        const struct moe_down_args down = {
            .m = 40, .top_k = 4, .hidden = 2880, .intermediate = k, .down = w};
        const struct {
            const struct op_variant *variant;
            const void *args;
        } asked[] = {{variant_of(&op_moe_up, "moe_up_rows_cuda"), &up},
                     {variant_of(&op_moe_down, "moe_down_rows_cuda"), &down}};
        for (int i = 0; i < 2; i++) {
            char why[OP_REASON_MAX];
            const struct op_choices *choices = asked[i].variant->choices;
            assert_true(asked[i].variant->can_run(asked[i].args, &device, why));
            assert_true(choices->serves(asked[i].args, &device, 0));
            assert_int_equal(choices->serves(asked[i].args, &device, 1), k == 256);
        }
    }
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* Kernel sources compile with what is embedded, as they would on a machine without nvcc: the
 * headers that a hash covers are all that they need. Every third, and with SOL_TEST_WHOLE all. The
 * optimisation, four fifths of the time, is left to nvcc's builds and to SOL_TEST_WHOLE, but for
 * the first. */
static void test_nvrtc(void **state)
{
    (void)state;
    struct gpu *gpu;
    int compiled = 0;
    int64_t most = 0;
    while (gpu_images[most].name) most++;
    most = effort("kernel files through NVRTC", most, 10);
    const int step = most >= 30 && !getenv("SOL_TEST_WHOLE") ? 3 : 1;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    enum sol_status status = SOL_OK;
    for (const struct gpu_image *i = gpu_images; i < gpu_images + most; i += step) {
        const struct gpu_kernel *kernel;
        nvrtc_be_quick(i != gpu_images && !getenv("SOL_TEST_WHOLE"));
        if (i->fatbin) fake_cuda_fail_in("module_load", 1, CUDA_E_NO_BINARY, false);
        status = gpu_kernel_find(gpu, i->name, "any", &kernel);
        if (status == SOL_E_UNSUPPORTED) break;
        if (status != SOL_OK) fail_msg("%s: %s", i->name, sol_last_error());
        assert_true(gpu_kernel_info(kernel)->compiled_here);
        compiled++;
    }
    nvrtc_be_quick(false);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    if (status == SOL_E_UNSUPPORTED) {
        print_message("skipped: %s\n", sol_last_error());
        skip();
    }
    assert_true(compiled >= 10);
    void *cubin;
    size_t size;
    assert_int_equal(nvrtc_compile("bad.cu", "not C++ at all", "90a", NULL, 0, &cubin, &size),
                     SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "bad.cu"));
    assert_null(cubin);
}

/* The driver takes PTX that lacks a kernel, as that of other architectures does: NVRTC is asked. */
static void test_missing_kernel(void **state)
{
    (void)state;
    struct gpu *gpu;
    const struct gpu_kernel *kernel;
    if (!gpu_images[0].fatbin) {
        print_message("skipped: built without nvcc\n");
        skip();
    }
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    fake_cuda_fail_in("module_function", 1, CUDA_E_NOT_FOUND, false);
    enum sol_status status = gpu_kernel_find(gpu, "add/add.cu", "add_f32", &kernel);
    if (status == SOL_OK) {
        assert_true(gpu_kernel_info(kernel)->compiled_here);
        assert_int_equal(gpu_kernel_find(gpu, "add/add.cu", "another", &kernel), SOL_OK);
        assert_true(gpu_kernel_info(kernel)->compiled_here);
        fake_cuda_fail_in("module_function", 1, CUDA_E_NOT_FOUND, false);
        assert_int_not_equal(gpu_kernel_find(gpu, "add/add.cu", "third", &kernel), SOL_OK);
    }
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    if (status == SOL_OK) return;
    assert_int_equal(status, SOL_E_UNSUPPORTED);
    print_message("skipped: %s\n", sol_last_error());
    skip();
}

/* ---- which headers an image's hash covers ---- */

static char edited[64]; /* a folder laid out as kernels/ */

static void edit(const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", edited, file);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void unedit(const char *file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", edited, file);
    assert_int_equal(unlink(path), 0);
}

/* Whether the hash of add/add.cu is another one while kernels/<file> says `text`. */
static bool changes(struct gpu *gpu, const char *file, const char *text)
{
    char before[17], after[17];
    assert_int_equal(gpu_sources_hash(gpu, "add/add.cu", before), SOL_OK);
    edit(file, text);
    assert_int_equal(gpu_sources_hash(gpu, "add/add.cu", after), SOL_OK);
    unedit(file);
    return strcmp(before, after) != 0;
}

static void test_sources(void **state)
{
    (void)state;
    struct gpu *gpu;
    char folder[128], whole[17], again[17];
    strcpy(edited, "/tmp/sol-sources-XXXXXX");
    assert_non_null(mkdtemp(edited));
    snprintf(folder, sizeof folder, "%s/add", edited);
    assert_int_equal(mkdir(folder, 0700), 0);
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(gpu_sources_hash(gpu, "", whole), SOL_OK);
    assert_int_equal(gpu_use_sources(gpu, edited), SOL_OK);
    assert_int_equal(gpu_sources_hash(gpu, "", again), SOL_OK);
    assert_string_equal(whole, again);

    /* add.cu includes add_args.h and common.cuh, and that ptx.cuh; none of them wgmma.cuh. */
    assert_true(changes(gpu, "add/add.cu", "1"));
    assert_true(changes(gpu, "add/add_args.h", "1"));
    assert_true(changes(gpu, "common.cuh", "1"));
    assert_true(changes(gpu, "ptx.cuh", "1"));
    assert_false(changes(gpu, "wgmma.cuh", "1"));
    edit("wgmma.cuh", "1"); /* but all kernels together do */
    assert_int_equal(gpu_sources_hash(gpu, "", again), SOL_OK);
    assert_string_not_equal(whole, again);
    unedit("wgmma.cuh");

    /* An edited file includes what it says; what cannot be told may be any header. */
    static const struct {
        const char *text;
        bool ptx, wgmma;
    } texts[] = {
        {"", false, false},
        {"int include;\n#define X\n", false, false},
        {"#include <cstdint>\n", false, false},
        {"#include \"wgmma.cuh\"\n", false, true},
        {"  #  include <wgmma.cuh>\n", false, true},
        {"/**/ #include\"ptx.cuh\"", true, false},
        {"#include \"common.cuh\"\n", true, false},
        {"#include \"../wgmma.cuh\"\n", true, true},
        {"#define H \"wgmma.cuh\"\n#include H\n", true, true},
        {"#include", true, true},
        {"#", false, false},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        edit("add/add.cu", texts[i].text);
        bool ptx = changes(gpu, "ptx.cuh", "1"), wgmma = changes(gpu, "wgmma.cuh", "1");
        if (ptx != texts[i].ptx || wgmma != texts[i].wgmma) fail_msg("%s", texts[i].text);
        unedit("add/add.cu");
    }

    /* What is not included is not compiled anew either, and headers may include each other. */
    const struct gpu_kernel *kernel;
    edit("wgmma.cuh", "#include \"types.h\"\n#include \"wgmma.cuh\"\n");
    edit("types.h", "#include \"types.h\"\n#include \"common.cuh\"\n");
    assert_true(changes(gpu, "add/add_args.h", "1"));
    unedit("types.h");
    for (const struct gpu_image *i = gpu_images; i->name; i++) {
        if (strcmp(i->name, "add/add.cu") != 0 || !i->fatbin) continue;
        assert_int_equal(gpu_kernel_find(gpu, i->name, "add_f32", &kernel), SOL_OK);
        assert_false(gpu_kernel_info(kernel)->compiled_here);
    }
    unedit("wgmma.cuh");
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rmdir(edited), 0);
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
        cmocka_unit_test(test_device),        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_launches),      cmocka_unit_test(test_shared_wish),
        cmocka_unit_test(test_steady),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nvrtc),         cmocka_unit_test(test_missing_kernel),
        cmocka_unit_test(test_end_of_memory), cmocka_unit_test(test_room),
        cmocka_unit_test(test_capture_retry), cmocka_unit_test(test_look),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
