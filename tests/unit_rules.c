/* Every rule on a program with its fault planted, where it alone may fire, and on one without. */
#include "advise/largest.h"
#include "advise/rules.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/memory.h"

#define OK(call) assert_int_equal((call), SOL_OK)

enum { STEPS = 40, KERNELS = 40, MIB = 1 << 20 };

/* ---- a program made up ---- */

/* One step in us; what is 0 is not there. */
struct program {
    double kernel, launch, gap;      /* of ordinary kernels, of their calls, between them */
    double late;                     /* launch of kernel 10 after the previous one's end */
    double wait;                     /* a synchronisation at the end goes on so long */
    double allocation;               /* cudaMalloc between two steps */
    double copy, pageable, set_rate; /* copies: pinned, pageable; set_rate: bytes/s of a memset */
    int transposes;                  /* kernels that are named so */
    int activations;                 /* kernels of a third of the time after a product */
    int in_graph;                    /* short kernels, run by one graph */
    bool slow_launches;              /* each kernel only starts when its call returned */
    double overhead;                 /* of the tracer, within the late launch */
};

struct scene {
    struct timeline *t;
    int64_t host, device; /* ns: when each is free */
    uint32_t correlation;
};

static uint32_t string(struct timeline *t, const char *text)
{
    uint32_t id;
    OK(timeline_string(t, text, strlen(text), &id));
    return id;
}

static int64_t ns(double us)
{
    return llround(us * 1000);
}

static void host_event(struct scene *s, enum event_kind kind, const char *name, int64_t start,
                       int64_t end, uint32_t correlation)
{
    OK(timeline_add(s->t, &(struct trace_event){.start = start,
                                                .end = end,
                                                .name = string(s->t, name),
                                                .detail = TRACE_NONE,
                                                .correlation = correlation,
                                                .track = 1,
                                                .kind = (uint16_t)kind,
                                                .device = TRACE_NO_DEVICE}));
}

static void device_event(struct scene *s, enum event_kind kind, const char *name, uint32_t detail,
                         int64_t start, int64_t end)
{
    OK(timeline_add(s->t, &(struct trace_event){.start = start,
                                                .end = end,
                                                .name = string(s->t, name),
                                                .detail = detail,
                                                .correlation = s->correlation,
                                                .track = 7,
                                                .kind = (uint16_t)kind}));
}

static void call(struct scene *s, const char *name, double us)
{
    s->correlation++;
    host_event(s, EVENT_API, name, s->host, s->host + ns(us), s->correlation);
    s->host += ns(us);
}

/* Work that the last call started, `gap` us after the one before or as soon as it was called. */
static void work(struct scene *s, enum event_kind kind, const char *name, uint32_t detail,
                 double gap, double us)
{
    int64_t start = s->device + ns(gap);
    if (start < s->host + 500) start = s->host + 500;
    device_event(s, kind, name, detail, start, start + ns(us));
    s->device = start + ns(us);
}

static uint32_t transfer(struct scene *s, uint64_t bytes, uint8_t from, uint8_t to)
{
    uint32_t id;
    struct transfer c = {.bytes = bytes, .from = from, .to = to, .flags = TRANSFER_ASYNC};
    OK(timeline_transfer(s->t, &c, &id));
    return id;
}

static void copies(struct scene *s, const struct program *p)
{
    if (p->copy > 0) {
        call(s, "cudaMemcpyAsync", 2);
        work(s, EVENT_COPY, "HtoD", transfer(s, MIB, MEMORY_PINNED, MEMORY_DEVICE), p->gap,
             p->copy);
    }
    if (p->pageable > 0) {
        call(s, "cudaMemcpyAsync", 2);
        work(s, EVENT_COPY, "HtoD", transfer(s, MIB, MEMORY_PAGEABLE, MEMORY_DEVICE), p->gap,
             p->pageable);
    }
    if (p->set_rate > 0) {
        uint64_t bytes = 512 * (uint64_t)MIB;
        call(s, "cudaMemsetAsync", 2);
        work(s, EVENT_SET, "memset", transfer(s, bytes, 0, MEMORY_DEVICE), p->gap,
             1e6 * (double)bytes / p->set_rate);
    }
}

