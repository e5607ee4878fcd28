/* What ranks cost each other: what is exposed, what of it is waiting, and where that is not told.
 */
#include "trace/communication.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "advise/rules.h"
#include "report/steps.h"
#include "trace/chrome.h"
#include "trace/communication_figure.h"
#include "trace/expected.h"

#define OK(call) assert_int_equal((call), SOL_OK)

enum { STEP_NS = 1000000, STEPS = 4 };

static struct timeline *create(int devices)
{
    struct timeline *t;
    uint16_t index;
    OK(timeline_create(&t));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 1, .command = TRACE_NONE}, &index));
    for (int i = 0; i < devices; i++)
        OK(timeline_add_device(t, &(struct trace_device){.name = TRACE_NONE}, &index));
    return t;
}

/* `stream` of `device`, in us. */
static void add(struct timeline *t, uint16_t device, uint32_t stream, const char *name,
                double start, double end)
{
    struct trace_event e = {.start = llround(1000 * start),
                            .end = llround(1000 * end),
                            .detail = TRACE_NONE,
                            .kind = EVENT_KERNEL,
                            .device = device,
                            .context = device,
                            .track = stream};
    OK(timeline_string(t, name, strlen(name), &e.name));
    OK(timeline_add(t, &e));
}

/* Steps of a millisecond: the second rank comes 200 us later to the sum, which moves bytes for
 * 300 us; beside that something runs for 100 us on the second stream of the first. */
static void step(struct timeline *t, double at)
{
    add(t, 0, 7, "gemm", at, at + 400);
    add(t, 0, 8, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 400, at + 900);
    add(t, 0, 7, "norm", at + 700, at + 800);
    add(t, 0, 7, "softmax", at + 900, at + 950);
    add(t, 1, 7, "gemm", at, at + 600);
    add(t, 1, 8, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 600, at + 900);
    add(t, 1, 7, "softmax", at + 900, at + 950);
}

static struct timeline *steps(void)
{
    struct timeline *t = create(2);
    for (int i = 0; i < STEPS; i++) step(t, 1000.0 * i);
    OK(timeline_finish(t));
    return t;
}

static void test_exposed(void **state)
{
    (void)state;
    struct timeline *t = steps();
    struct trace_communication c;
    struct trace_window_set windows;
    OK(trace_communicate(t, NULL, &c));
    assert_int_equal(c.n_ranks, 2);
    assert_true(c.told);
    assert_int_equal(c.n_collectives, 2 * STEPS);
    assert_int_equal(c.ranks[0].collectives, STEPS);
    assert_int_equal(c.ranks[0].total, STEPS * 500000);
    assert_int_equal(c.ranks[0].exposed, STEPS * 400000);
    assert_int_equal(c.ranks[0].waiting, STEPS * 200000);
    assert_int_equal(c.ranks[1].total, STEPS * 300000);
    assert_int_equal(c.ranks[1].exposed, STEPS * 300000);
    assert_int_equal(c.ranks[1].waiting, 0);
    trace_communication_free(&c);

    OK(trace_windows_find(t, NULL, &windows));
    assert_true(windows.count >= 3);
    OK(trace_communicate(t, &windows, &c));
    assert_int_equal(c.steps, windows.count);
    assert_int_equal(trace_rank_of(&c, 0)->exposed, (int64_t)windows.count * 400000);
    trace_communication_free(&c);
    trace_windows_free(&windows);
    timeline_destroy(t);
}

/* A part of a collective in a window counts as that part. */
static void test_window(void **state)
{
    (void)state;
    struct timeline *t = steps();
    struct trace_communication c;
    struct trace_window window = {.begin = 500000, .end = 750000};
    OK(trace_communicate(t, &(struct trace_window_set){.windows = &window, .count = 1}, &c));
    assert_int_equal(c.ranks[0].collectives, 0); /* began before */
    assert_int_equal(c.ranks[0].total, 250000);
    assert_int_equal(c.ranks[0].exposed, 200000);
    assert_int_equal(c.ranks[0].waiting, 100000);
    assert_int_equal(c.ranks[1].exposed, 150000);
    trace_communication_free(&c);
    timeline_destroy(t);
}

/* Collectives of several streams come in another order on each rank; ones of unequal number are not
 * told apart. */
