#include "trace/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "trace/inflation.h"

#define OK(call) assert_int_equal((call), SOL_OK)

static struct timeline *create(void)
{
    struct timeline *t;
    uint16_t index;
    OK(timeline_create(&t));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 7, .level = TRACE_NODE}, &index));
    assert_int_equal(index, 0);
    OK(timeline_add_device(t, &(struct trace_device){.sm_count = 132, .name = TRACE_NONE}, &index));
    assert_int_equal(index, 0);
    return t;
}

static struct trace_event kernel_at(int64_t start, int64_t end)
{
    return (struct trace_event){
        .start = start, .end = end, .name = TRACE_NONE, .detail = TRACE_NONE, .kind = EVENT_KERNEL};
}

/* 40 launches of a graph: the first 20 are timed and 110 apart, the others 100. */
static void test_inflation(void **state)
{
    (void)state;
    struct timeline *t;
    struct trace_inflation found;
    uint16_t index;
    uint32_t name;
    OK(timeline_create(&t));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 7, .level = TRACE_LAUNCH}, &index));
    OK(timeline_add_process(t, &(struct trace_process){.pid = 8, .level = TRACE_GRAPH}, &index));
    OK(timeline_add_device(t, &(struct trace_device){.name = TRACE_NONE}, &index));
    OK(timeline_string(t, "cuGraphLaunch", 13, &name));
    int64_t at = 1000;
    for (uint32_t i = 1; i <= 40; i++) {
        struct trace_event call = {.start = at,
                                   .end = at + 5,
                                   .name = name,
                                   .correlation = i,
                                   .detail = TRACE_NONE,
                                   .kind = EVENT_API,
                                   .device = TRACE_NO_DEVICE};
        struct trace_event run = kernel_at(at + 10, at + 90);
        run.kind = EVENT_GRAPH;
        run.correlation = i;
        OK(timeline_add(t, &call));
        if (i <= 20) OK(timeline_add(t, &run));
        at += i < 20 ? 110 : 100;
    }
    OK(timeline_finish(t));
    assert_int_equal(t->level,
                     TRACE_LAUNCH); /* less than the other's, though its number is larger */
    OK(trace_inflation(t, &found));
    assert_int_equal(found.timed, 19);
    assert_int_equal(found.untimed, 19);
    assert_true(found.share > 0.0999 && found.share < 0.1001);
    timeline_destroy(t);
    t = create();
    OK(timeline_finish(t));
    OK(trace_inflation(t, &found));
    assert_int_equal(found.timed, 0);
    timeline_destroy(t);
}

static void test_interning(void **state)
{
    (void)state;
    struct timeline *t = create();
    uint32_t first, again, other;
    OK(timeline_string(t, "gemm", 4, &first));
    OK(timeline_string(t, "gemm_", 5, &other));
    OK(timeline_string(t, "gemm", 4, &again));
    assert_int_equal(first, again);
    assert_int_not_equal(first, other);
    assert_string_equal(timeline_text(t, other), "gemm_");
    assert_string_equal(timeline_text(t, TRACE_NONE), "");

    /* many, so that the tables grow several times */
    char text[32];
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 3000; i++) {
            uint32_t id;
            OK(timeline_string(t, text, (size_t)snprintf(text, sizeof text, "k%u", i), &id));
            assert_int_equal(id, i + 2);
            OK(timeline_shape(t, &(struct kernel_shape){.grid = {i, 1, 1}}, &id));
            assert_int_equal(id, i);
            OK(timeline_transfer(t, &(struct transfer){.bytes = i}, &id));
            assert_int_equal(id, i);
        }
    assert_int_equal(timeline_string_count(t), 3002);
    assert_int_equal(t->shapes[2999].grid[0], 2999);
    timeline_destroy(t);
}