static void graph(struct scene *s, const struct program *p)
{
    uint32_t shape;
    char name[32];
    OK(timeline_shape(s->t, &(struct kernel_shape){.graph = 9}, &shape));
    call(s, "cudaGraphLaunch", 5);
    for (int i = 0; i < p->in_graph; i++) {
        snprintf(name, sizeof name, "small_%d", i);
        work(s, EVENT_KERNEL, name, shape, 0.03, 3);
    }
}

static void one_kernel(struct scene *s, const struct program *p, int i)
{
    char name[32];
    bool activation = i % 4 == 1 && i / 4 < p->activations;
    bool product = i % 4 == 0 && i / 4 < p->activations;
    if (i == 10 && p->late > 0) {
        s->host = s->device + ns(p->late);
        if (p->overhead > 0)
            host_event(s, EVENT_OVERHEAD, "buffer flush", s->device, s->device + ns(p->overhead),
                       0);
    }
    call(s, "cudaLaunchKernel", p->launch);
    snprintf(name, sizeof name, "%s_%d",
             i >= KERNELS - p->transposes ? "transpose"
             : activation                 ? "silu"
             : product                    ? "gemm"
                                          : "layer",
             i);
    if (p->slow_launches) s->device = s->host;
    work(s, EVENT_KERNEL, name, TRACE_NONE, p->gap, activation ? p->kernel / 3 : p->kernel);
}

static void step(struct scene *s, const struct program *p)
{
    /* The host is a step ahead unless something makes it wait. */
    if (!p->slow_launches && p->wait <= 0 && p->allocation <= 0 && s->host < s->device - ns(900))
        s->host = s->device - ns(900);
    copies(s, p);
    for (int i = 0; i < KERNELS; i++) one_kernel(s, p, i);
    if (p->in_graph > 0) graph(s, p);
    if (p->wait > 0) {
        host_event(s, EVENT_SYNC, "cudaStreamSynchronize", s->host, s->device + ns(p->wait), 0);
        s->host = s->device + ns(p->wait);
    }
    if (p->allocation > 0) {
        s->host = s->device;
        call(s, "cudaMalloc", p->allocation);
    }
}

/* The first `n` steps are another program's: one that warms up. */
static struct timeline *build_after(const struct program *first, int n, const struct program *p,
                                    int steps)
{
    struct scene s = {.device = 5000000};
    uint16_t index;
    OK(timeline_create(&s.t));
    OK(timeline_add_process(s.t, &(struct trace_process){.pid = 7, .level = TRACE_GRAPH}, &index));
    OK(timeline_add_device(
        s.t,
        &(struct trace_device){.sm_count = 132, .name = TRACE_NONE, .memory_bandwidth = 3.35e12},
        &index));
    for (int i = 0; i < steps; i++) step(&s, i < n ? first : p);
    OK(timeline_finish(s.t));
    return s.t;
}

static struct timeline *build(const struct program *p, int steps)
{
    return build_after(p, 0, p, steps);
}

static const struct program clean = {.kernel = 20, .launch = 3, .gap = 0.2, .copy = 5};

/* ---- running ---- */

static void advise(const struct program *p, double inflation, struct rules_report *report)
{
    struct timeline *t = build(p, STEPS);
    struct trace_window_set windows = {0};
    OK(trace_windows_find(t, NULL, &windows));
    assert_true(windows.count >= STEPS - 2);
    struct rules_input input = {.timeline = t, .windows = &windows, .inflation = inflation};
    OK(rules_run(&input, NULL, report));
    trace_windows_free(&windows);
    timeline_destroy(t);
}

static void assert_fires(const struct rules_report *r, const char *rule)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->findings[i].rule->name, rule) != 0)
            fail_msg("%s fired, not %s: %s", r->findings[i].rule->name, rule, r->findings[i].text);
    if (r->count == 0) fail_msg("%s did not fire", rule);
    assert_non_null(rule_find(rule));
    assert_true(strlen(r->todo) > 0 && strlen(r->findings[0].text) > 0);
    assert_true(json_object_size(r->findings[0].evidence) > 0);
}

/* The one rule fires, with this ceiling (us of a step, within 5 %). */
static void planted(const char *rule, const struct program *p, double ceiling)
{
    struct rules_report r;
    advise(p, 0.01, &r);
    assert_fires(&r, rule);
    assert_int_equal(r.count, 1);
    double us = r.findings[0].ceiling_ns / 1000;
    if (fabs(us - ceiling) > 0.05 * ceiling + 0.01) fail_msg("%s: ceiling %g us", rule, us);
    assert_float_equal(r.findings[0].likely_ns, r.findings[0].ceiling_ns / 2, 1e-6);
    rules_report_free(&r);
}