static void test_order(void **state)
{
    (void)state;
    struct timeline *t = create(3);
    struct trace_communication c;
    add(t, 0, 1, "all_reduce_one_shot_cuda", 0, 100);
    add(t, 0, 2, "all_gather_nccl_cuda", 10, 50);
    add(t, 1, 2, "all_gather_nccl_cuda", 20, 50);
    add(t, 1, 1, "all_reduce_one_shot_cuda", 60, 100);
    add(t, 2, 1, "gemm", 0, 100); /* no rank */
    OK(timeline_finish(t));
    assert_int_equal(trace_first_rank(t), 0);
    OK(trace_communicate(t, NULL, &c));
    assert_true(c.told);
    assert_int_equal(c.n_ranks, 2);
    assert_null(trace_rank_of(&c, 2));
    assert_int_equal(c.ranks[0].exposed, 100000);
    assert_int_equal(c.ranks[0].waiting, 20000 + 10000); /* the gather moves from 20 to 50 */
    assert_int_equal(c.ranks[1].exposed, 30000 + 40000);
    assert_int_equal(c.ranks[1].waiting, 0);
    trace_communication_free(&c);
    timeline_destroy(t);

    t = create(2);
    add(t, 0, 1, "all_reduce", 0, 100);
    add(t, 1, 1, "all_reduce", 50, 100);
    add(t, 1, 1, "all_reduce", 150, 200);
    OK(timeline_finish(t));
    OK(trace_communicate(t, NULL, &c));
    assert_false(c.told);
    assert_int_equal(c.ranks[0].exposed, 100000);
    assert_int_equal(c.ranks[0].waiting, 0);
    struct communication_figure f;
    assert_true(communication_figure_of(&c, 0, 1, &f));
    assert_true(isnan(f.waiting_ns));
    json_t *json = communication_json(&c, 0, 1);
    assert_true(json_is_null(json_object_get(json, "waiting_ns")));
    assert_true(communication_figure_read(json, &f));
    assert_true(isnan(f.waiting_ns));
    assert_float_equal(communication_moving_ns(&f), 100000, 1e-9);
    json_decref(json);
    trace_communication_free(&c);
    timeline_destroy(t);
}

static void test_none(void **state)
{
    (void)state;
    struct timeline *t = create(2);
    struct trace_communication c;
    struct communication_figure f;
    add(t, 0, 1, "gemm", 0, 100);
    add(t, 1, 1, "gemm", 0, 100);
    OK(timeline_finish(t));
    assert_int_equal(trace_first_rank(t), TRACE_NO_DEVICE);
    OK(trace_communicate(t, NULL, &c));
    assert_int_equal(c.n_ranks, 0);
    assert_false(communication_figure_of(&c, 0, 1, &f));
    json_t *json = communication_json(&c, 0, 1);
    assert_true(json_is_null(json));
    assert_false(communication_figure_read(json, &f));
    json_decref(json);
    trace_communication_free(&c);
    timeline_destroy(t);

    t = create(1); /* the only one that was traced: no step is shared with anybody seen */
    add(t, 0, 1, "all_reduce", 0, 100);
    OK(timeline_finish(t));
    OK(trace_communicate(t, NULL, &c));
    assert_int_equal(c.ranks[0].exposed, 100000);
    assert_false(communication_figure_of(&c, 0, 1, &f));
    trace_communication_free(&c);
    timeline_destroy(t);
}

static const struct finding *find(const struct rules_report *r, const char *rule)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->findings[i].rule->name, rule) == 0) return &r->findings[i];
    return NULL;
}

static double evidence(const struct finding *f, const char *key)
{
    return json_number_value(json_object_get(f->evidence, key));
}

/* What advice, JSON and the drawing say is one number. */
static void test_same_everywhere(void **state)
{
    (void)state;
    struct timeline *t = steps();
    struct trace_window_set windows;
    struct trace_communication c;
    struct communication_figure f;
    struct rules_report report;
    struct step drawn;
    OK(trace_windows_find(t, NULL, &windows));
    OK(trace_communicate(t, &windows, &c));
    assert_true(communication_figure_of(&c, windows.device, (double)c.steps, &f));
    assert_float_equal(f.window_ns, STEP_NS, 1e-9);

    OK(rules_run(&(struct rules_input){.timeline = t, .windows = &windows}, NULL, &report));
    const struct finding *found = find(&report, "exposed");
    assert_non_null(found);
    assert_float_equal(found->ceiling_ns, f.exposed_ns, 1e-9);
    assert_float_equal(evidence(found, "waiting_ns"), f.waiting_ns, 1e-9);
    assert_float_equal(evidence(found, "worth_gpus"), f.worth, 1e-9);
    assert_non_null(strstr(report.todo, "larger batch"));
    assert_null(find(&report, "tiny_kernels"));
    rules_report_free(&report);

    json_t *json = communication_json(&c, windows.device, (double)c.steps);
    assert_float_equal(json_number_value(json_object_get(json, "exposed_ns")), f.exposed_ns, 1e-9);
    json_decref(json);

    const struct trace_window *w = &windows.windows[windows.typical];
    OK(step_make(t, &c, windows.device, w->begin, w->end, &drawn));
    assert_int_equal(drawn.ranks, 2);
    assert_int_equal(drawn.n_lanes, 6); /* two streams and the gaps of each */
    assert_string_equal(drawn.lanes[2].name, "0: gaps");
    assert_string_equal(drawn.lanes[5].name, "1: gaps");
    assert_float_equal(drawn.sums[STEP_LATE].ns, f.waiting_ns, 1e-9);
    assert_float_equal(drawn.sums[STEP_LATE].ns + drawn.sums[STEP_COMMUNICATION].ns, f.total_ns,
                       1e-9);
    step_free(&drawn);
    trace_communication_free(&c);
    trace_windows_free(&windows);
    timeline_destroy(t);
}

