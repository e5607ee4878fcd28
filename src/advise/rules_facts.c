/* One walk over the device's work of every step: where it was idle, and why; a second one for small
 * kernels, once it is known which of them other rules have claimed. Gaps come in ascending order,
 * so every list of host intervals is walked once with it: the whole is linear but for one sort. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
#include "trace/communication.h"
#include "trace/spans.h"

enum {
    NULL_GAP_NS = 1000,
    SMALL_NS = 5000,
    LARGE_COPY = 256 << 20, /* bytes: no cache holds it */
    STREAMS_MAX = 64,
};

/* ---- what the walk needs ---- */

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory to look for advice in a trace");
}

enum name_class { NAME_NEW, NAME_PLAIN, NAME_SYNC, NAME_ALLOC };

struct call {
    uint64_t key; /* process, correlation */
    uint32_t event;
};

struct stream {
    uint32_t track, process_context;
    uint32_t gemm; /* string: the matrix product that ran last; TRACE_NONE: something else did */
};

struct walk {
    const struct timeline *t;
    struct step_facts *f;
    struct rules_report *report; /* the longest gaps go there */
    uint16_t device;
    int64_t null_gap;
    double peak;
    uint8_t *categories; /* [strings + 1]: enum kernel_category + 1 */
    uint8_t *classes;    /* [strings + 1]: enum name_class */
    struct call *calls;
    size_t n_calls;
    struct spans tracer, alloc, sync, blocked;
    int64_t *host_times, *alloc_times, *sync_times, *quantize_times, *unfused_times, *small_times;
    struct stream streams[STREAMS_MAX];
    size_t n_streams;
    uint64_t last_key;
    struct trace_event previous; /* that ended last on the device */
    bool has_previous;
};

static enum name_class class_of(struct walk *w, uint32_t name)
{
    static const char *const alloc[] = {"Malloc",       "MemAlloc",     "Free",       "MemFree",
                                        "HostAlloc",    "HostRegister", "ModuleLoad", "LibraryLoad",
                                        "LinkComplete", "MemCreate"};
    size_t slot = name == TRACE_NONE ? timeline_string_count(w->t) : name;
    if (w->classes[slot] != NAME_NEW) return (enum name_class)w->classes[slot];
    const char *text = timeline_text(w->t, name);
    enum name_class class = NAME_PLAIN;
    if (strstr(text, "Synchronize")) class = NAME_SYNC;
    for (size_t i = 0; i < sizeof alloc / sizeof *alloc; i++)
        if (strstr(text, alloc[i]) && !strstr(text, "Async")) class = NAME_ALLOC;
    w->classes[slot] = (uint8_t) class;
    return class;
}

static enum kernel_category category(struct walk *w, uint32_t name)
{
    size_t slot = name == TRACE_NONE ? timeline_string_count(w->t) : name;
    if (w->categories[slot] == 0)
        w->categories[slot] = (uint8_t)(category_of(timeline_text(w->t, name)) + 1);
    return (enum kernel_category)(w->categories[slot] - 1);
}

static uint64_t event_key(const struct trace_event *e)
{
    return (uint64_t)e->process << 32 | e->correlation;
}

static int by_key(const void *a, const void *b)
{
    const struct call *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? 1 : -1;
    return (x->event > y->event) - (x->event < y->event);
}

/* The call that started this work: of nested ones the outermost, which came first. NULL: unknown.
 */