static void test_clean(void **state)
{
    (void)state;
    struct rules_report r;
    advise(&clean, 0.01, &r);
    if (r.count) fail_msg("%s fired: %s", r.findings[0].rule->name, r.findings[0].text);
    assert_false(r.invalid);
    assert_null(r.withheld);
    /* busy and idle add up, and idle is all accounted for */
    double sum =
        r.idle_tracer + r.idle_alloc + r.idle_sync + r.idle_host + r.idle_launch + r.idle_other;
    assert_float_equal(r.busy_ns, 805000, 1);
    assert_float_equal(r.busy_ns + sum, r.window_ns, 1);
    rules_report_free(&r);
}

/* Code that is loaded in the first steps is no fault of the steady state, but the same later on is.
 */
static void test_warmup(void **state)
{
    (void)state;
    struct program loading = clean;
    loading.allocation = 5000;
    for (int late = 0; late < 2; late++) {
        struct rules_report r;
        struct trace_window_set windows = {0};
        struct timeline *t =
            late ? build_after(&clean, 10, &loading, 40) : build_after(&loading, 3, &clean, 40);
        OK(trace_windows_find(t, NULL, &windows));
        struct rules_input input = {.timeline = t, .windows = &windows, .inflation = 0.01};
        OK(rules_run(&input, NULL, &r));
        if (late) assert_fires(&r, "alloc_jit");
        if (!late && r.count)
            fail_msg("%s fired: %s", r.findings[0].rule->name, r.findings[0].text);
        assert_int_equal(r.warmups > 0, !late);
        assert_in_range(r.steps + r.warmups, 37, 40);
        rules_report_free(&r);
        trace_windows_free(&windows);
        timeline_destroy(t);
    }
}

static void test_gaps(void **state)
{
    (void)state;
    struct program p = clean;
    p.late = 40; /* then 3 us for the call and 0.5 until it starts */
    planted("gap.host", &p, 43.5);
    p.overhead = 10;
    planted("gap.host", &p, 33.5);
    p = clean;
    p.gap = 1.2;
    planted("gap.launch", &p, 41 * 1.2);
    p = clean;
    p.slow_launches = true;
    p.kernel = 6, p.launch = 10, p.copy = 0;
    /* busy 240 of 400 us, calls 400 us */
    planted("launch_bound", &p, 160);
    p = clean;
    p.wait = 50;
    planted("sync", &p, 50);
    p = clean;
    p.allocation = 60;
    planted("alloc_jit", &p, 60);
}

/* A step that is a graph already is not told to become one. */
static void test_gap_before_graph(void **state)
{
    (void)state;
    struct program p = clean;
    struct rules_report r;
    const char *next = NULL;
    p.late = 40, p.kernel = 2, p.launch = 1, p.in_graph = 60;
    advise(&p, 0.01, &r);
    for (size_t i = 0; i < r.count; i++)
        if (strcmp(r.findings[i].rule->name, "gap.host") == 0) {
            next = json_string_value(json_object_get(r.findings[i].evidence, "todo"));
            assert_non_null(strstr(r.findings[i].text, "runs as a CUDA graph; 40.0 copies"));
        }
    assert_non_null(next);
    assert_null(strstr(next, "a CUDA graph of the step"));
    rules_report_free(&r);
    p.in_graph = 0, p.kernel = 20;
    advise(&p, 0.01, &r);
    assert_fires(&r, "gap.host");
    assert_non_null(strstr(r.todo, "a CUDA graph of the step"));
    rules_report_free(&r);
}

static void test_work(void **state)
{
    (void)state;
    struct program p = clean;
    p.pageable = 30;
    planted("pageable", &p, 30);
    p = clean;
    p.in_graph = 60;
    planted("tiny_kernels", &p, 177);
    p = clean;
    p.activations = 8;
    planted("unfused", &p, 8 * 20 / 3.0);
    p = clean;
    p.transposes = 3;
    planted("quant_transpose", &p, 60);
    p.gap = -5; /* each starts before the previous one ends, and waits within */
    planted("quant_transpose", &p, 45);

    struct rules_report r;
    p.transposes = 6;
    advise(&p, 0.01, &r);
    assert_fires(&r, "quant_transpose");
    assert_true(r.invalid);
    rules_report_free(&r);

    p = clean;
    p.set_rate = 3e12;
    advise(&p, 0.01, &r);
    assert_int_equal(r.count, 0);
    rules_report_free(&r);
    p.set_rate = 4e12;
    advise(&p, 0.01, &r);
    assert_fires(&r, "impossible");
    assert_true(r.invalid);
    rules_report_free(&r);
}

