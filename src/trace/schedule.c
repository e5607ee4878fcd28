#include "trace/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum {
    STEPS_MAX = 200,
    LATENCY_MAX = 8000, /* ns from a call's start to the device's, at most, where all queue up */
    LAUNCHED_EARLY = 10000, /* ns before the device could start: the host was not late */
    LAG_USUAL = 1000,       /* ns between two kernels where none can be measured */
    LAG_MAX = 5000,
    UNEXPLAINED = 2000, /* ns behind stream and host from which another stream is looked at */
    LOOK_BACK = 64,     /* works, for one of the same process or stream */
};

struct key {
    uint64_t key; /* process, correlation; process, context, stream; process, thread */
    uint32_t index;
};

struct builder {
    const struct timeline *t;
    struct schedule *s;
    struct key *keys; /* of calls */
    size_t n_keys, key_room, work_room, call_room, step_room;
    bool *waits;            /* [n_calls]: for the device */
    uint32_t *sync_streams; /* [n_calls]: of the schedule; TRACE_NONE: any */
    size_t wait_room;
    uint32_t needed; /* calls before this one came before everything */
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory for the schedule of a trace");
}

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static uint64_t join_key(const struct trace_event *e)
{
    return (uint64_t)e->process << 32 | e->correlation;
}

static uint64_t stream_key(const struct trace_event *e)
{
    return (uint64_t)e->process << 48 | (uint64_t)e->context << 32 | e->track;
}

