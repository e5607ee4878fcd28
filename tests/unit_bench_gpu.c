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

#include "bench/bench.h"
#include "bench/gpu_ceiling.h"
#include "bench/report.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "model/upload.h"
#include "profile/model.h"
#include "profile/print.h"
#include "support/fail_calls.h"

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
    SOL_TRY(model_upload(tiny, g->gpu, &g->uploaded));
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
        "Fake GPU 0 (GPU 0), 4 SMs",    "copied to the GPU in 0.5 s", "\"backends\": \"CUDA\"",
        "\"architecture\": \"90a\"",    "\"n_gpu_layers\": 99",       "\"upload_s\": 0.5",
        "\"gpu_info\": \"Fake GPU 0\"", "\"device_peak\": ",
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
    assert_int_equal(r.n_counted, 2);
    assert_int_equal(r.n_steps, 6);
    /* 16 rows in steps of 6, 6 and 4, twice: the kernels are those of all. */
    const struct bench_kernel *attention = kernel_of(&r, "prompt", "attention");
    assert_non_null(attention);
    assert_int_equal(attention->steps, 3);
    assert_int_equal(attention->ran, 2 * 3 * tiny->config.n_layers);
    assert_true(fabs(attention->seconds -
                     1e-9 * (double)tiny->config.n_layers * fmax(1e5, 1e6 - r.event_ns)) < 1e-9);
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

/* ---- limits ---- */

static enum sol_status ceiling_scenario(void)
{
    struct gpu *gpu;
    struct gpu_ceiling measured;
    SOL_TRY(gpu_open(0, &gpu));
    enum sol_status status = gpu_ceiling_measure(gpu, 1e-6, &measured);
    gpu_close(gpu);
    return status;
}

static long launches_of(const char *kernel)
{
    long count = 0;
    for (long i = 0; i < fake_cuda_launches(); i++)
        count += strcmp(fake_cuda_launch(i)->kernel, kernel) == 0;
    return count;
}

/* Every launch takes a millisecond there: the figures follow from the work that the host counts. */
static void test_ceilings(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct gpu_ceiling c;
    struct ceiling limits;
    double ns;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(gpu_ceiling_measure(gpu, 1e-6, &c), SOL_OK);
    assert_int_equal(gpu_memory_used(gpu), 0);
    assert_int_equal(c.memory_bytes, hopper.memory / 2);
    assert_true(fabs(c.access[CEILING_READ].best - 1e3 * (double)c.memory_bytes) < 1);
    assert_true(fabs(c.access[CEILING_WRITE].best - 1e3 * (double)c.memory_bytes) < 1);
    assert_true(fabs(c.access[CEILING_COPY].best - 1e3 * (double)c.memory_bytes) < 1);
    assert_true(c.l2_bytes < 1 << 20 && c.l2.best > c.access[CEILING_READ].best);
    /* 64 iterations of 4 blocks of 8 at a time: a warpgroup does 64x128x16 eight times in each. */
    double blocks = 4 * 8;
    assert_true(fabs(c.f32.best - 1e3 * blocks * 256 * 64 * 2 * 16) < 1);
    assert_true(fabs(c.bf16.best - 1e3 * blocks * 2 * 64 * 8 * 2 * 64 * 128 * 16) < 1);
    assert_true(fabs(c.i8.best - 2 * c.bf16.best) < 1 && fabs(c.fp8.best - c.i8.best) < 1);
    assert_string_equal(c.bf16.kernel, "wgmma m64n128k16");
    assert_true(c.launch_ns > 0 && c.answer_ns > 0);
    gpu_ceiling_limits(&c, 1 << 30, &limits);
    assert_true(ceiling_measured(&limits));
    assert_true(fabs(ceiling_read_rate(&limits) - c.access[CEILING_READ].best) < 1);
    assert_true(fabs(ceiling_flop_rate(&limits, NUMERICS_EXACT) - c.bf16.best / 3) < 1);
    gpu_ceiling_limits(&c, 1 << 10, &limits);
    assert_true(fabs(ceiling_read_rate(&limits) - c.l2.best) < 1);
    assert_int_equal(gpu_event_cost(gpu, &ns), SOL_OK);
    json_t *json = gpu_ceiling_json(&c);
    assert_non_null(json);
    json_decref(json);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);

    /* An Ampere has no products of warpgroups and no fp8. */
    struct fake_cuda_params ampere = hopper;
    ampere.major = 8;
    cuda_replace(fake_cuda_start(&ampere));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(gpu_ceiling_measure(gpu, 1e-6, &c), SOL_OK);
    assert_int_equal(launches_of("ceiling_wgmma_bf16") + launches_of("ceiling_mma_e4m3"), 0);
    assert_true(launches_of("ceiling_mma_bf16") > 0);
    assert_string_equal(c.bf16.kernel, "mma m16n8k16");
    assert_true(c.fp8.best <= 0);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void test_sensors(void **state)
{
    (void)state;
    struct gpu_reading r;
    struct gpu_info info = {.pci = "0000:01:00.0"};
    char text[160];
    const char *why;
    assert_string_equal(gpu_throttle_text(0x1, text), "");
    assert_string_equal(gpu_throttle_text(0x64, text), "power limit, heat");
    assert_true(gpu_throttle_is_external(0x40) && !gpu_throttle_is_external(0x5));
    if (!getenv("SOL_NVML")) skip(); /* ctest names a fake one */
    assert_true(gpu_sensors_read(&info, &r, &why));
    assert_true(fabs(r.sm_mhz - 1755) < 1 && fabs(r.memory_mhz - 2619) < 1);
    assert_true(fabs(r.watts - 123) < 1 && fabs(r.watts_limit - 700) < 1);
    assert_true(fabs(r.temperature_c - 41) < 1 && r.joules > 0);
    assert_int_equal(r.throttle, 4);
    info.pci[0] = '\0';
    assert_false(gpu_sensors_read(&info, &r, &why));
    assert_non_null(strstr(why, "does not know"));
    assert_true(isnan(r.watts));
}

