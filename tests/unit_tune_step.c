/* Tuning by the step: on a fake GPU of which the test says how long kernels take, alone and in a
 * step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/tune.h"
#include "driver/cuda.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "model/model.h"
#include "ops/ops.h"

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)256 << 20};

/* ---- a clock ---- */

enum { PLACES = 8192 };

static const struct cuda_api *fake;
static struct cuda_api timed;
static double now;            /* milliseconds that graphs took so far */
static long captured;         /* launches before the graph that is being made */
static double alone, in_step; /* what attn_in_rows_cuda's kernels take; others take 1 */

/* By its pointer: of a graph how long it takes, of an event when it was. */
struct place {
    const void *what;
    double ms;
};
static struct place graphs[PLACES], events[PLACES];

static struct place *place_of(struct place places[PLACES], const void *what)
{
    size_t i = (uintptr_t)what / 16 % PLACES;
    while (places[i].what && places[i].what != what) i = (i + 1) % PLACES;
    places[i].what = what;
    return &places[i];
}

static double time_of_captured(void)
{
    double ms = 0, few = 0;
    const bool step = fake_cuda_launches() - captured > 8;
    for (long i = captured; i < fake_cuda_launches(); i++) {
        const char *kernel = fake_cuda_launch(i)->kernel;
        const bool is_few = strncmp(kernel, "attn_in_bf16", strlen("attn_in_bf16")) == 0;
        few += is_few;
        ms += !is_few;
    }
    return ms + few * (step ? in_step : alone);
}

static cuda_result begin(cuda_stream stream, int mode)
{
    captured = fake_cuda_launches();
    return fake->capture_begin(stream, mode);
}

static cuda_result instantiate(cuda_graph_exec *exec, cuda_graph graph, unsigned long long flags)
{
    const cuda_result result = fake->graph_instantiate(exec, graph, flags);
    if (result == CUDA_OK) place_of(graphs, *exec)->ms = time_of_captured();
    return result;
}

static cuda_result launch(cuda_graph_exec exec, cuda_stream stream)
{
    now += place_of(graphs, exec)->ms;
    return fake->graph_launch(exec, stream);
}

static cuda_result record(cuda_event event, cuda_stream stream)
{
    place_of(events, event)->ms = now;
    return fake->event_record(event, stream);
}

static cuda_result elapsed(float *ms, cuda_event start, cuda_event end)
{
    *ms = (float)(place_of(events, end)->ms - place_of(events, start)->ms);
    return CUDA_OK;
}

static void start_clock(double by_itself, double step)
{
    alone = by_itself;
    in_step = step;
    fake = fake_cuda_start(&hopper);
    timed = *fake;
    timed.capture_begin = begin;
    timed.graph_instantiate = instantiate;
    timed.graph_launch = launch;
    timed.event_record = record;
    timed.event_elapsed = elapsed;
    cuda_replace(&timed);
}

/* ---- a search ---- */

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static void search(struct tuning *found, struct tune_report *report)
{
    static const int64_t rows[] = {1}, depths[] = {0};
    struct model *model;
    struct gpu *gpu;
    struct tune_params params = {
        .rows = rows, .n_rows = 1, .depths = depths, .n_depths = 1, .seconds = 60};
    must(model_open("synth:tiny,layers=2", &model));
    must(gpu_open(0, &gpu));
    engine_params_init(&params.engine);
    params.engine.threads = 1;
    params.engine.chooser.device.gpu = gpu;
    must(tune_run(model, &params, found, report));
    gpu_close(gpu);
    model_close(model);
}

/* The kernel that is taken for attn_in, in the report and in the record; by how much the step is
 * faster. */
static double taken(double by_itself, double step, bool few)
{
    struct tuning found = {0};
    struct tune_report report = {0};
    double gain = -1;
    start_clock(by_itself, step);
    search(&found, &report);
    const char *wanted = few ? "attn_in_rows_cuda" : "attn_in_row_cuda";
    for (size_t i = 0; i < report.count; i++) {
        const struct tune_result *r = &report.results[i];
        if (r->entry.op != &op_attn_in) {
            assert_true(r->step_gain == 0);
            continue;
        }
        assert_string_equal(r->entry.variant, wanted);
        assert_int_equal(r->state, few ? TUNE_FASTER : TUNE_KEPT);
        gain = r->step_gain;
    }
    for (size_t i = 0; i < found.count; i++)
        if (found.entries[i].op == &op_attn_in)
            assert_string_equal(found.entries[i].variant, wanted);
    tune_report_free(&report);
    tuning_clear(&found);
    cuda_replace(NULL);
    fake_cuda_stop();
    return gain;
}

static void what_is_close_is_tried_in_the_step(void **state)
{
    (void)state;
    assert_true(taken(1.03, 0.5, true) > 0.01);   /* close alone, faster in the step */
    assert_true(taken(1.03, 1, false) == 0);      /* not faster there */
    assert_true(taken(1.03, 0.9999, false) == 0); /* not worth it */
    assert_true(taken(1.2, 0.5, false) == 0);     /* not close */
    assert_true(taken(0.5, 0.5, true) == 0);      /* the fastest either way */
    assert_true(taken(0.96, 1.5, false) > 0.01);  /* faster alone, slower in the step */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_close_is_tried_in_the_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
