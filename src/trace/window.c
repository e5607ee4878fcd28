/* Markers first, since the program's author put them there. Then graphs: engines run one per step.
 * Else the order of kernel names: a stretch of it has a period, found with the failure function of
 * Knuth, Morris and Pratt from several anchors, so that setup and tear-down at the ends do no harm.
 */
#include "trace/window.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "trace/communication.h"
#include "trace/marker_join.h"

enum { REPEATS = 3, ANCHORS = 8 };

const char *window_method_name(enum window_method method)
{
    static const char *const names[WINDOW_METHOD_COUNT] = {"none", "marker", "graph", "sequence"};
    return (unsigned)method < WINDOW_METHOD_COUNT ? names[method] : "?";
}

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory to find the steps of a trace");
}

/* ---- periods ---- */

struct stretch {
    size_t start, end, period;
};

/* The longest stretch that ends at `anchor`, made longer to the right as far as it goes. `fail` has
 * anchor + 1 entries. */
static void stretch_at(const uint32_t *symbols, size_t n, size_t anchor, uint32_t *fail,
                       struct stretch *best)
{
    /* Position i of the reversed text is symbols[anchor - 1 - i]. */
    const uint32_t *last = symbols + anchor - 1;
    size_t longest = 0;
    fail[0] = 0;
    for (size_t i = 1, k = 0; i < anchor; i++) {
        while (k > 0 && *(last - i) != *(last - k)) k = fail[k - 1];
        if (*(last - i) == *(last - k)) k++;
        fail[i] = (uint32_t)k;
        if ((i + 1 - k) <= (i + 1) / REPEATS) longest = i + 1;
    }
    if (longest == 0) return;
    size_t period = longest - fail[longest - 1], end = anchor;
    while (end < n && symbols[end] == symbols[end - period]) end++;
    size_t start = anchor - longest;
    if (end - start > best->end - best->start) *best = (struct stretch){start, end, period};
}

enum sol_status window_period(const uint32_t *symbols, size_t n, size_t *period, size_t *start,
                              size_t *end)
{
    struct stretch best = {0, 0, 0};
    *period = *start = *end = 0;
    if (n < REPEATS || n >= UINT32_MAX) return SOL_OK;
    uint32_t *fail = malloc(n * sizeof *fail);
    if (!fail) return no_memory();
    for (size_t i = 1; i <= ANCHORS; i++) {
        size_t anchor = n * i / ANCHORS;
        if (anchor >= REPEATS) stretch_at(symbols, n, anchor, fail, &best);
    }
    free(fail);
    *period = best.period;
    *start = best.start;
    *end = best.end;
    return SOL_OK;
}

/* ---- the device's work ---- */

struct finder {
    const struct timeline *t;
    struct trace_window_set *set;
    size_t room;
    uint32_t *works; /* events on the device, in order */
    size_t n_works;
    int64_t busy; /* sum of their times */
};

static uint16_t busiest_device(const struct timeline *t, int64_t *times)
{
    uint16_t best = TRACE_NO_DEVICE;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (event_on_device(e->kind) && e->device != TRACE_NO_DEVICE)
            times[e->device] += e->end - e->start;
    }
    for (size_t i = 0; i < t->n_devices; i++)
        if (times[i] > 0 && (best == TRACE_NO_DEVICE || times[i] > times[best])) best = (uint16_t)i;
    return best;
}

static enum sol_status gather(struct finder *f)
{
    const struct timeline *t = f->t;
    int64_t *times = calloc(t->n_devices + 1, sizeof *times);
    f->works = malloc((t->count + 1) * sizeof *f->works);
    if (!times || !f->works) {
        free(times);
        return no_memory();
    }
    f->set->device = trace_first_rank(t);
    if (f->set->device == TRACE_NO_DEVICE) f->set->device = busiest_device(t, times);
    free(times);
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (!event_on_device(e->kind) || e->device != f->set->device) continue;
        f->works[f->n_works++] = (uint32_t)i;
        f->busy += e->end - e->start;
    }
    return SOL_OK;
}

static const struct trace_event *work(const struct finder *f, size_t i)
{
    return &f->t->events[f->works[i]];
}

/* From the start of work `first` to the start of work `last`, or to the end of the work before
 * where `last` is not followed by more of the same. */