static const struct trace_event *call_of(const struct walk *w, const struct trace_event *e)
{
    uint64_t key = event_key(e);
    size_t low = 0, high = w->n_calls;
    if (e->correlation == 0) return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->calls[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->n_calls && w->calls[low].key == key ? &w->t->events[w->calls[low].event] : NULL;
}

static uint32_t graph_of(const struct walk *w, const struct trace_event *e)
{
    const struct kernel_shape *shape = timeline_event_shape(w->t, e);
    const struct transfer *transfer = timeline_event_transfer(w->t, e);
    return shape ? shape->graph : transfer ? transfer->graph : 0;
}

/* ---- setting up ---- */

/* Overhead on a thread that makes no calls, such as the tracer's own, holds nobody up. */
static bool thread_calls(const uint64_t *threads, size_t n, const struct trace_event *e)
{
    uint64_t key = (uint64_t)e->process << 32 | e->track;
    for (size_t i = n; i-- > 0;)
        if (threads[i] == key) return true;
    return false;
}

static enum sol_status gather(struct walk *w)
{
    enum { THREADS_MAX = 512 };
    const struct timeline *t = w->t;
    uint64_t threads[THREADS_MAX];
    size_t n_threads = 0;
    bool sorted = true;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind != EVENT_API) continue;
        if (n_threads < THREADS_MAX && !thread_calls(threads, n_threads, e))
            threads[n_threads++] = (uint64_t)e->process << 32 | e->track;
        if (e->correlation) w->n_calls++;
    }
    w->calls = malloc((w->n_calls + 1) * sizeof *w->calls);
    if (!w->calls) return no_memory();
    w->n_calls = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        enum name_class class = e->kind == EVENT_API ? class_of(w, e->name) : NAME_PLAIN;
        if (e->kind == EVENT_API && e->correlation) {
            w->calls[w->n_calls++] = (struct call){event_key(e), (uint32_t)i};
            if (w->n_calls > 1 && w->calls[w->n_calls - 1].key < w->calls[w->n_calls - 2].key)
                sorted = false;
        }
        if (e->kind == EVENT_OVERHEAD && thread_calls(threads, n_threads, e))
            SOL_TRY(spans_add(&w->tracer, e->start, e->end, e->name));
        if (e->kind == EVENT_LOAD || class == NAME_ALLOC)
            SOL_TRY(spans_add(&w->alloc, e->start, e->end, e->name));
        if (e->kind == EVENT_SYNC || class == NAME_SYNC) {
            SOL_TRY(spans_add(&w->sync, e->start, e->end, e->name));
            SOL_TRY(spans_add(&w->blocked, e->start, e->end, e->name));
        }
    }
    if (!sorted) qsort(w->calls, w->n_calls, sizeof *w->calls, by_key);
    SOL_TRY(spans_subtract(&w->sync, &w->alloc));
    SOL_TRY(spans_subtract(&w->sync, &w->tracer));
    return spans_subtract(&w->alloc, &w->tracer);
}

static enum sol_status walk_init(struct walk *w)
{
    size_t n = timeline_string_count(w->t) + 1;
    w->categories = calloc(n, 1);
    w->classes = calloc(n, 1);
    int64_t **times[] = {&w->host_times,     &w->alloc_times,   &w->sync_times,
                         &w->quantize_times, &w->unfused_times, &w->small_times};
    bool all = w->categories && w->classes;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        *times[i] = calloc(n, sizeof **times[i]);
        all = all && *times[i];
    }
    return all ? gather(w) : no_memory();
}

static void walk_free(struct walk *w)
{
    free(w->categories);
    free(w->classes);
    free(w->calls);
    free(w->tracer.items);
    free(w->alloc.items);
    free(w->sync.items);
    free(w->blocked.items);
    free(w->host_times);
    free(w->alloc_times);
    free(w->sync_times);
    free(w->quantize_times);
    free(w->unfused_times);
    free(w->small_times);
}

/* The string with the largest time; TRACE_NONE when there is none. */
static uint32_t longest(const struct walk *w, const int64_t *times)
{
    uint32_t best = TRACE_NONE;
    for (uint32_t i = 0; i < timeline_string_count(w->t); i++)
        if (times[i] > 0 && (best == TRACE_NONE || times[i] > times[best])) best = i;
    return best;
}

static void add_time(int64_t *times, uint32_t name, int64_t ns)
{
    if (name != TRACE_NONE) times[name] += ns;
}

/* ---- gaps ---- */