/* The first entry of this key; NULL: none. */
static const struct key *find_key(const struct key *keys, size_t n, uint64_t key)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (keys[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && keys[low].key == key ? &keys[low] : NULL;
}

static const struct trace_event *event(const struct builder *b, const struct schedule_work *w)
{
    return &b->t->events[w->event];
}

/* ---- works ---- */

static enum sol_status add_works(struct builder *b, int64_t begin, int64_t end)
{
    struct schedule *s = b->s;
    const struct timeline *t = b->t;
    for (size_t i = timeline_lower_bound(t, begin); i < t->count && t->events[i].start <= end;
         i++) {
        const struct trace_event *e = &t->events[i];
        if (!event_on_device(e->kind)) continue;
        SOL_TRY(array_grow(&s->works, s->n_works, &b->work_room, sizeof *s->works, "a schedule"));
        s->works[s->n_works++] = (struct schedule_work){.event = (uint32_t)i,
                                                        .call = TRACE_NONE,
                                                        .other = TRACE_NONE,
                                                        .start = e->start,
                                                        .end = e->end};
    }
    if (s->n_works == 0) return status_set(SOL_E_ARGUMENT, "nothing ran on a device in this trace");
    return SOL_OK;
}

static enum sol_status number_streams(struct builder *b)
{
    struct schedule *s = b->s;
    struct key *keys = malloc(s->n_works * sizeof *keys);
    if (!keys) return no_memory();
    for (size_t i = 0; i < s->n_works; i++)
        keys[i] = (struct key){stream_key(event(b, &s->works[i])), (uint32_t)i};
    qsort(keys, s->n_works, sizeof *keys, by_key);
    for (size_t i = 0; i < s->n_works; i++) {
        s->n_streams += i == 0 || keys[i].key != keys[i - 1].key;
        s->works[keys[i].index].stream = (uint32_t)s->n_streams - 1;
    }
    free(keys);
    return SOL_OK;
}

static enum sol_status order_ends(struct schedule *s)
{
    struct key *keys = malloc(s->n_works * sizeof *keys);
    s->by_end = malloc(s->n_works * sizeof *s->by_end);
    if (keys && s->by_end) {
        for (size_t i = 0; i < s->n_works; i++)
            keys[i] = (struct key){(uint64_t)s->works[i].end, (uint32_t)i};
        qsort(keys, s->n_works, sizeof *keys, by_key);
        for (size_t i = 0; i < s->n_works; i++) s->by_end[i] = keys[i].index;
    }
    free(keys);
    return s->by_end ? SOL_OK : no_memory();
}

/* ---- steps ---- */

/* The first work that starts at or after `time`. */
static uint32_t work_at(const struct builder *b, int64_t time)
{
    size_t low = 0, high = b->s->n_works;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (event(b, &b->s->works[middle])->start < time)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static enum sol_status add_step(struct builder *b, int64_t begin, int64_t end)
{
    struct schedule *s = b->s;
    struct schedule_step step = {.first = work_at(b, begin), .last = work_at(b, end)};
    step.closed = step.last < s->n_works && event(b, &s->works[step.last])->start == end;
    if (step.first == step.last) return SOL_OK;
    SOL_TRY(array_grow(&s->steps, s->n_steps, &b->step_room, sizeof *s->steps, "a schedule"));
    s->steps[s->n_steps++] = step;
    return SOL_OK;
}

static enum sol_status add_steps(struct builder *b, const struct trace_window_set *windows,
                                 size_t first, size_t last)
{
    for (size_t i = first; windows && i < last; i++)
        SOL_TRY(add_step(b, windows->windows[i].begin, windows->windows[i].end));
    return b->s->n_steps ? SOL_OK : add_step(b, INT64_MIN, INT64_MAX);
}

/* ---- calls ---- */

static bool name_has(const struct builder *b, uint32_t name, const char *word)
{
    return strstr(timeline_text(b->t, name), word) != NULL;
}

static enum sol_status new_call(struct builder *b, const struct trace_event *e, uint32_t before)
{
    struct schedule *s = b->s;
    size_t n = s->n_calls, room = b->wait_room;
    SOL_TRY(array_grow(&s->calls, n, &b->call_room, sizeof *s->calls, "a schedule"));
    SOL_TRY(array_grow(&b->waits, n, &room, sizeof *b->waits, "a schedule"));
    SOL_TRY(array_grow(&b->sync_streams, n, &b->wait_room, sizeof *b->sync_streams, "a schedule"));
    s->calls[n] = (struct schedule_call){e->start, e->end, before, TRACE_NONE, 0};
    b->waits[n] = name_has(b, e->name, "Synchronize");
    b->sync_streams[n] = TRACE_NONE;
    s->n_calls++;
    return SOL_OK;
}

enum { THREADS_MAX = 256 };

struct thread {
    uint64_t key;
    uint32_t last; /* call */
    uint32_t name; /* of that call */
};

struct threads {
    struct thread items[THREADS_MAX];
    size_t count, latest; /* latest: that called last */
};

/* Calls within a call belong to the outer one. Asking again and again whether work is done is one
 * long wait. */
static enum sol_status add_call(struct builder *b, struct thread *thread, uint32_t at)
{
    const struct trace_event *e = &b->t->events[at];
    struct schedule_call *last = thread->last == TRACE_NONE ? NULL : &b->s->calls[thread->last];
    bool again = last && e->name == thread->name && name_has(b, e->name, "Query");
    bool within = last && e->start < last->end;
    if (again && e->end > last->end) last->end = e->end;
    if (again) b->waits[thread->last] = true;
    if (!again && !within) {
        SOL_TRY(new_call(b, e, thread->last));
        thread->last = (uint32_t)b->s->n_calls - 1;
        thread->name = e->name;
    }
    if (e->correlation == 0) return SOL_OK;
    SOL_TRY(array_grow(&b->keys, b->n_keys, &b->key_room, sizeof *b->keys, "a schedule"));
    b->keys[b->n_keys++] = (struct key){join_key(e), thread->last};
    return SOL_OK;
}

/* The last one's calls most often follow each other. */
static struct thread *thread_of(struct threads *threads, uint64_t key)
{
    size_t i = threads->count;
    while (i > 0 && threads->items[i - 1].key != key) i--;
    if (i == 0) {
        if (threads->count == THREADS_MAX) return NULL; /* their calls play no part */
        threads->items[threads->count++] = (struct thread){key, TRACE_NONE, TRACE_NONE};
        i = threads->count;
    }
    threads->latest = i - 1;
    return &threads->items[i - 1];
}

/* A wait whose call was not traced is one of the thread that called last. */
static enum sol_status add_wait(struct builder *b, struct threads *threads, uint32_t at)
{
    const struct trace_event *e = &b->t->events[at];
    for (size_t i = 0; i < threads->count; i++) {
        const struct thread *thread = &threads->items[i];
        if (thread->key >> 32 == e->process && e->start < b->s->calls[thread->last].end)
            return SOL_OK;
    }
    if (threads->count == 0 || threads->items[threads->latest].key >> 32 != e->process)
        return SOL_OK;
    struct thread *thread = &threads->items[threads->latest];
    SOL_TRY(add_call(b, thread, at));
    b->waits[thread->last] = true;
    return SOL_OK;
}

static enum sol_status add_calls(struct builder *b, int64_t end)
{
    const struct timeline *t = b->t;
    struct threads *threads = calloc(1, sizeof *threads);
    enum sol_status status = threads ? SOL_OK : no_memory();
    for (size_t i = 0; i < t->count && t->events[i].start <= end && status == SOL_OK; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind == EVENT_SYNC) status = add_wait(b, threads, (uint32_t)i);
        if (e->kind != EVENT_API) continue;
        struct thread *thread = thread_of(threads, (uint64_t)e->process << 32 | e->track);
        if (thread) status = add_call(b, thread, (uint32_t)i);
    }
    free(threads);
    if (b->n_keys) qsort(b->keys, b->n_keys, sizeof *b->keys, by_key);
    return status;
}

static uint32_t call_of(const struct builder *b, const struct trace_event *e)
{
    const struct key *key = e->correlation ? find_key(b->keys, b->n_keys, join_key(e)) : NULL;
    return key ? key->index : TRACE_NONE;
}

/* Works to their calls. A copy that was over when its call returned was waited for. */
static void join_works(struct builder *b)
{
    struct schedule *s = b->s;
    b->needed = (uint32_t)s->n_calls;
    for (uint32_t i = 0; i < s->n_works; i++) {
        struct schedule_work *w = &s->works[i];
        const struct trace_event *e = event(b, w);
        w->call = call_of(b, e);
        if (w->call == TRACE_NONE) continue;
        struct schedule_call *call = &s->calls[w->call];
        if (call->start > e->start) { /* not what started it, then */
            w->call = TRACE_NONE;
            continue;
        }
        if (w->call < b->needed) b->needed = w->call;
        call->started++;
        if (e->kind == EVENT_COPY && e->end <= call->end) call->awaited = i;
    }
}

/* Which stream a wait was for, where the trace says it. */
static void join_syncs(struct builder *b)
{
    const struct schedule *s = b->s;
    for (size_t i = 0; i < b->t->count; i++) {
        const struct trace_event *e = &b->t->events[i];
        uint32_t call = e->kind == EVENT_SYNC ? call_of(b, e) : TRACE_NONE;
        if (call == TRACE_NONE || call < b->needed) continue;
        b->waits[call] = true;
        for (size_t k = 0; k < s->n_works && k < LOOK_BACK; k++)
            if (stream_key(event(b, &s->works[s->n_works - 1 - k])) == stream_key(e))
                b->sync_streams[call] = s->works[s->n_works - 1 - k].stream;
    }
}

/* The work that ended last before the call did: of its stream, else of any. */
static uint32_t awaited_by(const struct builder *b, uint32_t call)
{
    const struct schedule *s = b->s;
    size_t low = 0, high = s->n_works;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->works[s->by_end[middle]].end <= s->calls[call].end)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = low; i-- > 0 && low - i <= LOOK_BACK;)
        if (b->sync_streams[call] == TRACE_NONE ||
            s->works[s->by_end[i]].stream == b->sync_streams[call])
            return s->by_end[i];
    return TRACE_NONE;
}

