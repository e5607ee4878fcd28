/* Schedules with known answers: what a step takes when something in it is different. */
#include "trace/replay.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "advise/whatif.h"
#include "base/rng.h"
#include "base/status.h"
#include "support/effort.h"

#define OK(call) assert_int_equal((call), SOL_OK)

static void near(double got, double wanted, double apart, const char *what, int line)
{
    if (!(fabs(got - wanted) <= apart))
        fail_msg("line %d: %s is %.3f, not %.3f", line, what, got, wanted);
}
#define assert_near(got, wanted, apart) near((got), (wanted), (apart), #got, __LINE__)

/* ---- traces ---- */

struct trace {
    struct timeline *t;
    struct trace_window_set windows;
    uint32_t correlation;
};

static void open_trace(struct trace *r)
{
    uint16_t index;
    *r = (struct trace){0};
    OK(timeline_create(&r->t));
    OK(timeline_add_process(r->t, &(struct trace_process){.pid = 1}, &index));
    OK(timeline_add_device(r->t, &(struct trace_device){.name = TRACE_NONE}, &index));
}

static void add(struct trace *r, uint16_t kind, const char *name, int64_t start, int64_t end,
                uint32_t track, uint32_t correlation)
{
    struct trace_event e = {.start = start,
                            .end = end,
                            .correlation = correlation,
                            .detail = TRACE_NONE,
                            .track = track,
                            .kind = kind,
                            .device = event_on_device(kind) ? 0 : TRACE_NO_DEVICE};
    OK(timeline_string(r->t, name, strlen(name), &e.name));
    OK(timeline_add(r->t, &e));
}

/* A kernel that nobody is known to have launched. */
static void kernel(struct trace *r, const char *name, int64_t start, int64_t end, uint32_t stream)
{
    add(r, EVENT_KERNEL, name, start, end, stream, 0);
}

/* A kernel and its launch, which takes 2 us from `call`. */
static void launched(struct trace *r, const char *name, int64_t call, int64_t start, int64_t end,
                     uint32_t stream)
{
    add(r, EVENT_API, "cudaLaunchKernel", call, call + 2000, 1, ++r->correlation);
    add(r, EVENT_KERNEL, name, start, end, stream, r->correlation);
}

static void finish(struct trace *r)
{
    OK(timeline_finish(r->t));
    OK(trace_windows_find(r->t, NULL, &r->windows));
}

static void close_trace(struct trace *r)
{
    trace_windows_free(&r->windows);
    timeline_destroy(r->t);
}

/* The new step; the old one must be `was`. */
static double ask_of(struct trace *r, double was, const char *const *changes, size_t n)
{
    struct whatif_report report;
    OK(whatif_of_timeline(r->t, &r->windows, changes, n, &report));
    assert_int_equal(report.n_steps, 1);
    assert_true(report.gpu);
    assert_near(report.steps[0].measured_ns, was, 1e-6);
    double step = report.steps[0].results[report.steps[0].n_results - 1].step_ns;
    whatif_report_free(&report);
    return step;
}

static double ask(struct trace *r, double was, const char *change)
{
    return ask_of(r, was, &change, 1);
}

#define THEN(r, was, change, step) near(ask(r, was, change), step, 1e-3, change, __LINE__)

/* ---- one stream ---- */

enum { STEPS = 9 };

/* Steps of 24 us: 10 us a, 1 us idle, 4 us b, 1 us idle, 3 us c, 5 us idle. */
static void serial(struct trace *r)
{
    open_trace(r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 24000 * i;
        kernel(r, "a_gemm", at, at + 10000, 7);
        kernel(r, "b_rope", at + 11000, at + 15000, 7);
        kernel(r, "c_norm", at + 16000, at + 19000, 7);
    }
    finish(r);
}

static void test_serial(void **state)
{
    (void)state;
    struct trace r;
    serial(&r);
    THEN(&r, 24000, "a_gemm=1", 24000);
    THEN(&r, 24000, "a_gemm=0.5", 19000);
    THEN(&r, 24000, "b_rope=2.5", 30000);
    THEN(&r, 24000, "b_=0", 20000);   /* an expression */
    THEN(&r, 24000, "GEMM=0", 14000); /* a category */
    THEN(&r, 24000, "matmul=0", 14000);
    THEN(&r, 24000, "norm=0", 21000); /* a role */
    THEN(&r, 24000, "gap=0", 17000);
    THEN(&r, 24000, "gap=0.5", 20500);
    THEN(&r, 24000, "gap.launch=0", 17000);
    THEN(&r, 24000, "gap.host=0", 24000); /* nobody is known to have launched late */
    const char *const both[] = {"a_gemm=0.5", "gap=0", "rope=0.25"};
    assert_near(ask_of(&r, 24000, both, 3), 9000, 1e-3);
    close_trace(&r);
}