static void note_gap(struct walk *w, int64_t start, int64_t end, const struct trace_event *next,
                     const char *cause)
{
    struct rules_report *r = w->report;
    double ns = (double)(end - start);
    size_t at = r->n_gaps;
    while (at > 0 && r->gaps[at - 1].ns < ns) at--;
    if (at == RULES_GAPS_MAX) return;
    if (r->n_gaps < RULES_GAPS_MAX) r->n_gaps++;
    memmove(&r->gaps[at + 1], &r->gaps[at], (r->n_gaps - 1 - at) * sizeof *r->gaps);
    const char *after = w->has_previous ? timeline_text(w->t, w->previous.name) : "";
    r->gaps[at] = (struct rules_gap){ns, after, timeline_text(w->t, next->name), cause};
}

/* The device did nothing in [start, end), then `next` began. What the host was doing meanwhile only
 * matters where the launch was late. */
static void add_gap(struct walk *w, int64_t start, int64_t end, const struct trace_event *next)
{
    struct step_facts *f = w->f;
    const struct trace_event *call = call_of(w, next);
    bool same_run =
        w->has_previous && graph_of(w, next) && event_key(&w->previous) == event_key(next);
    if (same_run || !call || call->start < start) {
        bool latency = end - start < 2 * w->null_gap;
        *(latency ? &f->launch : &f->other) += end - start;
        f->launch_gaps += latency;
        note_gap(w, start, end, next,
                 latency ? "latency between kernels" : "began late, though launched in time");
        return;
    }
    int64_t tracer = spans_overlap(&w->tracer, start, end, NULL, NULL);
    int64_t alloc = spans_overlap(&w->alloc, start, end, w->alloc_times, &f->allocs);
    int64_t sync = spans_overlap(&w->sync, start, end, w->sync_times, NULL);
    int64_t rest = end - start - tracer - alloc - sync;
    f->tracer += tracer;
    f->alloc += alloc;
    f->sync += sync;
    f->host += rest;
    f->host_gaps += rest > 0;
    add_time(w->host_times, next->name, rest);
    const int64_t parts[] = {rest, sync, alloc, tracer};
    static const char *const causes[] = {"the host launched late", "the host waited for the device",
                                         "allocation or loading", "the tracer"};
    size_t most = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
        if (parts[i] > parts[most]) most = i;
    note_gap(w, start, end, next, causes[most]);
}

/* ---- works ---- */

static struct stream *stream_of(struct walk *w, const struct trace_event *e)
{
    uint32_t pair = (uint32_t)e->process << 16 | e->context;
    for (size_t i = 0; i < w->n_streams; i++)
        if (w->streams[i].track == e->track && w->streams[i].process_context == pair)
            return &w->streams[i];
    size_t at = w->n_streams < STREAMS_MAX ? w->n_streams++ : 0;
    w->streams[at] = (struct stream){e->track, pair, TRACE_NONE};
    return &w->streams[at];
}

enum claim { CLAIM_NONE, CLAIM_QUANTIZE, CLAIM_TRANSPOSE, CLAIM_UNFUSED, CLAIM_COMMUNICATION };

/* Which rule may claim this kernel; *before is the matrix product that it follows. */
static enum claim claim_of(struct walk *w, const struct trace_event *e, uint32_t *before)
{
    struct stream *stream = stream_of(w, e);
    enum kernel_category c = e->kind == EVENT_KERNEL ? category(w, e->name) : CATEGORY_OTHER;
    *before = stream->gemm;
    stream->gemm = c == CATEGORY_GEMM ? e->name : TRACE_NONE;
    if (e->kind != EVENT_KERNEL) return CLAIM_NONE;
    if (c == CATEGORY_QUANTIZE) return CLAIM_QUANTIZE;
    if (c == CATEGORY_TRANSPOSE) return CLAIM_TRANSPOSE;
    if (c == CATEGORY_COMMUNICATION) return CLAIM_COMMUNICATION;
    bool light = c == CATEGORY_ELEMENTWISE || c == CATEGORY_NORM || c == CATEGORY_COPY;
    return light && *before != TRACE_NONE ? CLAIM_UNFUSED : CLAIM_NONE;
}

