/* See expected.h. */
#include "trace/expected.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "trace/category.h"
#include "trace/communication.h"
#include "trace/marker_join.h"

const double trace_preparing_most = 0.1;

/* What was launched in a range, by its place among the events. */
struct seen {
    uint32_t kernels, graphs;
};

struct counter {
    const struct timeline *t;
    bool ranks;            /* that share the work of a step */
    struct seen *seen;     /* [events] */
    signed char *prepares; /* [strings] of the name of a kernel; -1: not looked at yet */
};

static bool prepares(const struct counter *c, uint32_t name)
{
    if (name == TRACE_NONE) return false;
    if (c->prepares[name] < 0) {
        c->prepares[name] = category_prepares(category_of(timeline_text(c->t, name)));
    }
    return c->prepares[name];
}

/* Ranks of one process do the like at the same time, and the ranges are the first one's. */
static uint16_t first_device_of(const struct timeline *t, uint16_t process)
{
    uint16_t first = TRACE_NO_DEVICE;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (event_on_device(e->kind) && e->process == process && e->device < first)
            first = e->device;
    }
    return first;
}

static void count_works(const struct counter *c, const struct marker_join *join, uint16_t process,
                        struct trace_launched *out)
{
    const struct timeline *t = c->t;
    const uint16_t device = c->ranks ? first_device_of(t, process) : TRACE_NO_DEVICE;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (device != TRACE_NO_DEVICE && e->device != device) continue;
        if (e->process != process || (e->kind != EVENT_KERNEL && e->kind != EVENT_GRAPH)) continue;
        const struct trace_event *range = marker_join_range(join, e);
        if (!range || range->process != process) continue;
        struct seen *seen = &c->seen[range - t->events];
        seen->kernels += e->kind == EVENT_KERNEL;
        seen->graphs += e->kind == EVENT_GRAPH;
        out->kernel_ns += e->end - e->start;
        if (e->kind == EVENT_KERNEL && prepares(c, e->name)) out->preparing_ns += e->end - e->start;
    }
}

static enum sol_status count_one(const struct counter *c, const struct trace_expected *expected,
                                 struct trace_launched *out)
{
    struct marker_join join = {.n_calls = 0};
    *out = (struct trace_launched){.name = expected->name, .planned = expected->kernels};
    for (size_t i = 0; i < c->t->count; i++) c->seen[i] = (struct seen){0, 0};
    enum sol_status status = marker_join_make(c->t, expected->name, &join);
    if (status == SOL_OK) count_works(c, &join, expected->process, out);
    for (size_t i = 0; i < c->t->count; i++) {
        const struct seen *s = &c->seen[i];
        out->wholes += s->graphs > 0;
        if (s->graphs || !s->kernels) continue;
        if (out->ranges == 0 || s->kernels < out->least) out->least = s->kernels;
        if (s->kernels > out->most) out->most = s->kernels;
        out->ranges++;
        out->wrong += s->kernels != expected->kernels;
    }
    marker_join_free(&join);
    return status;
}

enum sol_status trace_launches_count(const struct timeline *t, struct trace_launches *out)
{
    struct counter c = {.t = t, .ranks = trace_first_rank(t) != TRACE_NO_DEVICE};
    *out = (struct trace_launches){.lost = t->lost.records || t->lost.timestamps};
    if (t->n_expected == 0) return SOL_OK;
    const size_t names = timeline_string_count(t);
    out->items = calloc(t->n_expected, sizeof *out->items);
    c.seen = calloc(t->count + 1, sizeof *c.seen);
    c.prepares = malloc(names + 1);
    enum sol_status status = out->items && c.seen && c.prepares
                                 ? SOL_OK
                                 : status_set(SOL_E_MEMORY, "out of memory to count kernels");
    for (size_t i = 0; i < names && status == SOL_OK; i++) c.prepares[i] = -1;
    for (size_t i = 0; i < t->n_expected && status == SOL_OK; i++) {
        status = count_one(&c, &t->expected[i], &out->items[i]);
        out->count++;
    }
    free(c.seen);
    free(c.prepares);
    return status;
}

void trace_launches_free(struct trace_launches *launches)
{
    free(launches->items);
    *launches = (struct trace_launches){.count = 0};
}

double trace_launches_preparing(const struct trace_launches *launches)
{
    int64_t all = 0, preparing = 0;
    for (size_t i = 0; i < launches->count; i++) {
        all += launches->items[i].kernel_ns;
        preparing += launches->items[i].preparing_ns;
    }
    return all > 0 ? (double)preparing / (double)all : (double)NAN;
}

const char *trace_launches_unsound(const struct timeline *t, const struct trace_launches *launches,
                                   char text[TRACE_UNSOUND])
{
    const double preparing = trace_launches_preparing(launches);
    for (size_t i = 0; i < launches->count && !launches->lost; i++) {
        const struct trace_launched *l = &launches->items[i];
        if (l->wrong == 0) continue;
        snprintf(text, TRACE_UNSOUND,
                 "%zu of %zu of '%.40s' launched %" PRIu64 " to %" PRIu64
                 " kernels, the plan has %" PRIu64,
                 l->wrong, l->ranges, timeline_text(t, l->name), l->least, l->most, l->planned);
        return text;
    }
    if (!(preparing > trace_preparing_most)) return NULL;
    snprintf(text, TRACE_UNSOUND,
             "quantising and transposing take %.1f %% of the kernels' time, more than %.0f %%",
             100 * preparing, 100 * trace_preparing_most);
    return text;
}