static enum sol_status add_window(struct finder *f, size_t first, size_t last, bool more)
{
    struct trace_window_set *set = f->set;
    SOL_TRY(array_grow(&set->windows, set->count, &f->room, sizeof *set->windows,
                       "the steps of a trace"));
    int64_t end = work(f, first)->start;
    if (more) {
        end = work(f, last)->start;
    } else {
        for (size_t i = first; i < last; i++)
            if (work(f, i)->end > end) end = work(f, i)->end;
        if (last < f->n_works && work(f, last)->start < end) end = work(f, last)->start;
    }
    set->windows[set->count++] = (struct trace_window){work(f, first)->start, end, last - first};
    return SOL_OK;
}

/* ---- markers ---- */

/* The name of the ranges that cover most time and come at least REPEATS times. */
static uint32_t choose_marker(const struct timeline *t, int64_t *times, uint32_t *counts)
{
    uint32_t best = TRACE_NONE;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind != EVENT_MARKER || e->name == TRACE_NONE || e->end == e->start) continue;
        times[e->name] += e->end - e->start;
        counts[e->name]++;
    }
    for (uint32_t i = 0; i < timeline_string_count(t); i++)
        if (counts[i] >= REPEATS && (best == TRACE_NONE || times[i] > times[best])) best = i;
    return best;
}

static enum sol_status windows_of_marker(struct finder *f, uint32_t name, struct marker_join *j)
{
    const struct trace_event *open = NULL;
    size_t first = 0, last = 0;
    SOL_TRY(marker_join_make(f->t, name, j));
    for (size_t i = 0; i < f->n_works; i++) {
        const struct trace_event *range = marker_join_range(j, work(f, i));
        if (open && range != open) {
            SOL_TRY(add_window(f, first, last + 1, false));
            open = NULL;
        }
        if (range && !open) {
            open = range;
            first = i;
        }
        last = i;
    }
    return open ? add_window(f, first, last + 1, false) : SOL_OK;
}

static enum sol_status by_marker(struct finder *f, const char *marker)
{
    size_t n = timeline_string_count(f->t);
    uint32_t name = TRACE_NONE;
    struct marker_join join = {0};
    if (marker) {
        for (uint32_t i = 0; i < n && name == TRACE_NONE; i++)
            if (strcmp(timeline_text(f->t, i), marker) == 0) name = i;
    } else {
        int64_t *times = calloc(n + 1, sizeof *times);
        uint32_t *counts = calloc(n + 1, sizeof *counts);
        if (times && counts) name = choose_marker(f->t, times, counts);
        bool fits = times && counts;
        free(times);
        free(counts);
        if (!fits) return no_memory();
    }
    enum sol_status status = name == TRACE_NONE ? SOL_OK : windows_of_marker(f, name, &join);
    marker_join_free(&join);
    SOL_TRY(status);
    if (f->set->count >= (marker ? 1 : REPEATS)) {
        f->set->method = WINDOW_MARKER;
        f->set->name = name;
    } else if (marker) {
        return status_set(SOL_E_ARGUMENT, "no NVTX range '%s' launched work on the device", marker);
    } else {
        f->set->count = 0;
    }
    return SOL_OK;
}

/* ---- graphs ---- */

/* The graph that a work belongs to; 0: none. */
static uint32_t graph_of(const struct timeline *t, const struct trace_event *e)
{
    const struct kernel_shape *shape = timeline_event_shape(t, e);
    const struct transfer *transfer = timeline_event_transfer(t, e);
    return shape ? shape->graph : transfer ? transfer->graph : 0;
}

struct graph_row {
    uint32_t graph, runs, name;
    int64_t time;
    uint64_t last; /* key of its last run: the nodes of a run share the launch's correlation */
};

/* The first work of a new run of its graph, whose row is then brought up to date. */
static struct graph_row *graph_row(struct graph_row *rows, size_t *n, uint32_t graph)
{
    enum { ROWS_MAX = 256 };
    for (size_t i = *n; i-- > 0;)
        if (rows[i].graph == graph) return &rows[i];
    if (*n == ROWS_MAX) return NULL;
    rows[*n] = (struct graph_row){.graph = graph, .name = TRACE_NONE, .last = UINT64_MAX};
    return &rows[(*n)++];
}