static void find_waits(struct builder *b)
{
    for (uint32_t i = b->needed; i < b->s->n_calls; i++)
        if (b->waits[i] && b->s->calls[i].awaited == TRACE_NONE)
            b->s->calls[i].awaited = awaited_by(b, i);
}

/* ---- what a work waited for ---- */

/* What has ended on a stream, and what has begun. */
struct lane {
    int64_t closed, latest; /* ends */
    bool any, any_closed;
};

/* The two that ended last, of different streams. */
struct ended {
    uint32_t first, second; /* works; TRACE_NONE */
};

static void close_work(const struct schedule *s, struct lane *lanes, struct ended *ended,
                       uint32_t work)
{
    struct lane *lane = &lanes[s->works[work].stream];
    lane->closed = s->works[work].end;
    lane->any_closed = true;
    if (ended->first != TRACE_NONE && s->works[ended->first].stream != s->works[work].stream)
        ended->second = ended->first;
    ended->first = work;
}

/* Lags behind streams, the stretch in which a work waited within for its predecessor, and the work
 * of another stream that ended last before. */
static void measure(struct builder *b, struct lane *lanes)
{
    struct schedule *s = b->s;
    struct ended ended = {TRACE_NONE, TRACE_NONE};
    size_t closed = 0;
    for (uint32_t i = 0; i < s->n_works; i++) {
        struct schedule_work *w = &s->works[i];
        struct lane *lane = &lanes[w->stream];
        for (; closed < i && s->works[s->by_end[closed]].end <= w->start; closed++) {
            if (s->by_end[closed] >= i) break;
            close_work(s, lanes, &ended, s->by_end[closed]);
        }
        w->overlaps = lane->any && lane->latest > w->start && w->end > lane->latest;
        w->alone = w->overlaps ? false : !lane->any_closed;
        if (!w->alone && !w->overlaps) w->lag = w->start - lane->closed;
        bool mine = ended.first != TRACE_NONE && s->works[ended.first].stream == w->stream;
        w->other = mine ? ended.second : ended.first;
        if (w->overlaps) w->start = lane->latest;
        if (!lane->any || w->end > lane->latest) lane->latest = w->end;
        lane->any = true;
    }
}