static void test_order(void **state)
{
    (void)state;
    struct timeline *t = create();
    struct rng rng;
    rng_seed(&rng, 1);
    enum { N = 20000 };
    const int64_t base = INT64_C(1763698000000000000);
    for (uint32_t i = 0; i < N; i++) {
        int64_t start = base + rng_range(&rng, 0, 5000) * 100000;
        struct trace_event e = kernel_at(start, start + 10);
        e.correlation = i;
        OK(timeline_add(t, &e));
    }
    OK(timeline_add_sample(t, &(struct trace_sample){.time = base + 9, .sm_mhz = 2}));
    OK(timeline_add_sample(t, &(struct trace_sample){.time = base + 5, .sm_mhz = 1}));
    OK(timeline_finish(t));
    assert_int_equal(t->count, N);
    assert_int_equal(t->events[0].start, 0);
    for (size_t i = 1; i < N; i++) {
        const struct trace_event *e = &t->events[i];
        assert_true(e[-1].start <= e->start);
        if (e[-1].start == e->start) assert_true(e[-1].correlation < e->correlation);
        assert_int_equal(e->end - e->start, 10);
    }
    assert_int_equal(t->end, t->events[N - 1].end);
    assert_int_equal(t->level, TRACE_NODE);
    assert_int_equal(t->samples[0].sm_mhz, 1);
    assert_int_equal(t->samples[1].time + t->origin, base + 9);
    for (size_t i = 0; i < N; i += 997) {
        size_t at = timeline_lower_bound(t, t->events[i].start);
        assert_int_equal(t->events[at].start, t->events[i].start);
        assert_true(at == 0 || t->events[at - 1].start < t->events[at].start);
    }
    assert_int_equal(timeline_lower_bound(t, INT64_MAX), N);
    struct trace_event late = kernel_at(0, 1);
    assert_int_equal(timeline_add(t, &late), SOL_E_INTERNAL);
    timeline_destroy(t);
}

static void test_refused(void **state)
{
    (void)state;
    struct timeline *t = create();
    struct trace_event e = kernel_at(5, 4);
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    e = kernel_at(5, 5);
    e.name = 0;
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    e = kernel_at(5, 5);
    e.detail = 0;
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    e = kernel_at(5, 5);
    e.device = 1;
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    e.device = TRACE_NO_DEVICE;
    OK(timeline_add(t, &e));
    e.process = 1;
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    e = kernel_at(5, 5);
    e.kind = EVENT_KIND_COUNT;
    assert_int_equal(timeline_add(t, &e), SOL_E_FORMAT);
    assert_int_equal(timeline_add_sample(t, &(struct trace_sample){.device = 1}), SOL_E_FORMAT);
    e = kernel_at(INT64_MIN, INT64_MAX);
    OK(timeline_add(t, &e));
    assert_int_equal(timeline_finish(t), SOL_E_FORMAT);
    timeline_destroy(t);
}

static void test_devices(void **state)
{
    (void)state;
    struct timeline *t = create();
    uint16_t a, b, c;
    struct trace_device device = {.uuid = {1, 2, 3}};
    OK(timeline_add_device(t, &device, &a));
    OK(timeline_add_device(t, &device, &b));
    device.uuid[15] = 9;
    OK(timeline_add_device(t, &device, &c));
    assert_int_equal(a, b);
    assert_int_not_equal(a, c);
    OK(timeline_add_note(t, "busy"));
    OK(timeline_add_note(t, "busy"));
    assert_int_equal(t->n_notes, 1);
    OK(timeline_finish(t)); /* no events */
    assert_int_equal(t->end, 0);
    timeline_destroy(t);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < EVENT_KIND_COUNT; i++)
        assert_string_not_equal(event_kind_name((enum event_kind)i), "?");
    assert_string_equal(event_kind_name(EVENT_ALLOC), "alloc");
    assert_string_equal(memory_kind_name(MEMORY_MANAGED), "managed");
    assert_string_equal(trace_level_name(TRACE_NODE), "node");
    assert_string_equal(trace_level_name(TRACE_LAUNCH), "launch");
    assert_string_equal(trace_level_name(TRACE_LEVEL_COUNT), "?");
    timeline_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interning), cmocka_unit_test(test_inflation),
        cmocka_unit_test(test_order),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_devices),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