static void test_fuse_and_overlap(void **state)
{
    (void)state;
    struct trace r;
    serial(&r);
    THEN(&r, 24000, "fuse a_gemm b_rope", 24000 - 5000); /* b, and the gap ahead of it */
    THEN(&r, 24000, "fuse b_rope c_norm", 24000 - 4000);
    THEN(&r, 24000, "fuse a_gemm b_rope c_norm", 24000 - 9000);
    THEN(&r, 24000, "overlap a_gemm b_rope", 24000 - 5000);
    THEN(&r, 24000, "overlap a_gemm c_norm", 24000 - 4000);
    THEN(&r, 24000, "overlap a_gemm b_rope c_norm", 24000 - 9000);
    close_trace(&r);
}

/* Each kernel is launched while its predecessor runs, waits within for its end, and takes 4 us of
 * its own. */
static void test_early_launch(void **state)
{
    (void)state;
    struct trace r;
    static const char *const names[] = {"k0", "k1", "k2", "k3"};
    open_trace(&r);
    for (int64_t i = 0; i < 4 * STEPS; i++)
        kernel(&r, names[i % 4], 4000 * i - (i ? 2500 : 0), 4000 * (i + 1), 7);
    finish(&r);
    THEN(&r, 16000, "k1=1", 16000);
    THEN(&r, 16000, "k1=0.5", 14000);
    THEN(&r, 16000, "k1=2", 20000);
    THEN(&r, 16000, "gap=0", 16000);
    close_trace(&r);
}

/* ---- the host ---- */

/* A launch every 10 us starts 5 us later a kernel of 4 us: the device waits for the host. */
static void test_host_bound(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < 3 * STEPS; i++)
        launched(&r, i % 3 ? i % 3 == 1 ? "b" : "c" : "a", 10000 * i, 10000 * i + 5000,
                 10000 * i + 9000, 7);
    finish(&r);
    THEN(&r, 30000, "b=1", 30000);
    THEN(&r, 30000, "b=0.1", 30000); /* the gap gets longer instead */
    THEN(&r, 30000, "gap.launch=0", 30000);
    THEN(&r, 30000, "gap.host=0", 15000); /* 1 us between kernels that are launched in time */
    THEN(&r, 30000, "gap=0", 12000);
    /* So long that the host is waited for no more. */
    assert_true(ask(&r, 30000, "b=5") > 30000);
    THEN(&r, 30000, "b=2", 30000);
    /* One launch less of 2 us, and nobody waits for what it launched. */
    THEN(&r, 30000, "fuse a b", 28000);
    close_trace(&r);
}

/* The host launches far ahead, so the device alone decides until the host is too late. */
static void test_queue(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < 2 * STEPS; i++) {
        int64_t start = 10000 + 21000 * (i / 2) + 10500 * (i % 2);
        launched(&r, i % 2 ? "b" : "a", 3000 * i, start, start + 10000, 7);
    }
    finish(&r);
    THEN(&r, 21000, "a=0.5", 16000);
    THEN(&r, 21000, "gap=0", 20000);
    /* Both of 100 ns: a launch each 3 us is what remains. */
    const char *const fast[] = {"a=0.01", "b=0.01"};
    assert_near(ask_of(&r, 21000, fast, 2), 6000, 600);
    close_trace(&r);
}

/* A step: launch, wait for the device, think for 20 us. The wait returns 3 us after the kernel. */
static void test_wait(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 100000 * i;
        launched(&r, "a", at, at + 7000, at + 47000, 7);
        launched(&r, "b", at + 2000, at + 48000, at + 77000, 7);
        add(&r, EVENT_API, "cudaStreamSynchronize", at + 5000, at + 80000, 1, ++r.correlation);
    }
    finish(&r);
    THEN(&r, 100000, "a=1", 100000);
    THEN(&r, 100000, "a=0.5", 80000); /* the wait is over earlier; thinking is not shorter */
    THEN(&r, 100000, "b=2", 129000);
    THEN(&r, 100000, "gap.host=0", 71000); /* of both kernels, and 1 us ahead of each */
    close_trace(&r);
}

