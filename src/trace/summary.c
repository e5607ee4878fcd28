#include "trace/summary.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

struct interval {
    int64_t start, end;
};

/* Per device, while its events go by in the order of their start. */
struct lane {
    int64_t first, until; /* until: latest end so far */
    bool used;
};

struct threads {
    uint64_t *keys; /* process << 32 | thread, of those that make calls */
    size_t count, room;
};

struct work {
    const struct timeline *t;
    uint16_t device;    /* TRACE_NO_DEVICE: all */
    size_t first, last; /* events [first, last) */
    struct trace_summary *s;
    uint32_t *row_of; /* [strings]: row + 1 in kernels */
    size_t kernel_room, copy_room, host_room;
    struct lane *lanes;
    struct interval *tracer; /* disjoint, sorted */
    size_t n_tracer;
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory to summarize a trace");
}

/* ---- rows ---- */

static enum sol_status count_kernel(struct work *w, const struct trace_event *e)
{
    struct trace_summary *s = w->s;
    /* Nameless ones share the slot behind the last string. */
    size_t name = e->name == TRACE_NONE ? timeline_string_count(w->t) : e->name;
    int64_t time = e->end - e->start;
    if (w->row_of[name] == 0) {
        SOL_TRY(array_grow(&s->kernels, s->n_kernels, &w->kernel_room, sizeof *s->kernels,
                           "the summary of a trace"));
        s->kernels[s->n_kernels++] = (struct kernel_row){
            .name = e->name,
            .category =
                e->kind == EVENT_GRAPH ? CATEGORY_GRAPH : category_of(timeline_text(w->t, e->name)),
            .min = time,
        };
        w->row_of[name] = (uint32_t)s->n_kernels;
    }
    struct kernel_row *row = &s->kernels[w->row_of[name] - 1];
    row->count++;
    row->total += time;
    if (time < row->min) row->min = time;
    if (time > row->max) row->max = time;
    s->kernel_time += time;
    if (e->kind == EVENT_GRAPH)
        s->graph_count++;
    else
        s->kernel_count++;
    return SOL_OK;
}

static enum sol_status count_copy(struct work *w, const struct trace_event *e)
{
    static const struct transfer unknown;
    struct trace_summary *s = w->s;
    const struct transfer *c = timeline_event_transfer(w->t, e);
    if (!c) c = &unknown;
    size_t i = 0;
    while (i < s->n_copies && (s->copies[i].name != e->name || s->copies[i].from != c->from ||
                               s->copies[i].to != c->to))
        i++;
    if (i == s->n_copies) {
        SOL_TRY(array_grow(&s->copies, s->n_copies, &w->copy_room, sizeof *s->copies,
                           "the summary of a trace"));
        s->copies[s->n_copies++] = (struct copy_row){e->name, c->from, c->to, c->flags, 0, 0, 0};
    }
    s->copies[i].count++;
    s->copies[i].bytes += c->bytes;
    s->copies[i].total += e->end - e->start;
    return SOL_OK;
}

static enum sol_status count_host(struct work *w, const struct trace_event *e)
{
    struct trace_summary *s = w->s;
    int64_t time = e->end - e->start;
    size_t i = 0;
    while (i < s->n_host && (s->host[i].name != e->name || s->host[i].kind != e->kind)) i++;
    if (i == s->n_host) {
        SOL_TRY(array_grow(&s->host, s->n_host, &w->host_room, sizeof *s->host,
                           "the summary of a trace"));
        s->host[s->n_host++] = (struct host_row){e->name, e->kind, 0, 0, 0};
    }
    s->host[i].count++;
    s->host[i].total += time;
    if (time > s->host[i].max) s->host[i].max = time;
    return SOL_OK;
}

/* ---- the tracer's own time ---- */

static uint64_t thread_key(const struct trace_event *e)
{
    return (uint64_t)e->process << 32 | e->track;
}

static bool makes_calls(const struct threads *threads, uint64_t key)
{
    for (size_t i = threads->count; i-- > 0;)
        if (threads->keys[i] == key) return true;
    return false;
}

static enum sol_status find_callers(struct work *w, struct threads *threads)
{
    uint64_t previous = UINT64_MAX;
    for (size_t i = w->first; i < w->last; i++) {
        const struct trace_event *e = &w->t->events[i];
        if (e->kind != EVENT_API || thread_key(e) == previous) continue;
        previous = thread_key(e);
        if (makes_calls(threads, previous)) continue;
        SOL_TRY(array_grow(&threads->keys, threads->count, &threads->room, sizeof *threads->keys,
                           "the summary of a trace"));
        threads->keys[threads->count++] = previous;
    }
    return SOL_OK;
}