/* The time that a work adds to what the device had done until then. A kernel that starts early, to
 * wait for the previous one within (programmatic dependent launch), is not slow for that. */
static int64_t own_time(const struct trace_event *e, int64_t until)
{
    int64_t from = e->start > until ? e->start : until;
    return e->end > from ? e->end - from : 0;
}

static void count_kernel(struct walk *w, const struct trace_event *e, int64_t time)
{
    struct step_facts *f = w->f;
    uint32_t before;
    enum claim claim = claim_of(w, e, &before);
    if (e->kind != EVENT_KERNEL) return;
    f->kernels++;
    f->kernel_time += time;
    if (claim == CLAIM_QUANTIZE) f->quantize += time;
    if (claim == CLAIM_TRANSPOSE) f->transpose += time;
    if (claim == CLAIM_QUANTIZE || claim == CLAIM_TRANSPOSE)
        add_time(w->quantize_times, e->name, time);
    if (claim == CLAIM_UNFUSED) {
        f->unfused += time;
        f->unfused_count++;
        add_time(w->unfused_times, e->name, time);
        if (f->unfused_before == TRACE_NONE) f->unfused_before = before;
    }
}

static void count_copy(struct walk *w, const struct trace_event *e)
{
    const struct transfer *c = timeline_event_transfer(w->t, e);
    struct step_facts *f = w->f;
    int64_t time = e->end - e->start;
    if (!c || (e->kind != EVENT_COPY && e->kind != EVENT_SET)) return;
    bool pageable = c->from == MEMORY_PAGEABLE || c->to == MEMORY_PAGEABLE;
    if (e->kind == EVENT_COPY && pageable && (c->flags & TRANSFER_ASYNC)) {
        f->pageable += time;
        f->pageable_count++;
        f->pageable_bytes += c->bytes;
    }
    bool within = c->to == MEMORY_DEVICE && !(c->flags & TRANSFER_PEER) &&
                  (e->kind == EVENT_SET || c->from == MEMORY_DEVICE);
    if (!within || c->bytes < LARGE_COPY || time <= 0 || !(w->peak > 0)) return;
    double bytes = (double)c->bytes * (e->kind == EVENT_COPY ? 2 : 1);
    double rate = bytes / (double)time * 1e9;
    if (rate <= f->fastest_copy) return;
    f->fastest_copy = rate;
    f->fastest_bytes = c->bytes;
    f->fastest_peak = w->peak;
}

static void count_call(struct walk *w, const struct trace_event *e)
{
    const struct trace_event *call = call_of(w, e);
    if (!call || event_key(e) == w->last_key) return;
    w->last_key = event_key(e);
    w->f->launch_calls++;
    w->f->launch_calls_time += call->end - call->start;
}

static bool works_here(const struct walk *w, const struct trace_event *e)
{
    return event_on_device(e->kind) && e->device == w->device;
}

static void walk_step(struct walk *w, int64_t begin, int64_t end)
{
    const struct timeline *t = w->t;
    struct step_facts *f = w->f;
    int64_t until = begin;
    size_t i = timeline_lower_bound(t, begin);
    for (; i < t->count && t->events[i].start <= end; i++) {
        const struct trace_event *e = &t->events[i];
        if (!works_here(w, e)) continue;
        if (e->start > until) add_gap(w, until, e->start, e);
        if (e->start >= end) {
            until = end;
            break;
        }
        int64_t last = e->end < end ? e->end : end, own = own_time(e, until);
        if (last > until) f->busy += last - (e->start > until ? e->start : until);
        if (e->end > until || !w->has_previous) w->previous = *e;
        w->has_previous = true;
        if (last > until) until = last;
        f->works++;
        if (e->kind == EVENT_GRAPH || graph_of(w, e))
            f->graph_time += e->end - e->start;
        else
            f->outside_graphs++;
        count_call(w, e);
        count_copy(w, e);
        count_kernel(w, e, own);
    }
    f->window += end - begin;
    if (until < end) f->other += end - until;
    f->sync_blocked += spans_overlap(&w->blocked, begin, end, NULL, &f->syncs);
}