/* ---- profile ---- */

static enum sol_status profile(struct profile_result *out)
{
    struct on_gpu g;
    enum sol_status status = begin(&g);
    struct profile_params params = {.engine = g.params.engine,
                                    .n_prompt = 8,
                                    .n_gen = 2,
                                    .depths = {0, 64},
                                    .n_depths = 2,
                                    .repetitions = 2};
    *out = (struct profile_result){.n_phases = 0};
    if (status == SOL_OK) status = profile_model(tiny, &params, out);
    end(&g); /* the name of the device ends with it */
    out->device = "Fake GPU 0";
    return status;
}

static enum sol_status profile_scenario(void)
{
    struct profile_result result;
    enum sol_status status = profile(&result);
    profile_result_free(&result);
    return status;
}

static void test_profile(void **state)
{
    (void)state;
    struct profile_result r;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(profile(&r), SOL_OK);
    assert_int_equal(r.n_phases, 4);
    assert_true(r.on_gpu && r.wakeup_ns <= 0);
    for (int i = 0; i < r.n_phases; i++) {
        const struct profile_phase *p = &r.phases[i];
        bool decode = strcmp(p->phase, "decode") == 0;
        /* A prompt of 8 in steps of 6 and 2. Every kernel takes a millisecond less what events
         * cost. */
        assert_int_equal(p->steps, 4);
        assert_int_equal(p->tokens, decode ? 4 : 16);
        assert_true(p->speed.value > 0 && p->timed_ns > 0);
        for (size_t j = 0; j < p->n_rows; j++) {
            const struct profile_row *row = &p->rows[j];
            assert_int_equal(row->calls, row->expected);
            double each = row->ns / (double)row->calls;
            if (fabs(each - fmax(1e5, 1e6 - r.event_ns)) > 1)
                fail_msg("a call of %s takes %g ns", row->variant, each);
        }
    }
    static const struct ceiling none;
    const struct profile_print print = {.result = &r, .ceiling = &none, .model = "tiny"};
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    assert_int_equal(profile_print_text(&print, to), SOL_OK);
    fclose(to);
    if (!strstr(text, "tiny on Fake GPU 0\n") || !strstr(text, "steps are timed as graphs") ||
        !strstr(text, "with events between them"))
        fail_msg("%s", text);
    free(text);
    profile_result_free(&r);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* ---- failures ---- */

static void test_bench_failures(void **state)
{
    (void)state;
    fail_each_call(&hopper, bench_scenario, 60);
}

static void test_ceiling_failures(void **state)
{
    (void)state;
    fail_each_call(&hopper, ceiling_scenario, 40);
}

static void test_profile_failures(void **state)
{
    (void)state;
    fail_each_call(&hopper, profile_scenario, 40);
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
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_sensors),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_bench_failures),
        cmocka_unit_test(test_ceiling_failures),
        cmocka_unit_test(test_profile_failures),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