static void test_withheld(void **state)
{
    (void)state;
    struct program p = clean;
    struct rules_report r;
    p.late = 40;
    advise(&p, 0.06, &r);
    assert_int_equal(r.count, 0);
    assert_non_null(r.withheld);
    assert_non_null(strstr(r.todo, "--level launch"));
    rules_report_free(&r);
    /* what the device itself did is judged all the same */
    p.pageable = 30;
    advise(&p, 0.06, &r);
    assert_fires(&r, "pageable");
    rules_report_free(&r);
    advise(&p, (double)NAN, &r);
    assert_int_equal(r.count, 2);
    assert_true(r.findings[0].likely_ns >= r.findings[1].likely_ns);
    assert_float_equal(r.ceiling_ns, r.findings[0].ceiling_ns + r.findings[1].ceiling_ns, 1e-6);
    rules_report_free(&r);
}

static void test_gates(void **state)
{
    (void)state;
    const struct rules_violation v = {"fused_moe", "expected kernel fused_moe did not run"};
    struct rules_input input = {.violations = &v, .n_violations = 1};
    struct rules_report r;
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "expected");
    assert_true(r.invalid);
    assert_string_equal(r.findings[0].subject, "fused_moe");
    rules_report_free(&r);
    OK(rules_run(&(struct rules_input){0}, NULL, &r));
    assert_int_equal(r.count, 0);
    rules_report_free(&r);
}

/* ---- counters ---- */

static struct kernel_counters good_kernel(void)
{
    struct kernel_counters k;
    static char name[] = "gemm_128x64";
    kernel_counters_init(&k);
    k.name = name;
    k.duration_ns = 50000;
    k.sm = 45, k.memory = 88, k.l1 = 40, k.l2 = 60, k.dram = 88;
    k.occupancy = 85, k.occupancy_limit = 90, k.issue_active = 0.85;
    k.stalls[STALL_LONG_SCOREBOARD] = 5, k.stalls[STALL_WAIT] = 3;
    k.bytes_per_sector = 32, k.sectors = 1e6, k.local_sectors = 0;
    k.wavefronts = 1e6, k.conflicts = 1e4, k.waves = 30.5;
    return k;
}

static void judge(const struct kernel_counters *k, struct rules_report *r)
{
    struct counters list = {0};
    OK(counters_add(&list, k));
    OK(rules_run(&(struct rules_input){.counters = &list}, NULL, r));
    counters_free(&list);
}

static void planted_counter(const char *rule, const struct kernel_counters *k, double part)
{
    struct rules_report r;
    judge(k, &r);
    assert_fires(&r, rule);
    assert_float_equal(r.findings[0].ceiling_ns, part * k->duration_ns, 1);
    rules_report_free(&r);
}

static void test_counters(void **state)
{
    (void)state;
    struct rules_report r;
    struct kernel_counters k = good_kernel();
    judge(&k, &r);
    if (r.count) fail_msg("%s fired: %s", r.findings[0].rule->name, r.findings[0].text);
    rules_report_free(&r);
    k.memory = 70;
    planted_counter("sol", &k, 0.30);
    k = good_kernel();
    k.issue_active = 0.3, k.stalls[STALL_LONG_SCOREBOARD] = 7; /* 7 of 10; at most 1 - 0.88 */
    planted_counter("stall", &k, 0.12);
    k = good_kernel();
    k.waves = 2.3;
    planted_counter("tail", &k, 1 / 3.0);
    k = good_kernel();
    k.bytes_per_sector = 8;
    planted_counter("uncoalesced", &k, 0.75 * 0.60);
    k = good_kernel();
    k.conflicts = 5e5;
    planted_counter("bank", &k, 0.5 * 0.40);
    k = good_kernel();
    k.local_sectors = 1e5;
    planted_counter("spill", &k, 0.1);
    /* occupancy is judged for kernels bound by latency, which sol points out too: counted once */
    k = good_kernel();
    k.sm = 30, k.memory = 40, k.occupancy = 20, k.occupancy_limit = 50;
    judge(&k, &r);
    assert_int_equal(r.count, 2);
    assert_true(r.findings[0].counted && !r.findings[1].counted);
    assert_string_equal(r.findings[1].covered_by, r.findings[0].rule->name);
    assert_float_equal(r.ceiling_ns, 0.6 * 50000, 1);
    rules_report_free(&r);
    /* nothing known, nothing said */
    kernel_counters_init(&k);
    k.name = (char *)(uintptr_t) "x";
    k.duration_ns = 1000;
    judge(&k, &r);
    assert_int_equal(r.count, 0);
    rules_report_free(&r);
}

