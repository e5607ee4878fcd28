#include "trace/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct lane {
    double closed, latest; /* new ends of what has ended by now, and of what has begun */
};

struct run {
    const struct schedule *s;
    const struct replay_change *change;
    struct lane *lanes;
    double *start, *end;           /* new, of works */
    double *call_start, *call_end; /* new */
    bool *returned;
    uint32_t *gone;     /* works of each call that are no more */
    size_t closed;      /* of by_end */
    double device;      /* new end of all that has ended by now */
    int64_t device_was; /* the measured one */
    bool any;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- the host ---- */

static void finish_call(struct run *r, uint32_t i)
{
    const struct schedule_call *c = &r->s->calls[i];
    if (r->returned[i]) return;
    r->returned[i] = true;
    double length = (double)(c->end - c->start);
    if (c->started && r->gone[i] == c->started) { /* nothing to launch */
        r->call_end[i] = r->call_start[i];
        return;
    }
    if (c->awaited == TRACE_NONE) {
        r->call_end[i] = r->call_start[i] + length;
        return;
    }
    int64_t done = r->s->works[c->awaited].end;
    bool blocked = done > c->start;
    double tail = blocked ? (double)(c->end - done) : 0;
    r->call_end[i] =
        larger(r->call_start[i] + (blocked ? tail : length), r->end[c->awaited] + tail);
}

static void start_call(struct run *r, uint32_t i)
{
    const struct schedule_call *c = &r->s->calls[i];
    r->call_start[i] = (double)c->start;
    if (c->before == TRACE_NONE) return;
    const struct schedule_call *before = &r->s->calls[c->before];
    finish_call(r, c->before);
    r->call_start[i] = r->call_end[c->before] + (double)(c->start - before->end);
}

/* ---- the device ---- */

static void close_until(struct run *r, uint32_t work, int64_t time)
{
    const struct schedule *s = r->s;
    for (; r->closed < s->n_works; r->closed++) {
        uint32_t i = s->by_end[r->closed];
        if (i >= work || s->works[i].end > time) break;
        struct lane *lane = &r->lanes[s->works[i].stream];
        lane->closed = larger(lane->closed, r->end[i]);
        r->device = r->any ? larger(r->device, r->end[i]) : r->end[i];
        r->device_was = s->works[i].end;
        r->any = true;
    }
}

/* The earliest start as far as the device is concerned; *ready: without the idle time. */
static double device_start(const struct run *r, const struct schedule_work *w, double *ready)
{
    const struct lane *lane = &r->lanes[w->stream];
    double gaps = r->change->other_gaps, start;
    *ready = w->overlaps ? lane->latest : lane->closed;
    start = *ready + (double)w->lag * gaps;
    if (w->alone) { /* as far from the rest as it was */
        *ready = r->any ? r->device : (double)w->start;
        start = r->any ? r->device + (double)(w->start - r->device_was) * gaps : (double)w->start;
        if (w->bound != BOUND_NOTHING && r->any) start = *ready = 0;
    }
    if (w->other == TRACE_NONE) return start;
    *ready = larger(*ready, r->end[w->other]);
    return larger(start, r->end[w->other] + (double)w->other_lag * gaps);
}

static double work_start(const struct run *r, uint32_t i)
{
    const struct schedule_work *w = &r->s->works[i];
    uint32_t beside = r->change->beside ? r->change->beside[i] : TRACE_NONE;
    double ready, start = device_start(r, w, &ready);
    if (beside != TRACE_NONE) return r->start[beside];
    if (r->change->gone && r->change->gone[i]) return ready;
    if (w->call == TRACE_NONE) return start;
    double called = r->call_start[w->call] + (double)w->call_lag;
    if (called <= start) return start;
    /* Only what the device idles is a gap. */
    double from = r->any ? larger(start, r->device) : start;
    return called > from ? from + (called - from) * r->change->host_gaps : called;
}

static void run_work(struct run *r, uint32_t i)
{
    const struct schedule_work *w = &r->s->works[i];
    struct lane *lane = &r->lanes[w->stream];
    bool gone = r->change->gone && r->change->gone[i];
    close_until(r, i, w->overlaps ? INT64_MIN : w->start);
    r->start[i] = work_start(r, i);
    r->end[i] = r->start[i] + (gone ? 0 : r->change->times[i]);
    lane->latest = larger(lane->latest, r->end[i]);
}

/* ---- steps ---- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double step_length(const struct schedule_step *step, const double *start, const double *end)
{
    double last = end[step->first];
    if (step->closed) return start[step->last] - start[step->first];
    for (uint32_t i = step->first; i < step->last; i++) last = larger(last, end[i]);
    return last - start[step->first];
}

static enum sol_status median_step(const struct schedule *s, const double *start, const double *end,
                                   double *out)
{
    size_t n = s->n_steps;
    double *lengths = malloc(n * sizeof *lengths);
    if (!lengths) return status_set(SOL_E_MEMORY, "out of memory to replay a trace");
    for (size_t i = 0; i < n; i++) lengths[i] = step_length(&s->steps[i], start, end);
    qsort(lengths, n, sizeof *lengths, by_value);
    *out = n % 2 ? lengths[n / 2] : (lengths[n / 2 - 1] + lengths[n / 2]) / 2;
    free(lengths);
    return SOL_OK;
}

enum sol_status replay_measured(const struct schedule *s, double *step_ns)
{
    double *times = malloc(2 * s->n_works * sizeof *times);
    if (!times) return status_set(SOL_E_MEMORY, "out of memory to replay a trace");
    for (size_t i = 0; i < s->n_works; i++) {
        times[i] = (double)s->works[i].start;
        times[s->n_works + i] = (double)s->works[i].end;
    }
    enum sol_status status = median_step(s, times, times + s->n_works, step_ns);
    free(times);
    return status;
}

static void follow(struct run *r)
{
    for (size_t i = 0; r->change->gone && i < r->s->n_works; i++)
        if (r->change->gone[i] && r->s->works[i].call != TRACE_NONE) r->gone[r->s->works[i].call]++;
    for (size_t i = 0; i < r->s->n_points; i++) {
        const struct schedule_point *p = &r->s->points[i];
        if (p->kind == POINT_CALL)
            start_call(r, p->index);
        else if (p->kind == POINT_WORK)
            run_work(r, p->index);
        else
            finish_call(r, p->index);
    }
}

enum sol_status replay_run(const struct schedule *s, const struct replay_change *change,
                           double *step_ns)
{
    struct run r = {.s = s, .change = change};
    enum sol_status status = SOL_OK;
    r.lanes = calloc(s->n_streams, sizeof *r.lanes);
    r.start = malloc(2 * s->n_works * sizeof *r.start);
    r.call_start = malloc((2 * s->n_calls + 1) * sizeof *r.call_start);
    r.returned = calloc(s->n_calls + 1, sizeof *r.returned);
    r.gone = calloc(s->n_calls + 1, sizeof *r.gone);
    if (!r.lanes || !r.start || !r.call_start || !r.returned || !r.gone)
        status = status_set(SOL_E_MEMORY, "out of memory to replay a trace");
    if (status == SOL_OK) {
        r.end = r.start + s->n_works;
        r.call_end = r.call_start + s->n_calls;
        for (size_t i = 0; i < s->n_works; i++) r.end[i] = (double)s->works[i].end;
        follow(&r);
        status = median_step(s, r.start, r.end, step_ns);
    }
    free(r.lanes);
    free(r.start);
    free(r.call_start);
    free(r.returned);
    free(r.gone);
    return status;
}
