/* Loading onto a GPU, without one: what is refused and said beforehand, that every weight arrives,
 * from wherever it comes, and what is left when reading or the device fails on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver/fake_cuda.h"
#include "infer/engine.h"
#include "infer/fit.h"
#include "model/upload.h"
#include "model/weights.h"
#include "ops/cuda/pack_cuda.h"
#include "support/fail_calls.h"
#include "support/same_pieces.h"

#define HF_TINY SOL_SOURCE_DIR "/tests/data/hf_tiny"

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)64 << 20};
static const struct model_params later = {.later = true};
static struct model *tiny;

/* The numbers of a synthetic model are the same in pieces as at once, also where a piece ends
 * within what is drawn together. */
static void test_synthetic_pieces(void **state)
{
    (void)state;
    const char *const names[] = {"synth:tiny", "synth:tiny,dense=q8_0,seed=5"};
    for (size_t i = 0; i < 2; i++)
        for (size_t bytes = 5000; bytes <= 500000; bytes *= 10) {
            struct model *host;
            assert_int_equal(model_open(names[i], &host), SOL_OK);
            const char *wrong = pieces_differ(names[i], MODEL_LOAD_AUTO, bytes, 2, host);
            if (wrong) fail_msg("%s in pieces of %zu: %s", names[i], bytes, wrong);
            model_close(host);
        }
}

/* ---- onto the device ---- */

static const struct tensor *tensor_of(const struct model *m, const struct weight *w)
{
    const char *base = w->layer < 0 ? (const char *)m : (const char *)&m->layers[w->layer];
    return (const void *)(base + w->offset);
}

/* Of what keeps its layout every byte; the rest is laid out by a kernel, which a fake driver only
 * writes down. */
static void check_arrived(struct gpu_stream *stream, const struct model *up,
                          const struct model *host)
{
    int64_t plain = 0;
    for (int64_t i = 0; i < weight_count(&host->config); i++) {
        struct weight w = weight_at(&host->config, i);
        const struct tensor *t = tensor_of(host, &w), *there = tensor_of(up, &w);
        const void *want = w.vector ? *(const void *const *)(const void *)t : t->data;
        const void *from = w.vector ? *(const void *const *)(const void *)there : there->data;
        size_t bytes =
            (size_t)(w.groups * w.rows) * dtype_row_bytes(w.vector ? DTYPE_F32 : t->dtype, w.cols);
        if (!w.vector) {
            assert_true(there->dtype == t->dtype && there->groups == t->groups);
            assert_true(there->rows == t->rows && there->cols == t->cols);
            if (there->layout == LAYOUT_TILES) continue;
        }
        char *got = malloc(bytes);
        assert_non_null(got);
        assert_int_equal(gpu_copy_out(stream, got, from, bytes), SOL_OK);
        assert_int_equal(gpu_wait(stream), SOL_OK);
        if (memcmp(got, want, bytes) != 0) fail_msg("%s arrived otherwise", w.name);
        free(got);
        plain++;
    }
    assert_true(plain > weight_count(&host->config) / 2);
}

static void check_source(const char *source, const struct model_params *how)
{
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct model *host, *model, *up;
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(model_open(source, &host), SOL_OK);
    assert_int_equal(model_open_with(source, how, &model), SOL_OK);
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    if (model_upload(model, gpu, &up) != SOL_OK) fail_msg("%s", sol_last_error());
    assert_int_equal(gpu_stream_create(gpu, &stream), SOL_OK);
    check_arrived(stream, up, host);
    gpu_stream_destroy(stream);
    model_upload_destroy(up, gpu);
    gpu_close(gpu);
    model_close(model);
    model_close(host);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void test_arrival(void **state)
{
    (void)state;
    static const struct model_params held = {.later = false},
                                     read = {MODEL_LOAD_READ, .later = true},
                                     map = {MODEL_LOAD_MAP, .later = true};
    check_source("synth:tiny", &held);
    check_source("synth:tiny", &later);
    check_source(HF_TINY, &held);
    check_source(HF_TINY, &read);
    check_source(HF_TINY, &map);
}

/* ---- memory that host and device share ---- */

static const struct fake_cuda_params shared = {
    .devices = 1, .major = 12, .minor = 1, .memory = (size_t)64 << 20, .shared = true};

/* How many weights the device reads where the host has them, and how much it was given. */
static int64_t count_in_place(const struct fake_cuda_params *device, const char *source,
                              const struct model_params *how, size_t *given, size_t *repacked)
{
    struct gpu *gpu;
    struct model *model, *up;
    int64_t same = 0;
    cuda_replace(fake_cuda_start(device));
    assert_int_equal(model_open_with(source, how, &model), SOL_OK);
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    if (model_upload(model, gpu, &up) != SOL_OK) fail_msg("%s", sol_last_error());
    *repacked = 0;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        struct weight w = weight_at(&model->config, i);
        const struct tensor *t = tensor_of(model, &w), *there = tensor_of(up, &w);
        const void *data = w.vector ? *(const void *const *)(const void *)t : t->data;
        const void *to = w.vector ? *(const void *const *)(const void *)there : there->data;
        assert_non_null(to);
        same += data == to;
        if (!w.vector && there->layout == LAYOUT_TILES) {
            assert_true(data != to);
            *repacked += (tensor_packed_bytes(t) + 255) / 256 * 256;
        }
    }
    *given = gpu_memory_used(gpu);
    model_upload_destroy(up, gpu);
    gpu_close(gpu);
    model_close(model);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
    return same;
}

