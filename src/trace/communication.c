#include "trace/communication.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "trace/category.h"
#include "trace/spans.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory for what ranks cost each other");
}

/* ---- collectives, and when the last rank came to each ---- */

/* By name; each is looked at once. NULL without memory. */
static bool *collective_names(const struct timeline *t)
{
    const size_t n = timeline_string_count(t);
    bool *names = calloc(n + 1, sizeof *names);
    for (uint32_t i = 0; names && i < n; i++)
        names[i] = category_of(timeline_text(t, i)) == CATEGORY_COMMUNICATION;
    return names;
}

static bool is_collective(const struct trace_event *e, const bool *names)
{
    return e->kind == EVENT_KERNEL && e->device != TRACE_NO_DEVICE && e->name != TRACE_NONE &&
           names[e->name];
}

uint16_t trace_first_rank(const struct timeline *t)
{
    uint16_t first = TRACE_NO_DEVICE;
    bool several = false, *names = t->n_devices > 1 ? collective_names(t) : NULL;
    for (size_t i = 0; names && i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (!is_collective(e, names) || e->device == first) continue;
        several = several || first != TRACE_NO_DEVICE;
        if (e->device < first) first = e->device; /* TRACE_NO_DEVICE is the greatest */
    }
    free(names);
    return several ? first : TRACE_NO_DEVICE;
}

static enum sol_status gather(const struct timeline *t, struct trace_communication *c)
{
    size_t room = 0;
    bool *names = collective_names(t);
    enum sol_status status = names ? SOL_OK : no_memory();
    for (size_t i = 0; i < t->count && status == SOL_OK; i++) {
        const struct trace_event *e = &t->events[i];
        if (!is_collective(e, names)) continue;
        status = array_grow(&c->collectives, c->n_collectives, &room, sizeof *c->collectives,
                            "collectives");
        if (status == SOL_OK)
            c->collectives[c->n_collectives++] = (struct trace_collective){(uint32_t)i, e->start};
    }
    free(names);
    return status;
}

static enum sol_status find_ranks(const struct timeline *t, struct trace_communication *c)
{
    bool *is_rank = calloc(t->n_devices + 1, sizeof *is_rank);
    c->ranks = calloc(t->n_devices + 1, sizeof *c->ranks);
    if (!is_rank || !c->ranks) {
        free(is_rank);
        return no_memory();
    }
    for (size_t i = 0; i < c->n_collectives; i++)
        is_rank[t->events[c->collectives[i].event].device] = true;
    for (uint16_t d = 0; d < t->n_devices; d++)
        if (is_rank[d]) c->ranks[c->n_ranks++].device = d;
    free(is_rank);
    return SOL_OK;
}

/* For sorting: a collective by its name, then its rank, then its place in time. */
struct call {
    uint32_t name, event;
    uint16_t device;
    size_t at; /* in the list of collectives */
};

static int by_call(const void *a, const void *b)
{
    const struct call *x = a, *y = b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* Calls of one name: the i-th of each rank are one collective, if all have as many. */
static bool join(const struct timeline *t, struct trace_communication *c, const struct call *calls,
                 size_t n)
{
    const size_t each = n / c->n_ranks;
    if (each * c->n_ranks != n) return false;
    for (size_t i = 0; i < n; i++)
        if (calls[i].device != c->ranks[i / each].device) return false;
    for (size_t i = 0; i < each; i++) {
        int64_t last = INT64_MIN;
        for (size_t at = i; at < n; at += each)
            if (t->events[calls[at].event].start > last) last = t->events[calls[at].event].start;
        for (size_t at = i; at < n; at += each) c->collectives[calls[at].at].arrived = last;
    }
    return true;
}

/* By name, since streams of a rank need not begin theirs in the order of another rank's. */
static enum sol_status find_arrivals(const struct timeline *t, struct trace_communication *c)
{
    struct call *calls = calloc(c->n_collectives + 1, sizeof *calls);
    size_t begin = 0;
    if (!calls) return no_memory();
    for (size_t i = 0; i < c->n_collectives; i++) {
        const struct trace_event *e = &t->events[c->collectives[i].event];
        calls[i] = (struct call){e->name, c->collectives[i].event, e->device, i};
    }
    if (c->n_collectives) qsort(calls, c->n_collectives, sizeof *calls, by_call);
    c->told = c->n_ranks > 1;
    for (size_t i = 1; i <= c->n_collectives && c->n_ranks > 1; i++) {
        if (i < c->n_collectives && calls[i].name == calls[begin].name) continue;
        c->told &= join(t, c, calls + begin, i - begin);
        begin = i;
    }
    free(calls);
    return SOL_OK;
}

/* ---- times of a rank ---- */

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Works of a rank's device: its collectives, whole and from the last arrival on, and the others. */
struct lanes {
    struct spans collectives, moving, others;
};

static void free_lanes(struct lanes *l)
{
    free(l->collectives.items);
    free(l->moving.items);
    free(l->others.items);
}

/* Arrivals need not have the order of starts. */
static enum sol_status fill_moving(const struct timeline *t, const struct trace_communication *c,
                                   uint16_t device, struct spans *out)
{
    struct span *list = calloc(c->n_collectives + 1, sizeof *list);
    enum sol_status status = list ? SOL_OK : no_memory();
    size_t n = 0;
    for (size_t i = 0; i < c->n_collectives && status == SOL_OK; i++) {
        const struct trace_event *e = &t->events[c->collectives[i].event];
        if (e->device != device) continue;
        list[n++] = (struct span){c->collectives[i].arrived, e->end, TRACE_NONE};
    }
    if (n) qsort(list, n, sizeof *list, by_start);
    for (size_t i = 0; i < n && status == SOL_OK; i++)
        status = spans_add(out, list[i].start, list[i].end, TRACE_NONE);
    free(list);
    return status;
}

static enum sol_status fill_lanes(const struct timeline *t, const struct trace_communication *c,
                                  uint16_t device, struct lanes *l)
{
    size_t next = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        const bool collective =
            next < c->n_collectives && c->collectives[next].event == i && ++next;
        if (!event_on_device(e->kind) || e->device != device) continue;
        SOL_TRY(spans_add(collective ? &l->collectives : &l->others, e->start, e->end, TRACE_NONE));
    }
    return fill_moving(t, c, device, &l->moving);
}

