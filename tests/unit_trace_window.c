#include "trace/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define OK(call) assert_int_equal((call), SOL_OK)

/* ---- periods of symbols ---- */

enum { TEXT_MAX = 200000 };
static uint32_t text[TEXT_MAX];

/* `head` and `tail` symbols that repeat nothing around `times` repetitions of a step: `layers`
 * times the same layer between a begin and an end. Returns the length. */
static size_t write_text(size_t head, size_t layers, size_t layer, size_t times, size_t tail)
{
    size_t n = 0;
    uint32_t unique = 100000;
    for (size_t i = 0; i < head; i++) text[n++] = unique++;
    for (size_t i = 0; i < times; i++) {
        text[n++] = 1;
        for (size_t l = 0; l < layers; l++)
            for (size_t k = 0; k < layer; k++) text[n++] = (uint32_t)(2 + k);
        text[n++] = 2;
        text[n++] = 999;
    }
    for (size_t i = 0; i < tail; i++) text[n++] = unique++;
    return n;
}

static void assert_period(size_t head, size_t layers, size_t layer, size_t times, size_t tail)
{
    size_t n = write_text(head, layers, layer, times, tail), period, start, end;
    OK(window_period(text, n, &period, &start, &end));
    assert_int_equal(period, layers * layer + 3);
    assert_true(start <= head + period && end + period >= n - tail);
}

static void test_period(void **state)
{
    (void)state;
    assert_period(0, 24, 10, 100, 0);
    assert_period(500, 24, 10, 100, 300); /* setup and tear-down */
    assert_period(5000, 24, 10, 40, 20);
    assert_period(0, 36, 11, 200, 20000);
    assert_period(3, 1, 1, 50, 3);
    assert_period(0, 24, 10, 3, 0);
}

static void test_no_period(void **state)
{
    (void)state;
    size_t period, start, end;
    for (uint32_t i = 0; i < 1000; i++) text[i] = i;
    OK(window_period(text, 1000, &period, &start, &end));
    assert_int_equal(period, 0);
    for (size_t n = 0; n < 3; n++) {
        OK(window_period(text, n, &period, &start, &end));
        assert_int_equal(period, 0);
    }
    for (uint32_t i = 0; i < 100000; i++) text[i] = 7;
    OK(window_period(text, 100000, &period, &start, &end));
    assert_int_equal(period, 1);
    assert_int_equal(end - start, 100000);
}

/* Whatever is found does repeat. */
static void test_random(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 300; round++) {
        size_t n = (size_t)rng_range(&rng, 3, 400), period, start, end;
        for (size_t i = 0; i < n; i++) text[i] = (uint32_t)rng_range(&rng, 0, 2);
        OK(window_period(text, n, &period, &start, &end));
        if (period == 0) continue;
        assert_true(end <= n && end - start >= 3 * period);
        for (size_t i = start + period; i < end; i++) assert_int_equal(text[i], text[i - period]);
    }
}

/* ---- windows of a time line ---- */

static struct timeline *create(void)
{
    struct timeline *t;
    uint16_t index;
    OK(timeline_create(&t));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 1}, &index));
    OK(timeline_add_device(t, &(struct trace_device){.name = TRACE_NONE}, &index));
    return t;
}

static void add(struct timeline *t, uint16_t kind, const char *name, int64_t start, int64_t end,
                uint32_t correlation, uint32_t graph)
{
    struct trace_event e = {.start = start,
                            .end = end,
                            .correlation = correlation,
                            .detail = TRACE_NONE,
                            .kind = kind,
                            .device = event_on_device(kind) ? 0 : TRACE_NO_DEVICE};
    OK(timeline_string(t, name, strlen(name), &e.name));
    if (graph) OK(timeline_shape(t, &(struct kernel_shape){.graph = graph}, &e.detail));
    OK(timeline_add(t, &e));
}

/* A step: embed, 3 layers of (norm, gemm), sample; 1 us each, 5 us idle between steps. */
static int64_t add_step(struct timeline *t, int64_t time, uint32_t *correlation)
{
    static const char *const names[] = {"embed", "norm", "gemm", "norm",
                                        "gemm",  "norm", "gemm", "sample"};
    for (int i = 0; i < 8; i++) {
        ++*correlation;
        add(t, EVENT_API, "cudaLaunchKernel", time - 3000, time - 2500, *correlation, 0);
        add(t, EVENT_KERNEL, names[i], time, time + 900, *correlation, 0);
        time += 1000;
    }
    return time + 5000;
}