/* CUPTI's own thread holds nobody up; what it does on the program's threads does. */
static enum sol_status find_tracer(struct work *w)
{
    struct threads threads = {0};
    size_t room = 0;
    enum sol_status status = find_callers(w, &threads);
    for (size_t i = w->first; status == SOL_OK && i < w->last; i++) {
        const struct trace_event *e = &w->t->events[i];
        if (e->kind != EVENT_OVERHEAD || !makes_calls(&threads, thread_key(e))) continue;
        struct interval *last = w->n_tracer ? &w->tracer[w->n_tracer - 1] : NULL;
        if (last && e->start <= last->end) {
            if (e->end > last->end) last->end = e->end;
            continue;
        }
        status =
            array_grow(&w->tracer, w->n_tracer, &room, sizeof *w->tracer, "the summary of a trace");
        if (status == SOL_OK) w->tracer[w->n_tracer++] = (struct interval){e->start, e->end};
    }
    free(threads.keys);
    return status;
}

/* How much of the gap the tracer took. */
static int64_t tracer_share(const struct work *w, int64_t start, int64_t end)
{
    size_t low = 0, high = w->n_tracer; /* the first interval that ends after `start` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->tracer[middle].end <= start)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t share = 0;
    for (; low < w->n_tracer && w->tracer[low].start < end; low++) {
        int64_t from = w->tracer[low].start > start ? w->tracer[low].start : start;
        int64_t to = w->tracer[low].end < end ? w->tracer[low].end : end;
        share += to - from;
    }
    return share;
}

/* ---- busy and gaps ---- */

static void occupy(struct work *w, const struct trace_event *e)
{
    struct trace_summary *s = w->s;
    struct lane *lane = &w->lanes[e->device == TRACE_NO_DEVICE ? w->t->n_devices : e->device];
    if (!lane->used) {
        *lane = (struct lane){e->start, e->end, true};
        s->devices++;
        s->busy += e->end - e->start;
        return;
    }
    if (e->start > lane->until) {
        int64_t gap = e->start - lane->until, tracer = tracer_share(w, lane->until, e->start);
        s->gap += gap - tracer;
        s->tracer += tracer;
        s->gap_count++;
        if (gap > s->gap_max) s->gap_max = gap;
        lane->until = e->start;
    }
    if (e->end > lane->until) {
        s->busy += e->end - lane->until;
        lane->until = e->end;
    }
}

static enum sol_status count_event(struct work *w, const struct trace_event *e)
{
    if (event_on_device(e->kind) && w->device != TRACE_NO_DEVICE && e->device != w->device)
        return SOL_OK;
    if (event_on_device(e->kind)) occupy(w, e);
    switch (e->kind) {
    case EVENT_KERNEL:
    case EVENT_GRAPH:
        return count_kernel(w, e);
    case EVENT_COPY:
    case EVENT_SET:
        return count_copy(w, e);
    case EVENT_API:
    case EVENT_SYNC:
    case EVENT_LOAD:
    case EVENT_OVERHEAD:
        return count_host(w, e);
    default:
        return SOL_OK;
    }
}

static int descending(int64_t a, int64_t b)
{
    return (a < b) - (a > b);
}
static int by_kernel_time(const void *a, const void *b)
{
    return descending(((const struct kernel_row *)a)->total, ((const struct kernel_row *)b)->total);
}
static int by_copy_time(const void *a, const void *b)
{
    return descending(((const struct copy_row *)a)->total, ((const struct copy_row *)b)->total);
}
static int by_host_time(const void *a, const void *b)
{
    return descending(((const struct host_row *)a)->total, ((const struct host_row *)b)->total);
}

static enum sol_status fill(struct work *w)
{
    struct trace_summary *s = w->s;
    SOL_TRY(find_tracer(w));
    for (size_t i = w->first; i < w->last; i++) SOL_TRY(count_event(w, &w->t->events[i]));
    for (size_t i = 0; i <= w->t->n_devices; i++)
        if (w->lanes[i].used) s->span += w->lanes[i].until - w->lanes[i].first;
    if (s->n_kernels) qsort(s->kernels, s->n_kernels, sizeof *s->kernels, by_kernel_time);
    if (s->n_copies) qsort(s->copies, s->n_copies, sizeof *s->copies, by_copy_time);
    if (s->n_host) qsort(s->host, s->n_host, sizeof *s->host, by_host_time);
    return SOL_OK;
}

enum sol_status trace_summarize(const struct timeline *t, uint16_t device, int64_t begin,
                                int64_t end, struct trace_summary *out)
{
    *out = (struct trace_summary){0};
    struct work w = {.t = t,
                     .device = device,
                     .s = out,
                     .first = timeline_lower_bound(t, begin),
                     .last = timeline_lower_bound(t, end)};
    w.row_of = calloc(timeline_string_count(t) + 1, sizeof *w.row_of);
    w.lanes = calloc(t->n_devices + 1, sizeof *w.lanes);
    enum sol_status status = w.row_of && w.lanes ? fill(&w) : no_memory();
    free(w.row_of);
    free(w.lanes);
    free(w.tracer);
    return status;
}

void trace_summary_free(struct trace_summary *s)
{
    free(s->kernels);
    free(s->copies);
    free(s->host);
    *s = (struct trace_summary){0};
}
