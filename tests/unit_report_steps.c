/* The time line of a step: nothing lost, nothing twice, and a page that stays small. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/steps.h"
#include "support/step_trace.h"
#include "trace/trace_read.h"
#include "trace/window.h"

#define OK(call) assert_int_equal((call), SOL_OK)

static struct timeline *read_trace(const char *odd)
{
    struct timeline *t;
    size_t size;
    unsigned char *data = step_trace_make(odd, &size);
    assert_non_null(data);
    OK(timeline_create(&t));
    OK(trace_read_memory(t, data, size, "made"));
    OK(timeline_finish(t));
    free(data);
    return t;
}

static void test_step(void **state)
{
    (void)state;
    struct timeline *t = read_trace(NULL);
    struct trace_window_set windows;
    struct step s;
    OK(trace_windows_find(t, NULL, &windows));
    assert_int_equal(windows.count, STEP_TRACE_STEPS);
    const struct trace_window *w = &windows.windows[windows.typical];
    OK(step_make(t, NULL, windows.device, w->begin, w->end, &s));
    assert_int_equal(s.works, w->works);
    assert_int_equal(s.sums[STEP_ATTENTION].count, STEP_TRACE_LAYERS);
    assert_int_equal(s.sums[STEP_MATMUL].count, 2 * STEP_TRACE_LAYERS);
    assert_int_equal(s.sums[STEP_COPY].count, 1);
    assert_int_equal(s.n_lanes, 4);
    assert_string_equal(s.lanes[0].name, "host");
    assert_string_equal(s.lanes[1].name, "stream 7");
    assert_string_equal(s.lanes[3].name, "gaps");
    for (size_t i = 0; i < s.n_lanes; i++)
        for (size_t j = 0; j < s.lanes[i].count; j++) {
            const struct step_piece *p = &s.lanes[i].pieces[j];
            assert_true(p->begin >= 0 && p->begin < p->end && p->end <= s.span_ns);
            if (j) assert_true(p[-1].begin <= p->begin);
        }
    /* The other stream works only while the first does: what that leaves is the gaps. */
    double busy = 0, gaps = 0;
    for (size_t j = 0; j < s.lanes[1].count; j++)
        busy += s.lanes[1].pieces[j].end - s.lanes[1].pieces[j].begin;
    for (size_t j = 0; j < s.lanes[3].count; j++)
        gaps += s.lanes[3].pieces[j].end - s.lanes[3].pieces[j].begin;
    assert_float_equal(busy + gaps, s.span_ns, 1e-6);
    assert_float_equal(gaps, s.sums[STEP_GAP].ns, 1e-6);
    step_free(&s);
    trace_windows_free(&windows);
    timeline_destroy(t);
}

/* A step of half a million kernels on forty streams. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 500000, STREAMS = 40 };
    struct timeline *t;
    struct trace_event e = {.kind = EVENT_KERNEL, .detail = TRACE_NONE};
    struct step s;
    struct html *html;
    struct html_text text;
    uint16_t device, process;
    OK(timeline_create(&t));
    OK(timeline_string(t, "GPU", 3, &e.name));
    OK(timeline_add_device(t, &(struct trace_device){.name = e.name}, &device));
    OK(timeline_add_process(t, &(struct trace_process){.command = e.name}, &process));
    for (int64_t i = 0; i < MANY; i++) {
        e.start = 100 * i;
        e.end = e.start + 10 + i % 80;
        e.track = (uint32_t)(i % STREAMS);
        OK(timeline_add(t, &e));
    }
    OK(timeline_finish(t));
    OK(step_make(t, NULL, device, 0, t->end, &s));
    assert_int_equal(s.works, MANY);
    assert_int_equal(s.n_lanes, 5); /* four streams and the gaps */
    assert_int_equal(s.other_streams, STREAMS - 4);
    OK(html_create(&html));
    chart_step(html, 720, &s);
    chart_step(html, 340, &s);
    OK(html_finish(html, &text));
    assert_in_range(text.size, 1000, 900000);
    html_destroy(html);
    step_free(&s);
    timeline_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step), cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