static void test_sequence(void **state)
{
    (void)state;
    struct timeline *t = create();
    struct trace_window_set set;
    uint32_t correlation = 0;
    int64_t time = 10000;
    char name[16];
    for (int i = 0; i < 20; i++, time += 1000) {
        snprintf(name, sizeof name, "setup%d", i);
        add(t, EVENT_KERNEL, name, time, time + 900, ++correlation, 0);
    }
    /* the end of a step first, so that the stretch does not begin where a step does */
    add(t, EVENT_KERNEL, "gemm", time, time + 900, ++correlation, 0);
    add(t, EVENT_KERNEL, "sample", time + 1000, time + 1900, ++correlation, 0);
    time += 7000;
    for (int i = 0; i < 10; i++) time = add_step(t, time, &correlation);
    add(t, EVENT_KERNEL, "teardown", time, time + 10, ++correlation, 0);
    OK(timeline_finish(t));
    OK(trace_windows_find(t, NULL, &set));
    assert_int_equal(set.method, WINDOW_SEQUENCE);
    assert_true(set.count >= 9);
    for (size_t i = 0; i < set.count; i++) {
        const struct trace_window *w = &set.windows[i];
        const struct trace_event *first = &t->events[timeline_lower_bound(t, w->begin)];
        while (first->kind != EVENT_KERNEL) first++;
        assert_string_equal(timeline_text(t, first->name), "embed"); /* after the longest wait */
        assert_int_equal(w->works, 8);
        if (i + 1 < set.count) {
            assert_int_equal(w->end - w->begin, 13000);
            assert_int_equal(w->end, set.windows[i + 1].begin);
        } else {
            assert_int_equal(w->end - w->begin, 7900);
        }
    }
    assert_true(set.typical < set.count);
    trace_windows_free(&set);
    assert_int_equal(trace_windows_find(t, "decode", &set), SOL_E_ARGUMENT);
    trace_windows_free(&set);
    timeline_destroy(t);
}

static void test_marker(void **state)
{
    (void)state;
    struct timeline *t = create();
    struct trace_window_set set;
    uint32_t correlation = 0;
    int64_t time = 10000;
    for (int i = 0; i < 5; i++) {
        /* launches happen 3 us before the kernels, within the range */
        add(t, EVENT_MARKER, "decode", time - 3500, time + 4700, 0, 0);
        if (i == 0) add(t, EVENT_MARKER, "prefill", time - 3500, time + 4600, 0, 0);
        time = add_step(t, time, &correlation);
    }
    OK(timeline_finish(t));
    OK(trace_windows_find(t, NULL, &set));
    assert_int_equal(set.method, WINDOW_MARKER);
    assert_string_equal(timeline_text(t, set.name), "decode");
    assert_int_equal(set.count, 5);
    for (size_t i = 0; i < 5; i++) assert_int_equal(set.windows[i].works, 8);
    trace_windows_free(&set);
    OK(trace_windows_find(t, "prefill", &set)); /* named: one is enough */
    assert_int_equal(set.count, 1);
    assert_int_equal(set.windows[0].works, 8);
    trace_windows_free(&set);
    assert_int_equal(trace_windows_find(t, "no such range", &set), SOL_E_ARGUMENT);
    trace_windows_free(&set);
    timeline_destroy(t);
}

/* level node: kernels that name their graph and share the launch's correlation; else whole graphs
 */
static void graph_case(bool nodes)
{
    struct timeline *t = create();
    struct trace_window_set set;
    int64_t time = 0;
    for (uint32_t i = 0; i < 6; i++, time += 10000) {
        if (nodes)
            for (int k = 0; k < 4; k++)
                add(t, EVENT_KERNEL, "k", time + 1000 * k, time + 1000 * k + 900, i + 1, 9);
        else
            add(t, EVENT_GRAPH, "graph 9", time, time + 4000, i + 1, 9);
        /* a number of kernels that changes, so that there is no period */
        for (uint32_t k = 0; k < i; k++)
            add(t, EVENT_KERNEL, "sample", time + 5000 + k, time + 5000 + k, 100 + i, 0);
    }
    OK(timeline_finish(t));
    OK(trace_windows_find(t, NULL, &set));
    assert_int_equal(set.method, WINDOW_GRAPH);
    assert_int_equal(set.count, 6);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(set.windows[i].begin, 10000 * (int64_t)i);
        assert_int_equal(set.windows[i].works, (nodes ? 4 : 1) + i);
    }
    trace_windows_free(&set);
    timeline_destroy(t);
}

static void test_graph(void **state)
{
    (void)state;
    graph_case(false);
    graph_case(true);
}

static void test_nothing(void **state)
{
    (void)state;
    struct timeline *t = create();
    struct trace_window_set set;
    OK(timeline_finish(t));
    OK(trace_windows_find(t, NULL, &set));
    assert_int_equal(set.method, WINDOW_NONE);
    assert_int_equal(set.count, 0);
    trace_windows_free(&set);
    timeline_destroy(t);
    assert_string_equal(window_method_name(WINDOW_GRAPH), "graph");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_period),  cmocka_unit_test(test_no_period),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_marker),  cmocka_unit_test(test_graph),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