static void test_counters_merge(void **state)
{
    (void)state;
    struct counters list = {0};
    struct kernel_counters k = good_kernel();
    OK(counters_add(&list, &k));
    k.duration_ns = 150000, k.sm = 5, k.flops = 9;
    OK(counters_add(&list, &k));
    assert_int_equal(list.count, 1);
    const struct kernel_counters *m = counters_find(&list, k.name);
    assert_int_equal(m->calls, 2);
    assert_float_equal(m->duration_ns, 100000, 1e-6);
    assert_float_equal(m->sm, (45 * 50.0 + 5 * 150.0) / 200, 1e-9); /* weighted by time */
    assert_float_equal(m->flops, 9, 1e-9);
    assert_true(isnan(m->tensor));
    counters_free(&list);
}

/* ---- kernels of a stored run ---- */

static struct store_kernel stored(const char *op, double total_us, double limit_us)
{
    return (struct store_kernel){.metric = "tg128",
                                 .phase = "decode",
                                 .layer = -1,
                                 .op = op,
                                 .variant = op,
                                 .calls = 1000,
                                 .expected = 1000,
                                 .calls_per_token = 10,
                                 .total_ns = 1000 * total_us,
                                 .limit_ns = 1000 * limit_us,
                                 .bytes = 40 * limit_us,
                                 .flops = 1};
}

static void test_kernels(void **state)
{
    (void)state;
    struct store_kernel k[] = {stored("gemm", 10000, 9900), stored("moe_up", 10000, 9900)};
    struct rules_input input = {.kernels = k, .n_kernels = 2};
    struct rules_report r;
    OK(rules_run(&input, NULL, &r));
    assert_int_equal(r.count, 0);
    rules_report_free(&r);

    k[1].limit_ns /= 2;
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "distance");
    assert_float_equal(r.findings[0].ceiling_ns, 50500, 1); /* of one token, of a hundred */
    assert_float_equal(r.findings[0].window_ns, 200000, 1);
    assert_non_null(strstr(r.findings[0].subject, "moe_up"));
    rules_report_free(&r);

    /* the same time, for a reason that is known better */
    const struct rules_experts experts = {"tg128", 4, 20};
    input.experts = &experts, input.n_experts = 1;
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "imbalance");
    assert_float_equal(r.ceiling_ns, 50500, 1);
    rules_report_free(&r);
    input.n_experts = 0;

    /* 2000 loops of 4 us are 8 of 20 ms, and no longer the kernels' distance */
    k[0].limit_ns = k[1].limit_ns = 6e6;
    input.wakeup_ns = 4000;
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "wakeup");
    assert_float_equal(r.ceiling_ns, 80000, 1);
    rules_report_free(&r);
    input.wakeup_ns = 20000; /* calls of 10 us wake nobody */
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "distance");
    k[0].limit_ns = k[1].limit_ns = 9.9e6;
    rules_report_free(&r);
    input.wakeup_ns = 0;

    k[0].bytes = 1e10;
    k[0].total_ns /= 2;
    OK(rules_run(&input, NULL, &r));
    assert_fires(&r, "impossible");
    rules_report_free(&r);
}