/* Who waits most of the time is told to look for the late rank. */
static void test_late(void **state)
{
    (void)state;
    struct timeline *t = create(2);
    struct rules_report report;
    for (int i = 0; i < STEPS; i++) {
        add(t, 0, 7, "gemm", 1000.0 * i, 1000.0 * i + 400);
        add(t, 0, 7, "all_reduce", 1000.0 * i + 400, 1000.0 * i + 1000);
        add(t, 1, 7, "gemm", 1000.0 * i, 1000.0 * i + 900);
        add(t, 1, 7, "all_reduce", 1000.0 * i + 900, 1000.0 * i + 1000);
    }
    OK(timeline_finish(t));
    struct trace_window windows[STEPS];
    for (int i = 0; i < STEPS; i++)
        windows[i] = (struct trace_window){1000000 * i, 1000000 * (i + 1), 2};
    OK(rules_run(&(struct rules_input){.timeline = t,
                                       .windows = &(struct trace_window_set){.windows = windows,
                                                                             .count = STEPS}},
                 NULL, &report));
    const struct finding *found = find(&report, "exposed");
    assert_non_null(found);
    assert_float_equal(evidence(found, "waiting_ns"), 500000, 1e-9);
    assert_non_null(strstr(report.todo, "the last rank is late"));
    rules_report_free(&report);
    timeline_destroy(t);
}

/* A range is the first rank's, and so are the kernels that its plan is held against, though others
 * of the process launch theirs meanwhile. */
static void test_ranges(void **state)
{
    (void)state;
    struct timeline *t = create(2);
    struct trace_launches launches;
    struct trace_window_set windows;
    char text[TRACE_UNSOUND];
    uint32_t name, call = 0;
    OK(timeline_string(t, "step", 4, &name));
    for (int64_t i = 0; i < STEPS; i++) {
        OK(timeline_add(t, &(struct trace_event){.start = 1000000 * i,
                                                 .end = 1000000 * i + 900000,
                                                 .name = name,
                                                 .detail = TRACE_NONE,
                                                 .kind = EVENT_MARKER,
                                                 .device = TRACE_NO_DEVICE}));
        for (uint16_t device = 0; device < 2; device++)
            for (int k = 0; k < 2; k++) {
                struct trace_event e = {.start = 1000000 * i + 1000 * k + 10,
                                        .end = 1000000 * i + 1000 * k + 20,
                                        .correlation = ++call,
                                        .name = TRACE_NONE,
                                        .detail = TRACE_NONE,
                                        .kind = EVENT_API,
                                        .device = TRACE_NO_DEVICE};
                OK(timeline_add(t, &e));
                e.kind = EVENT_KERNEL;
                e.device = device;
                e.start += 100000;
                e.end += 100900 + 1000 * device;
                OK(timeline_string(t, k ? "all_reduce" : "gemm", k ? 10 : 4, &e.name));
                OK(timeline_add(t, &e));
            }
    }
    OK(timeline_add_expected(t, &(struct trace_expected){.name = name, .kernels = 2}));
    OK(timeline_finish(t));
    OK(trace_launches_count(t, &launches));
    assert_int_equal(launches.count, 1);
    assert_int_equal(launches.items[0].ranges, STEPS);
    assert_int_equal(launches.items[0].most, 2);
    assert_false(trace_launches_unsound(t, &launches, text));
    trace_launches_free(&launches);
    OK(trace_windows_find(t, "step", &windows));
    assert_int_equal(windows.device, 0); /* not the one that did most */
    assert_int_equal(windows.count, STEPS);
    assert_int_equal(windows.windows[0].works, 2);
    trace_windows_free(&windows);
    timeline_destroy(t);
}

static void test_chrome(void **state)
{
    (void)state;
    struct timeline *t = steps();
    char *text = NULL;
    size_t size, waits = 0;
    FILE *to = open_memstream(&text, &size);
    OK(chrome_write(t, to, "memory"));
    fclose(to);
    assert_non_null(strstr(text, "\"rank 0: GPU"));
    assert_non_null(strstr(text, "\"rank 1: GPU"));
    for (const char *at = text; (at = strstr(at, "\"waited_us\":200.000")); at++) waits++;
    assert_int_equal(waits, STEPS);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    json_decref(json);
    free(text);
    timeline_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed), cmocka_unit_test(test_window),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_none),
        cmocka_unit_test(test_late),    cmocka_unit_test(test_same_everywhere),
        cmocka_unit_test(test_chrome),  cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