/* ---- small kernels ---- */

struct small_run {
    int64_t sum, longest;
};

static void end_run(struct walk *w, struct small_run *run)
{
    w->f->small_saved += run->sum - run->longest;
    *run = (struct small_run){0, 0};
}

static void small_step(struct walk *w, int64_t begin, int64_t end, bool quantize, bool unfused)
{
    const struct timeline *t = w->t;
    struct small_run run = {0, 0};
    int64_t until = begin;
    for (size_t i = timeline_lower_bound(t, begin); i < t->count && t->events[i].start < end; i++) {
        const struct trace_event *e = &t->events[i];
        if (!works_here(w, e)) continue;
        uint32_t before;
        enum claim claim = claim_of(w, e, &before);
        bool claimed = claim == CLAIM_UNFUSED ? unfused
                       : claim == CLAIM_COMMUNICATION
                           ? true /* of rule exposed, whatever they take */
                           : claim != CLAIM_NONE && quantize;
        const struct trace_event *call = graph_of(w, e) ? NULL : call_of(w, e);
        int64_t time = own_time(e, until);
        bool small = time < SMALL_NS || (call && time < call->end - call->start);
        if (e->end > until) until = e->end;
        if (e->kind != EVENT_KERNEL || claimed || !small) {
            end_run(w, &run);
            continue;
        }
        w->f->small++;
        w->f->small_time += time;
        add_time(w->small_times, e->name, time);
        run.sum += time;
        if (time > run.longest) run.longest = time;
    }
    end_run(w, &run);
}

/* ---- all of it ---- */

static struct trace_window whole(const struct walk *w)
{
    struct trace_window all = {.begin = 0, .end = 0};
    bool any = false;
    for (size_t i = 0; i < w->t->count; i++) {
        const struct trace_event *e = &w->t->events[i];
        if (!works_here(w, e)) continue;
        if (!any) all.begin = e->start;
        any = true;
        if (e->end > all.end) all.end = e->end;
    }
    return all;
}

static uint16_t busiest_device(const struct timeline *t)
{
    int64_t best = 0;
    uint16_t device = trace_first_rank(t);
    if (device != TRACE_NO_DEVICE) return device;
    for (uint16_t d = 0; d < t->n_devices; d++) {
        int64_t time = 0;
        for (size_t i = 0; i < t->count; i++)
            if (event_on_device(t->events[i].kind) && t->events[i].device == d)
                time += t->events[i].end - t->events[i].start;
        if (time > best) {
            best = time;
            device = d;
        }
    }
    return device;
}

static void walk_all(struct walk *w, const struct trace_window *windows, size_t n)
{
    struct step_facts *f = w->f;
    for (size_t i = 0; i < n; i++) walk_step(w, windows[i].begin, windows[i].end);
    double window = (double)f->window;
    bool quantize = (double)(f->quantize + f->transpose) >= rule_limit("quant_transpose") * window;
    bool unfused = (double)f->unfused >= rule_limit("unfused") * window;
    w->n_streams = 0;
    for (size_t i = 0; i < n; i++)
        small_step(w, windows[i].begin, windows[i].end, quantize, unfused);
    f->host_name = longest(w, w->host_times);
    f->alloc_name = longest(w, w->alloc_times);
    f->sync_name = longest(w, w->sync_times);
    f->quantize_name = longest(w, w->quantize_times);
    f->unfused_name = longest(w, w->unfused_times);
    f->small_name = longest(w, w->small_times);
}

/* Ranges of a program leave out what lies between two steps, the very place where a device waits
 * for its host. Steps that follow each other closely are therefore looked at from start to start.
 */