static void test_shared_memory(void **state)
{
    (void)state;
    static const struct model_params held = {.later = false}, map = {.load = MODEL_LOAD_MAP};
    const char *golden = SOL_SOURCE_DIR "/tests/golden/base_mxfp4.gguf";
    struct fake_cuda_params follows = hopper; /* memory of its own */
    size_t given, repacked;
    int64_t all = weight_count(&tiny->config), experts = 3 * tiny->config.n_layers;
    /* Nothing is twice in memory but what kernels want in another layout. */
    assert_int_equal(count_in_place(&shared, "synth:tiny", &held, &given, &repacked),
                     all - experts);
    assert_int_equal(given, repacked);
    assert_true(count_in_place(&shared, golden, &map, &given, &repacked) > 20);
    assert_int_equal(given, repacked);
    /* Opened for later, the host holds nothing and the device everything. */
    assert_int_equal(count_in_place(&shared, "synth:tiny", &later, &given, &repacked), 0);
    assert_true(given > tiny->weight_bytes && given < tiny->weight_bytes * 11 / 10);
    assert_int_equal(count_in_place(&follows, "synth:tiny", &held, &given, &repacked), 0);
}

/* ---- room ---- */

static const char *refusal(size_t memory, struct engine_params run)
{
    static char text[1024];
    struct gpu *gpu;
    struct model *up;
    struct fake_cuda_params small = hopper;
    small.memory = memory;
    cuda_replace(fake_cuda_start(&small));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    long before = fake_cuda_calls();
    run.chooser.device.gpu = gpu;
    enum sol_status status = fit_upload(tiny, &run, &up);
    snprintf(text, sizeof text, "%s", status == SOL_OK ? "" : sol_last_error());
    if (status != SOL_OK) {
        assert_int_equal(status, SOL_E_MEMORY);
        assert_null(up);
        assert_in_range(fake_cuda_calls() - before, 1, 2); /* it asked, and took nothing */
    }
    model_upload_destroy(up, gpu);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
    return text;
}

#define SAYS(text, part)                                                                           \
    do {                                                                                           \
        const char *said_ = (text);                                                                \
        if (!strstr(said_, part)) fail_msg("no '%s' in: %s", part, said_);                         \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    const size_t mib = 1 << 20;
    struct engine_params run;
    engine_params_init(&run);
    run.sequences = 8;
    SAYS(refusal(1 * mib, run), "for its weights");
    SAYS(refusal(1 * mib, run), "--backend cpu");
    SAYS(refusal(22 * mib, run), "(weights 0.00, cache 0.02, buffers 0.01), and Fake GPU 0");
    SAYS(refusal(22 * mib, run), "it would with steps of 177 tokens, or a context of 3200, or 6");
    run.max_batch = 1;
    SAYS(refusal(16 * mib, run), "free; it would with a context of 2944, or 5 sequences at a time");
    run.max_batch = 512;
    assert_string_equal(refusal(60 * mib, run), "");
}

/* ---- failures on the way ---- */

static enum sol_status load_scenario(void)
{
    struct gpu *gpu;
    struct model *up;
    SOL_TRY(gpu_open(0, &gpu));
    enum sol_status status = model_upload(tiny, gpu, &up);
    model_upload_destroy(up, gpu);
    gpu_close(gpu);
    return status;
}

static void test_device_fails(void **state)
{
    (void)state;
    fail_each_call(&hopper, load_scenario, 150);
}

/* A file that became shorter since it was opened. */
static void test_file_fails(void **state)
{
    (void)state;
    char folder[] = "/tmp/sol-unit-upload-XXXXXX", command[600];
    struct model *model, *up;
    struct gpu *gpu;
    const struct model_params read = {MODEL_LOAD_READ, .later = true};
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp %s/* %s", HF_TINY, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_open_with(folder, &read, &model), SOL_OK);
    snprintf(command, sizeof command, "truncate -s 5000 %s/model-00001-of-00002.safetensors",
             folder);
    assert_int_equal(system(command), 0);
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(model_upload(model, gpu, &up), SOL_E_IO);
    SAYS(sol_last_error(), "became shorter");
    assert_null(up);
    assert_int_equal(gpu_memory_used(gpu), 0);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
    model_close(model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    return model_open_with("synth:tiny", &later, &tiny) == SOL_OK ? 0 : -1;
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
        cmocka_unit_test(test_synthetic_pieces), cmocka_unit_test(test_arrival),
        cmocka_unit_test(test_shared_memory),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_device_fails),     cmocka_unit_test(test_file_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
