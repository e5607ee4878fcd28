/* See marker_join.h. */
#include "trace/marker_join.h"

#include <stdlib.h>

#include "base/status.h"

struct marker_call {
    uint64_t key;
    int64_t start;
};

static int by_key(const void *a, const void *b)
{
    const struct marker_call *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

enum sol_status marker_join_make(const struct timeline *t, uint32_t name, struct marker_join *j)
{
    *j = (struct marker_join){.t = t};
    j->calls = malloc((t->count + 1) * sizeof *j->calls);
    j->ranges = malloc((t->count + 1) * sizeof *j->ranges);
    if (!j->calls || !j->ranges)
        return status_set(SOL_E_MEMORY, "out of memory to find the steps of a trace");
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind == EVENT_API && e->correlation)
            j->calls[j->n_calls++] = (struct marker_call){timeline_event_key(e), e->start};
        if (e->kind == EVENT_MARKER && e->name == name) j->ranges[j->n_ranges++] = (uint32_t)i;
    }
    qsort(j->calls, j->n_calls, sizeof *j->calls, by_key);
    return SOL_OK;
}

/* The range that holds the time: the last that starts before it, if it ends after. */
static const struct trace_event *range_at(const struct marker_join *j, int64_t time)
{
    size_t low = 0, high = j->n_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (j->t->events[j->ranges[middle]].start <= time)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return NULL;
    const struct trace_event *range = &j->t->events[j->ranges[low - 1]];
    return time < range->end ? range : NULL;
}

const struct trace_event *marker_join_range(const struct marker_join *j,
                                            const struct trace_event *work)
{
    struct marker_call key = {.key = timeline_event_key(work)};
    const struct marker_call *call =
        j->n_calls ? bsearch(&key, j->calls, j->n_calls, sizeof key, by_key) : NULL;
    return call ? range_at(j, call->start) : NULL;
}

void marker_join_free(struct marker_join *j)
{
    free(j->calls);
    free(j->ranges);
    *j = (struct marker_join){.n_calls = 0};
}