/* A copy to the host that returns when it is done is a wait too, and so is asking again and again.
 */
static void test_other_waits(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 100000 * i;
        launched(&r, "a", at, at + 7000, at + 47000, 7);
        add(&r, EVENT_API, "cudaMemcpy", at + 3000, at + 60000, 1, ++r.correlation);
        add(&r, EVENT_COPY, "copy DtoH", at + 48000, at + 50000, 7, r.correlation);
        launched(&r, "b", at + 61000, at + 66000, at + 86000, 7);
        for (int64_t k = 0; k < 12; k++)
            add(&r, EVENT_API, "cudaEventQuery", at + 64000 + 2000 * k, at + 65000 + 2000 * k, 1,
                ++r.correlation);
    }
    finish(&r);
    THEN(&r, 100000, "a=1", 100000);
    THEN(&r, 100000, "a=0.5", 80000);
    THEN(&r, 100000, "b=0.5", 90000);
    close_trace(&r);
}

/* ---- two streams ---- */

/* a (10 us) and b (6 us) run side by side; c waits for both, 1 us behind a. */
static void test_two_streams(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 20000 * i;
        kernel(&r, "a", at, at + 10000, 7);
        kernel(&r, "b", at + 500, at + 6500, 8);
        kernel(&r, "c", at + 11000, at + 19000, 7);
    }
    finish(&r);
    THEN(&r, 20000, "a=1", 20000);
    THEN(&r, 20000, "b=0.5", 20000); /* not on the way */
    THEN(&r, 20000, "a=0.7", 17000);
    THEN(&r, 20000, "c=0.5", 16000);
    close_trace(&r);
}

/* c, on the stream of a, starts only when b of the other stream has ended. */
static void test_event(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 40000 * i;
        kernel(&r, "a", at, at + 10000, 7);
        kernel(&r, "b", at + 1000, at + 25000, 8);
        kernel(&r, "c", at + 26000, at + 39500, 7);
    }
    finish(&r);
    THEN(&r, 40000, "b=1", 40000);
    THEN(&r, 40000, "b=0.5", 28000);
    THEN(&r, 40000, "a=0.5", 40000); /* b begins behind the step before, as a does */
    THEN(&r, 40000, "a=2.8", 42500); /* now c waits for a, 500 ns as usual */
    close_trace(&r);
}

/* Branches of a graph carry its one stream: b lies within a's time. */
static void test_branches(void **state)
{
    (void)state;
    struct trace r;
    open_trace(&r);
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t at = 30000 * i;
        kernel(&r, "a", at, at + 20000, 7);
        kernel(&r, "b", at + 100, at + 10100, 7);
        kernel(&r, "c", at + 21000, at + 29000, 7);
    }
    finish(&r);
    THEN(&r, 30000, "a=1", 30000);
    THEN(&r, 30000, "b=0.5", 30000);
    THEN(&r, 30000, "a=0.6", 22000);
    assert_true(ask(&r, 30000, "a=0.1") > 18000); /* b's 10 us remain */
    close_trace(&r);
}

/* ---- anything ---- */

