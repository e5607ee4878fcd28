/* The lab on a GPU without a GPU: the fake driver counts what runs, keeps the host away from device
 * memory and fails calls. Times and routing mean nothing here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/progress.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "lab/bench.h"
#include "lab/bench_report.h"
#include "model/upload.h"

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};
static struct model *tiny;

struct on_gpu {
    struct gpu *gpu;
    struct model *uploaded;
    struct bench_params params;
};

static enum sol_status begin(struct on_gpu *g)
{
    *g = (struct on_gpu){.gpu = NULL};
    SOL_TRY(gpu_open(0, &g->gpu));
    engine_params_init(&g->params.engine);
    g->params.engine.threads = 1;
    g->params.engine.max_batch = 6;
    g->params.engine.chooser.device.gpu = g->gpu;
    g->params.repetitions = 2;
    g->params.ops = true;
    SOL_TRY(model_upload(tiny, g->gpu, 0, &g->uploaded));
    g->params.engine.uploaded = g->uploaded;
    return SOL_OK;
}

static void end(struct on_gpu *g)
{
    model_upload_destroy(g->uploaded, g->gpu);
    gpu_close(g->gpu);
}

static const struct bench_test both = {.n_prompt = 8, .n_gen = 3, .n_depth = 100, .n_parallel = 2};

static enum sol_status bench_scenario(void)
{
    struct on_gpu g;
    struct bench_result result = {0};
    enum sol_status status = begin(&g);
    if (status == SOL_OK) status = bench_run(tiny, &g.params, &both, &result);
    bench_result_free(&result);
    end(&g);
    return status;
}

static const struct bench_kernel *kernel_of(const struct bench_result *r, const char *phase,
                                            const char *op)
{
    for (int i = 0; i < r->n_kernels; i++)
        if (strcmp(r->kernels[i].phase, phase) == 0 && strcmp(r->kernels[i].op->name, op) == 0)
            return &r->kernels[i];
    return NULL;
}

static void check_report(const struct on_gpu *g, const struct bench_result *result)
{
    static const struct ceiling none;
    const struct bench_report report = {.model = tiny,
                                        .params = &g->params,
                                        .ceiling = &none,
                                        .version = "0",
                                        .load_s = 1.5,
                                        .upload_s = 0.5,
                                        .results = result,
                                        .n_results = 1};
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(bench_report_write(&report, BENCH_TEXT, to), SOL_OK);
    assert_int_equal(bench_report_write(&report, BENCH_JSON, to), SOL_OK);
    assert_int_equal(bench_report_write(&report, BENCH_SQL, to), SOL_OK);
    fclose(to);
    static const char *const wanted[] = {
        "Fake GPU 0 (GPU 0), 4 SMs",    "copied to the GPU in 0.5 s",
        "\"backends\": \"CUDA\"",       "\"architecture\": \"90a\"",
        "\"n_gpu_layers\": 99",         "\"upload_s\": 0.5",
        "\"gpu_info\": \"Fake GPU 0\"", "\"device\": {",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(text, wanted[i])) fail_msg("no %s in %s", wanted[i], text);
    free(text);
}

static void test_bench(void **state)
{
    (void)state;
    struct on_gpu g;
    struct bench_result r;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(begin(&g), SOL_OK);
    size_t weights = gpu_memory_used(g.gpu);
    assert_true(weights > 1 << 20);
    assert_int_equal(bench_run(tiny, &g.params, &both, &r), SOL_OK);
    assert_true(r.proved);
    assert_int_equal(r.ns.count, 2);
    assert_int_equal(r.n_steps, 6);
    /* 16 rows in steps of 6, 6 and 4: the kernels are those of the last, which ran twice. */
    const struct bench_kernel *attention = kernel_of(&r, "prompt", "attention");
    assert_non_null(attention);
    assert_int_equal(attention->ran, 2 * tiny->config.n_layers);
    assert_true(attention->seconds > 0);
    attention = kernel_of(&r, "generation", "attention");
    assert_int_equal(attention->ran, 2 * both.n_gen * tiny->config.n_layers);
    /* Two rows read the keys of their sequences: the windows of even layers, all of the others.
     * Positions are 108 to 110; means of three steps. */
    double row = (double)(tiny->config.n_kv_heads * tiny->config.head_dim) * 2 * 2;
    double window = (double)(tiny->config.window < 110 ? tiny->config.window : 110);
    double width = (double)(tiny->config.n_heads * tiny->config.head_dim);
    double layers = (double)tiny->config.n_layers / 2;
    double expected = 2 * layers * (2 * row * (110 + window) / 2 + 2 * 8 * width);
    if (fabs(attention->cost.bytes - expected) > 1)
        fail_msg("attention reads %g bytes a step, not %g", attention->cost.bytes, expected);
    assert_int_equal(r.memory_device, weights + r.memory_engine);
    assert_int_equal(r.memory_device_peak, r.memory_device);
    assert_true(r.memory_parts.cache > 0 && r.memory_parts.buffers > 0 &&
                r.memory_parts.scratch > 0);
    assert_int_equal(r.memory_parts.cache + r.memory_parts.buffers + r.memory_parts.scratch,
                     r.memory_engine);
    assert_int_equal(gpu_memory_used(g.gpu), weights);
    check_report(&g, &r);
    bench_result_free(&r);
    end(&g);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void fail_each_call(enum sol_status (*scenario)(void), long tries)
{
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(scenario(), SOL_OK);
    assert_int_equal(fake_cuda_live(), 0);
    long calls = fake_cuda_calls();
    for (long i = 0; i < tries; i++) {
        long n = 1 + i * (calls - 1) / tries;
        cuda_replace(fake_cuda_start(&hopper));
        fake_cuda_fail(n, n % 3 ? CUDA_E_LAUNCH : CUDA_E_MEMORY, true);
        enum sol_status status = scenario();
        if (status != SOL_OK && status != SOL_E_DEVICE && status != SOL_E_MEMORY)
            fail_msg("call %ld of %ld: %s", n, calls, sol_last_error());
        if (status == SOL_OK && n < calls / 2) fail_msg("call %ld of %ld went unnoticed", n, calls);
        if (fake_cuda_live()) fail_msg("call %ld of %ld failed: objects leaked", n, calls);
    }
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void test_bench_failures(void **state)
{
    (void)state;
    fail_each_call(bench_scenario, 60);
}

static int set_up(void **state)
{
    (void)state;
    progress_quiet(true);
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
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_bench_failures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