static enum sol_status by_graph(struct finder *f)
{
    struct graph_row rows[256];
    size_t n = 0, first = 0;
    const struct graph_row *best = NULL;
    for (size_t i = 0; i < f->n_works; i++) {
        const struct trace_event *e = work(f, i);
        uint32_t graph = graph_of(f->t, e);
        struct graph_row *row = graph ? graph_row(rows, &n, graph) : NULL;
        if (!row) continue;
        row->time += e->end - e->start;
        row->runs += row->last != timeline_event_key(e);
        row->last = timeline_event_key(e);
        if (e->kind == EVENT_GRAPH) row->name = e->name;
    }
    for (size_t i = 0; i < n; i++)
        if (rows[i].runs >= REPEATS && (!best || rows[i].time > best->time)) best = &rows[i];
    /* A graph that is a small part of the work is no step. */
    if (!best || best->time < f->busy / 5) return SOL_OK;
    uint64_t last = UINT64_MAX;
    bool open = false;
    size_t end = 0;
    for (size_t i = 0; i < f->n_works; i++) {
        if (graph_of(f->t, work(f, i)) != best->graph) continue;
        if (timeline_event_key(work(f, i)) != last) {
            if (open) SOL_TRY(add_window(f, first, i, true));
            first = i;
            open = true;
            last = timeline_event_key(work(f, i));
        }
        end = i + 1;
    }
    if (open) SOL_TRY(add_window(f, first, end, false));
    f->set->method = WINDOW_GRAPH;
    f->set->name = best->name;
    return SOL_OK;
}

/* ---- sequences ---- */

/* The place in the period before which the device waits longest: there one step ends. */
static size_t longest_wait(const struct finder *f, const struct stretch *s)
{
    int64_t best = -1;
    size_t at = 0;
    for (size_t i = 0; i < s->period; i++) {
        int64_t sum = 0;
        size_t runs = 0;
        for (size_t k = s->start + i; k < s->end; k += s->period, runs++) {
            int64_t wait = k > 0 ? work(f, k)->start - work(f, k - 1)->end : 0;
            sum += wait > 0 ? wait : 0;
        }
        int64_t mean = runs ? sum / (int64_t)runs : 0;
        if (mean > best) {
            best = mean;
            at = i;
        }
    }
    return at;
}

static enum sol_status by_sequence(struct finder *f)
{
    uint32_t *symbols = malloc((f->n_works + 1) * sizeof *symbols);
    struct stretch s;
    if (!symbols) return no_memory();
    for (size_t i = 0; i < f->n_works; i++) symbols[i] = work(f, i)->name;
    enum sol_status status = window_period(symbols, f->n_works, &s.period, &s.start, &s.end);
    free(symbols);
    SOL_TRY(status);
    if (s.period == 0) return SOL_OK;
    size_t at = s.start + longest_wait(f, &s);
    for (; at + s.period <= s.end; at += s.period)
        SOL_TRY(add_window(f, at, at + s.period, at + 2 * s.period <= s.end));
    f->set->method = WINDOW_SEQUENCE;
    return SOL_OK;
}

/* ---- all of it ---- */

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum sol_status choose_typical(struct trace_window_set *set)
{
    struct {
        int64_t time;
        size_t index;
    } *order = malloc(set->count * sizeof *order);
    if (!order) return no_memory();
    for (size_t i = 0; i < set->count; i++) {
        order[i].time = set->windows[i].end - set->windows[i].begin;
        order[i].index = i;
    }
    qsort(order, set->count, sizeof *order, by_time);
    set->typical = order[set->count / 2].index;
    free(order);
    return SOL_OK;
}

enum sol_status trace_windows_find(const struct timeline *t, const char *marker,
                                   struct trace_window_set *out)
{
    *out = (struct trace_window_set){.name = TRACE_NONE};
    struct finder f = {.t = t, .set = out};
    enum sol_status status = gather(&f);
    if (status == SOL_OK) status = by_marker(&f, marker);
    if (status == SOL_OK && out->method == WINDOW_NONE) status = by_graph(&f);
    if (status == SOL_OK && out->method == WINDOW_NONE) status = by_sequence(&f);
    free(f.works);
    /* Rotating a short period may leave two. */
    if (status == SOL_OK && out->count < REPEATS && !marker) {
        out->count = 0;
        out->method = WINDOW_NONE;
    }
    if (status == SOL_OK && out->count) status = choose_typical(out);
    return status;
}

void trace_windows_free(struct trace_window_set *set)
{
    free(set->windows);
    *set = (struct trace_window_set){0};
}