static enum sol_status close_ranges(const struct trace_window_set *set,
                                    struct trace_window **windows)
{
    *windows = calloc(set->count, sizeof **windows);
    if (!*windows) return no_memory();
    for (size_t i = 0; i < set->count; i++) {
        (*windows)[i] = set->windows[i];
        if (set->method != WINDOW_MARKER || i + 1 == set->count) continue;
        int64_t next = set->windows[i + 1].begin;
        const struct trace_window *w = &set->windows[i];
        if (next - w->end <= w->end - w->begin) (*windows)[i].end = next;
    }
    return SOL_OK;
}

/* Steps at the front in which the program still loads code, fills pools and finds its pace: up to
 * the last one of the first tenth that takes half as long again as the typical step. Steps as slow
 * as that later on belong to what the program does. */
static size_t warmup_steps(const struct trace_window_set *set, const struct trace_window *windows)
{
    size_t warmups = 0, front = set->count / 10;
    const struct trace_window *typical = &windows[set->typical];
    for (size_t i = 0; i < front; i++)
        if (2 * (windows[i].end - windows[i].begin) > 3 * (typical->end - typical->begin))
            warmups = i + 1;
    return warmups;
}

/* What ranks cost each other; where the program has none nothing. */
static enum sol_status measure_ranks(struct rules_run *run, uint16_t device)
{
    struct trace_communication c;
    struct rules_communication *own = &run->communication;
    const bool steps = run->in->windows && run->in->windows->count;
    if (run->in->n_communication) return SOL_OK; /* kept, of all steps */
    enum sol_status status = trace_communicate(run->in->timeline, run->in->windows, &c);
    own->metric = steps ? "step" : "span";
    if (status == SOL_OK && communication_figure_of(&c, device, (double)c.steps, &own->figure)) {
        run->in->communication = own;
        run->in->n_communication = 1;
    }
    trace_communication_free(&c);
    return status;
}

static void report_facts(struct rules_run *run)
{
    const struct step_facts *f = &run->facts;
    struct rules_report *r = run->report;
    double n = (double)f->steps;
    r->steps = f->steps;
    r->window_ns = (double)f->window / n;
    r->busy_ns = (double)f->busy / n;
    r->idle_ns = r->window_ns - r->busy_ns;
    r->idle_tracer = (double)f->tracer / n;
    r->idle_alloc = (double)f->alloc / n;
    r->idle_sync = (double)f->sync / n;
    r->idle_host = (double)f->host / n;
    r->idle_launch = (double)f->launch / n;
    r->idle_other = (double)f->other / n;
}

enum sol_status rules_measure(struct rules_run *run)
{
    const struct rules_input *in = run->in;
    struct step_facts *f = &run->facts;
    const struct trace_window_set *set = in->windows && in->windows->count ? in->windows : NULL;
    struct walk w = {.t = in->timeline,
                     .f = f,
                     .report = run->report,
                     .null_gap = in->null_gap_ns ? in->null_gap_ns : NULL_GAP_NS,
                     .peak = in->peaks.bytes_per_s,
                     .last_key = UINT64_MAX};
    *f = (struct step_facts){.unfused_before = TRACE_NONE, .steady = set != NULL};
    w.device = set ? set->device : busiest_device(in->timeline);
    if (w.device == TRACE_NO_DEVICE) return SOL_OK;
    if (!(w.peak > 0)) w.peak = in->timeline->devices[w.device].memory_bandwidth;
    struct trace_window *windows = NULL;
    enum sol_status status = measure_ranks(run, w.device);
    if (status == SOL_OK) status = walk_init(&w);
    if (status == SOL_OK && set) status = close_ranges(set, &windows);
    if (status == SOL_OK) {
        struct trace_window all = whole(&w);
        size_t warmups = set ? warmup_steps(set, windows) : 0;
        f->steps = set ? set->count - warmups : 1;
        run->report->warmups = warmups;
        walk_all(&w, set ? windows + warmups : &all, f->steps);
        report_facts(run);
    }
    free(windows);
    walk_free(&w);
    return status;
}