static bool is_first_of_call(const struct builder *b, uint32_t i)
{
    const struct schedule_work *w = &b->s->works[i];
    return w->call != TRACE_NONE && (i == 0 || b->s->works[i - 1].call != w->call);
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median lag of works that the host launched in time. */
static enum sol_status usual_lag(const struct builder *b, int64_t *out)
{
    const struct schedule *s = b->s;
    int64_t *lags = malloc(s->n_works * sizeof *lags);
    size_t n = 0;
    if (!lags) return no_memory();
    for (uint32_t i = 0; i < s->n_works; i++) {
        const struct schedule_work *w = &s->works[i];
        if (w->alone || w->overlaps || w->lag > LAG_MAX) continue;
        int64_t ready = w->start - w->lag;
        if (is_first_of_call(b, i) && s->calls[w->call].start + LAUNCHED_EARLY > ready) continue;
        lags[n++] = w->lag;
    }
    if (n) qsort(lags, n, sizeof *lags, by_value);
    *out = n ? lags[n / 2] : LAG_USUAL;
    free(lags);
    return SOL_OK;
}

/* The least time from a call to what it starts. */
static int64_t latency(const struct builder *b)
{
    int64_t least = LATENCY_MAX;
    for (uint32_t i = 0; i < b->s->n_works; i++) {
        const struct schedule_work *w = &b->s->works[i];
        if (!is_first_of_call(b, i)) continue;
        int64_t time = w->start - b->s->calls[w->call].start;
        if (time < least) least = time;
    }
    return least;
}

static void decide(struct builder *b, uint32_t i, int64_t usual, int64_t launch)
{
    const struct schedule *s = b->s;
    struct schedule_work *w = &b->s->works[i];
    int64_t ready = w->start - w->lag, soonest = ready + (w->lag < usual ? w->lag : usual);
    const struct schedule_work *other = w->other == TRACE_NONE ? NULL : &s->works[w->other];
    if (!is_first_of_call(b, i)) w->call = TRACE_NONE; /* the graph's first work waited for it */
    int64_t called = w->call == TRACE_NONE ? INT64_MIN : s->calls[w->call].start;
    bool late = w->call != TRACE_NONE && (w->alone || called + launch > soonest);
    w->bound = w->alone ? BOUND_NOTHING : BOUND_STREAM;
    if (w->overlaps) late = false;
    if (late) w->bound = BOUND_HOST;
    int64_t explained = late && (w->alone || called + launch > soonest) ? called + launch : soonest;
    bool unexplained =
        !w->overlaps && (w->bound == BOUND_NOTHING || w->start - explained > UNEXPLAINED);
    if (unexplained && other && (w->bound == BOUND_NOTHING || other->end > explained))
        w->bound = BOUND_OTHER;
    if (w->bound != BOUND_STREAM && w->lag > usual) w->lag = usual;
    if (w->bound != BOUND_OTHER) w->other = TRACE_NONE;
    if (w->bound == BOUND_OTHER) w->other_lag = w->start - other->end;
    if (w->call == TRACE_NONE) return;
    w->call_lag = w->start - called;
    if (w->bound != BOUND_HOST && w->call_lag > launch) w->call_lag = launch;
}

static enum sol_status infer(struct builder *b)
{
    struct lane *lanes = calloc(b->s->n_streams, sizeof *lanes);
    int64_t usual;
    if (!lanes) return no_memory();
    measure(b, lanes);
    free(lanes);
    SOL_TRY(usual_lag(b, &usual));
    int64_t launch = latency(b);
    for (uint32_t i = b->s->n_works; i-- > 0;) decide(b, i, usual, launch);
    return SOL_OK;
}

/* ---- the order of things ---- */

static int by_time(const void *a, const void *b)
{
    const struct schedule_point *x = a, *y = b;
    if (x->time != y->time) return x->time > y->time ? 1 : -1;
    if (x->kind != y->kind) return x->kind > y->kind ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static enum sol_status order(struct builder *b)
{
    struct schedule *s = b->s;
    s->points = malloc((s->n_works + 2 * s->n_calls) * sizeof *s->points);
    if (!s->points) return no_memory();
    for (uint32_t i = 0; i < s->n_works; i++)
        s->points[s->n_points++] =
            (struct schedule_point){event(b, &s->works[i])->start, i, POINT_WORK};
    for (uint32_t i = b->needed; i < s->n_calls; i++) {
        s->points[s->n_points++] = (struct schedule_point){s->calls[i].start, i, POINT_CALL};
        s->points[s->n_points++] = (struct schedule_point){s->calls[i].end, i, POINT_RETURN};
        if (s->calls[i].before != TRACE_NONE && s->calls[i].before < b->needed)
            s->calls[i].before = TRACE_NONE;
    }
    qsort(s->points, s->n_points, sizeof *s->points, by_time);
    return SOL_OK;
}

static enum sol_status build(struct builder *b, const struct trace_window_set *windows)
{
    size_t first = 0, last = windows ? windows->count : 0;
    if (last > STEPS_MAX) {
        size_t half = STEPS_MAX / 2, at = windows->typical;
        first = at < half ? 0 : at + half > last ? last - STEPS_MAX : at - half;
        last = first + STEPS_MAX;
    }
    bool whole = last == 0;
    int64_t end = whole ? INT64_MAX : windows->windows[last - 1].end;
    SOL_TRY(add_works(b, whole ? INT64_MIN : windows->windows[first].begin, end));
    SOL_TRY(number_streams(b));
    SOL_TRY(order_ends(b->s));
    SOL_TRY(add_steps(b, windows, first, last));
    SOL_TRY(add_calls(b, end));
    join_works(b);
    join_syncs(b);
    find_waits(b);
    SOL_TRY(infer(b));
    return order(b);
}

enum sol_status schedule_create(const struct timeline *t, const struct trace_window_set *windows,
                                struct schedule **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return no_memory();
    struct builder b = {.t = t, .s = *out};
    enum sol_status status = build(&b, windows);
    free(b.keys);
    free(b.waits);
    free(b.sync_streams);
    if (status == SOL_OK) return SOL_OK;
    schedule_destroy(*out);
    *out = NULL;
    return status;
}

void schedule_destroy(struct schedule *s)
{
    if (!s) return;
    free(s->works);
    free(s->calls);
    free(s->points);
    free(s->steps);
    free(s->by_end);
    free(s);
}
