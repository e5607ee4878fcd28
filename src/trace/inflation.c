#include "trace/inflation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { STEPS_MIN = 16 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The last launch that was timed, of the process that launched the first graph. */
static uint32_t last_timed(const struct timeline *t, uint16_t *process)
{
    uint32_t last = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind != EVENT_GRAPH) continue;
        if (last == 0) *process = e->process;
        if (e->process == *process && e->correlation > last) last = e->correlation;
    }
    return last;
}

enum sol_status trace_inflation(const struct timeline *t, struct trace_inflation *out)
{
    uint16_t process = 0;
    *out = (struct trace_inflation){
        .timed_ns = (double)NAN, .untimed_ns = (double)NAN, .share = (double)NAN};
    uint32_t last = t->level == TRACE_LAUNCH ? last_timed(t, &process) : 0;
    if (last == 0) return SOL_OK;
    double *steps = malloc(t->count * sizeof *steps);
    if (!steps) return status_set(SOL_E_MEMORY, "out of memory for steps");
    /* Timed ones from the front, the others from the back. */
    size_t timed = 0, untimed = 0;
    const struct trace_event *before = NULL;
    for (size_t i = 0; i < t->count; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind != EVENT_API || e->process != process ||
            strcmp(timeline_text(t, e->name), "cuGraphLaunch") != 0)
            continue;
        double ns = before ? (double)(e->start - before->start) : 0;
        if (before && e->correlation <= last) steps[timed++] = ns;
        if (before && before->correlation > last) steps[t->count - ++untimed] = ns;
        before = e;
    }
    if (timed >= STEPS_MIN && untimed >= STEPS_MIN) {
        out->timed = timed;
        out->untimed = untimed;
        out->timed_ns = median(steps, timed);
        out->untimed_ns = median(steps + t->count - untimed, untimed);
        if (out->untimed_ns > 0) out->share = out->timed_ns / out->untimed_ns - 1;
    }
    free(steps);
    return SOL_OK;
}