static void test_table(void **state)
{
    (void)state;
    static const char *const names[] = {
        "gap.host",  "gap.launch", "launch_bound", "tiny_kernels",    "sync",     "pageable",
        "alloc_jit", "sol",        "occupancy",    "stall",           "tail",     "uncoalesced",
        "bank",      "spill",      "unfused",      "quant_transpose", "expected", "impossible"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_non_null(rule_find(names[i]));
    assert_null(rule_find("nothing"));
    for (size_t i = 0; i < rule_count; i++) {
        const struct rule *rule = &rule_table[i];
        assert_true(rule->fires && rule->gain && rule->next && rule->find);
        assert_ptr_equal(rule_find(rule->name), rule);
    }
}

/* 2 million kernels with their calls. */
static void test_size(void **state)
{
    (void)state;
    enum { LIMIT_SECONDS = 10, GIB = 1 << 30 };
    /* In a processor's seconds, as other programs may run beside. */
    bool watched = getenv("SOL_SANITIZED") || getenv("SOL_EMULATED");
    struct program p = clean;
    p.late = 40;
    struct timeline *t = build(&p, watched ? 2000 : 2000000 / KERNELS);
    struct trace_window_set windows = {0};
    struct rules_report r;
    OK(trace_windows_find(t, NULL, &windows));
    clock_t start = clock();
    OK(rules_run(&(struct rules_input){.timeline = t, .windows = &windows}, NULL, &r));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_fires(&r, "gap.host");
    printf("%zu events: %.2f s, %.0f MiB\n", t->count, seconds, (double)memory_peak_rss() / MIB);
    assert_true(watched || seconds < LIMIT_SECONDS);
    assert_true(watched || memory_peak_rss() < GIB);
    rules_report_free(&r);
    trace_windows_free(&windows);
    timeline_destroy(t);
}

/* What is printed for the largest kernels: five of seven, the longest first, with the sentence that
 * its counters call for. */
static void test_largest(void **state)
{
    (void)state;
    struct counters list = {0};
    static char names[7][24] = {"full", "busy", "few", "waits", "small", "bare", "idle"};
    for (int i = 0; i < 7; i++) {
        struct kernel_counters k = good_kernel();
        k.name = names[i];
        k.duration_ns = 7e4 - 1e4 * i;
        k.flops = 1e6, k.dram_bytes = 5e5;
        if (i == 1) k.sm = 92, k.memory = 20;
        if (i >= 2) k.sm = 20, k.memory = 30;
        if (i == 2) k.occupancy = 23, k.occupancy_limit = 25;
        if (i == 4) k.waves = 0.25;
        OK(counters_add(&list, &k));
    }
    json_t *json = largest_json(&list);
    static const char *const says[] = {"memory is at its limit", "compute is at its limit",
                                       "too few warps to hide that waiting for memory beyond L1",
                                       "waiting for memory beyond L1 for 6", "it fills 25 %"};
    assert_int_equal(json_array_size(json), LARGEST_KERNELS);
    for (size_t i = 0; i < LARGEST_KERNELS; i++) {
        const json_t *one = json_array_get(json, i);
        const char *so = json_string_value(json_object_get(one, "so"));
        assert_string_equal(json_string_value(json_object_get(one, "kernel")), names[i]);
        if (!strstr(so, says[i])) fail_msg("%s: %s", names[i], so);
        assert_true(fabs(json_number_value(json_object_get(one, "flop_per_byte")) - 2) < 1e-9);
    }
    const json_t *stall = json_array_get(json_object_get(json_array_get(json, 3), "stalls"), 0);
    assert_string_equal(json_string_value(json_object_get(stall, "reason")), "long_scoreboard");
    assert_true(fabs(json_number_value(json_object_get(stall, "share")) - 0.625) < 1e-9);
    json_decref(json);
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    largest_print(&list, to);
    fclose(to);
    assert_non_null(strstr(text, "the 5 kernels that take most time:\n1. full\n"));
    assert_non_null(strstr(text, "roofline   compute 45 %, memory 88 % of their speed of light, 2 "
                                 "FLOP a byte: bound by memory\n"));
    assert_non_null(strstr(text, "stalls     62 % waiting for memory beyond L1, 38 % fixed"));
    free(text);
    counters_free(&list);
    /* Names and times are all that some counters say. */
    struct kernel_counters k;
    kernel_counters_init(&k);
    k.name = names[0];
    OK(counters_add(&list, &k));
    json = largest_json(&list);
    assert_true(json_is_null(json_object_get(json_array_get(json, 0), "compute_percent")));
    json_decref(json);
    counters_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),          cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_gaps),           cmocka_unit_test(test_gap_before_graph),
        cmocka_unit_test(test_work),           cmocka_unit_test(test_withheld),
        cmocka_unit_test(test_gates),          cmocka_unit_test(test_counters),
        cmocka_unit_test(test_counters_merge), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_table),          cmocka_unit_test(test_size),
        cmocka_unit_test(test_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