static int64_t in_steps(struct spans *s, const struct trace_window *windows, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += spans_overlap(s, windows[i].begin, windows[i].end, NULL, NULL);
    s->at = 0;
    return sum;
}

static size_t count_in(const struct timeline *t, const struct trace_communication *c,
                       uint16_t device, const struct trace_window *windows, size_t n)
{
    size_t count = 0, w = 0;
    for (size_t i = 0; i < c->n_collectives; i++) {
        const struct trace_event *e = &t->events[c->collectives[i].event];
        if (e->device != device) continue;
        while (w < n && windows[w].end <= e->start) w++;
        count += w < n && windows[w].begin <= e->start;
    }
    return count;
}

static enum sol_status measure(const struct timeline *t, const struct trace_communication *c,
                               const struct trace_window *windows, size_t n,
                               struct trace_rank *rank)
{
    struct lanes l = {.others = {.count = 0}};
    enum sol_status status = fill_lanes(t, c, rank->device, &l);
    rank->collectives = count_in(t, c, rank->device, windows, n);
    rank->total = in_steps(&l.collectives, windows, n);
    if (status == SOL_OK) status = spans_subtract(&l.collectives, &l.others);
    if (status == SOL_OK) status = spans_subtract(&l.moving, &l.others);
    rank->exposed = in_steps(&l.collectives, windows, n);
    rank->waiting = rank->exposed - in_steps(&l.moving, windows, n);
    free_lanes(&l);
    return status;
}

enum sol_status trace_communicate(const struct timeline *t, const struct trace_window_set *windows,
                                  struct trace_communication *out)
{
    const struct trace_window whole = {.begin = 0, .end = INT64_MAX};
    const bool steps = windows && windows->count;
    const struct trace_window *list = steps ? windows->windows : &whole;
    const size_t n = steps ? windows->count : 1;
    *out = (struct trace_communication){.steps = n};
    for (size_t i = 0; i < n && steps; i++) out->window += list[i].end - list[i].begin;
    if (!steps) out->window = t->end;
    SOL_TRY(gather(t, out));
    SOL_TRY(find_ranks(t, out));
    SOL_TRY(find_arrivals(t, out));
    for (size_t i = 0; i < out->n_ranks; i++) SOL_TRY(measure(t, out, list, n, &out->ranks[i]));
    return SOL_OK;
}

void trace_communication_free(struct trace_communication *c)
{
    free(c->ranks);
    free(c->collectives);
    *c = (struct trace_communication){0};
}

const struct trace_rank *trace_rank_of(const struct trace_communication *c, uint16_t device)
{
    for (size_t i = 0; i < c->n_ranks; i++)
        if (c->ranks[i].device == device) return &c->ranks[i];
    return NULL;
}

const struct trace_collective *trace_collective_of(const struct trace_communication *c,
                                                   size_t event)
{
    size_t low = 0, high = c->n_collectives;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->collectives[middle].event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n_collectives && c->collectives[low].event == event ? &c->collectives[low]
                                                                        : NULL;
}