/* Without a change every replay is the measured one, whatever the trace. */
static void test_random(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    const int64_t rounds = effort("random traces", 300, 20);
    for (int64_t round = 0; round < rounds; round++) {
        struct trace r;
        static const char *const names[] = {"gemm", "norm", "attention", "x"};
        int64_t host = 0, ends[3] = {0};
        open_trace(&r);
        for (int i = 0; i < 60; i++) {
            int64_t stream = rng_range(&rng, 0, 2), length = rng_range(&rng, 0, 9000);
            int64_t start = host + rng_range(&rng, 0, 6000);
            bool early = rng_range(&rng, 0, 3) == 0;
            if (!early && start < ends[stream]) start = ends[stream] + rng_range(&rng, 0, 1500);
            launched(&r, names[rng_range(&rng, 0, 3)], host, start, start + length,
                     (uint32_t)stream);
            if (start + length > ends[stream]) ends[stream] = start + length;
            host += 2000 + rng_range(&rng, 0, 4000);
            if (rng_range(&rng, 0, 9) > 0) continue;
            int64_t end = host > ends[stream] ? host + 1 : ends[stream] + 1000;
            add(&r, EVENT_API, "cudaStreamSynchronize", host, end, 1, ++r.correlation);
            host = end + rng_range(&rng, 0, 3) * 1000;
        }
        finish(&r);
        struct schedule *s;
        double measured, replayed;
        OK(schedule_create(r.t, &r.windows, &s));
        double *times = malloc(s->n_works * sizeof *times);
        assert_non_null(times);
        for (size_t i = 0; i < s->n_works; i++)
            times[i] = (double)(s->works[i].end - s->works[i].start);
        struct replay_change same = {.times = times, .host_gaps = 1, .other_gaps = 1};
        OK(replay_measured(s, &measured));
        OK(replay_run(s, &same, &replayed));
        assert_near(replayed, measured, 1e-3);
        free(times);
        schedule_destroy(s);
        close_trace(&r);
    }
}

static void assert_refused(struct trace *r, const char *change, const char *word)
{
    struct whatif_report report;
    assert_int_equal(whatif_of_timeline(r->t, &r->windows, &change, 1, &report), SOL_E_ARGUMENT);
    if (!strstr(sol_last_error(), word)) fail_msg("%s: %s", change, sol_last_error());
    whatif_report_free(&report);
}

static void test_bad(void **state)
{
    (void)state;
    struct trace r;
    serial(&r);
    assert_refused(&r, "attention", "write NAME=FACTOR");
    assert_refused(&r, "attention=", "no factor");
    assert_refused(&r, "attention=1x", "no factor");
    assert_refused(&r, "attention=-1", "no factor");
    assert_refused(&r, "attention=nan", "no factor");
    assert_refused(&r, "attention=0.5", "no role, op, category or kernel 'attention' here");
    assert_refused(&r, "=0.5", "a name is missing");
    assert_refused(&r, "a(=0.5", "no expression");
    assert_refused(&r, "fuse a_gemm", "name two kernels");
    assert_refused(&r, "fuse a_gemm c_norm", "never run one right behind the other");
    assert_refused(&r, "fuse a a a a a a a a a", "more than 8 names");
    assert_refused(&r, "overlap a_gemm nothing", "'nothing'");
    close_trace(&r);
    open_trace(&r);
    finish(&r);
    assert_refused(&r, "gap=0", "nothing ran");
    close_trace(&r);
}

/* ---- how far answers were off ---- */

static void test_error(void **state)
{
    (void)state;
    struct whatif_error e;
    static const char text[] =
        "{\"version\": 1, \"changes\": ["
        "{\"device\": \"G\", \"gpu\": true, \"predicted_ns\": 101, \"measured_ns\": 100},"
        "{\"device\": \"C\", \"gpu\": false, \"predicted_ns\": 200, \"measured_ns\": 100},"
        "{\"device\": \"G\", \"gpu\": true, \"predicted_ns\": 90, \"measured_ns\": 100},"
        "{\"device\": \"G\", \"gpu\": true, \"predicted_ns\": 0, \"measured_ns\": 100},"
        "{\"device\": \"G\", \"gpu\": true, \"predicted_ns\": 97, \"measured_ns\": 100}]}";
    OK(whatif_error_parse(text, strlen(text), true, &e));
    assert_int_equal(e.count, 3);
    assert_near(e.median, 0.03, 1e-12);
    assert_near(e.worst, 0.10, 1e-12);
    assert_string_equal(e.device, "G");
    OK(whatif_error_parse(text, strlen(text), false, &e));
    assert_int_equal(e.count, 1);
    assert_int_equal(whatif_error_parse("{}", 2, true, &e), SOL_E_FORMAT);
    assert_int_equal(whatif_error_parse("x", 1, true, &e), SOL_E_FORMAT);
    OK(whatif_error_known(false, &e)); /* what the program brings can be read */
    OK(whatif_error_known(true, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serial),       cmocka_unit_test(test_fuse_and_overlap),
        cmocka_unit_test(test_early_launch), cmocka_unit_test(test_host_bound),
        cmocka_unit_test(test_queue),        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_other_waits),  cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_event),        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_random),       cmocka_unit_test(test_bad),
        cmocka_unit_test(test_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
