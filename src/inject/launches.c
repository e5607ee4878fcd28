/* Device times come from events: one is recorded before a graph and one behind it, and a thread
 * looks every FLUSH_MS which have happened. An event's time is known only as a distance to another
 * one, a float of milliseconds: to stay exact, each run's end is the origin of the next one. */
#include "inject/launches.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject/writer.h"

enum {
    PLACES_MAX = 16,       /* contexts whose graphs are timed */
    PENDING_MAX = 1 << 14, /* runs that have not ended yet; beyond it they are not timed */
    NODE_KERNEL = 0,
    NODE_GRAPH = 4,
    DEPTH_MAX = 8, /* of graphs within graphs */
    CAPTURE_RELAXED = 2,
    STREAM_APART = 1, /* it waits for no other stream */
    /* H100, driver 580: a pair of events makes a step of a graph 9 us longer. */
    RUN_COST_NS = 9000,
    SAMPLE_RUNS = 512,
};

/* From a pointer to a number; slots hold the number + 1. Nothing is ever removed: a pointer that
 * comes again is given its number anew. */
struct pointers {
    const void **keys;
    uint32_t *values;
    uint32_t room, count;
};

struct kernel {
    const char *name; /* copied; the driver's may go with its module */
    uint64_t launched, in_graphs, told[2];
};

struct graph {
    struct {
        uint32_t kernel, count;
    } * kernels;
    uint32_t n_kernels, number;
    uint64_t runs, told;
};

/* A context: events of different ones have no distance. */
struct place {
    void *context;
    uint32_t device;
    void *origin; /* event */
    int64_t origin_time;
    void **spare;
    uint32_t n_spare, spare_room;
};

struct pending {
    void *begin, *end;
    uint32_t place, graph, correlation;
    void *stream;
};

static struct {
    struct driver driver;
    pthread_mutex_t collecting; /* one thread at a time moves origins */
    _Atomic(bool) on;
    _Atomic(int) captures;
    /* The rest under the writer's lock. */
    struct pointers kernel_of, graph_of;
    struct kernel *kernels;
    struct graph *graphs;
    uint32_t n_kernels, n_graphs, n_places, correlation;
    struct place places[PLACES_MAX];
    struct pending *pending, *taken; /* [PENDING_MAX] */
    uint32_t n_pending;
    int64_t first_run, timed_runs;
    bool enough; /* no more runs are timed */
} launches = {.collecting = PTHREAD_MUTEX_INITIALIZER};

int64_t launches_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint32_t thread_number(void)
{
    static __thread uint32_t number;
    if (number == 0) number = (uint32_t)syscall(SYS_gettid);
    return number;
}

/* ---- numbers of pointers ---- */

static uint32_t slot_of(const struct pointers *p, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) & (p->room - 1);
    while (p->keys[at] && p->keys[at] != key) at = (at + 1) & (p->room - 1);
    return at;
}

static uint32_t find(const struct pointers *p, const void *key)
{
    return p->room ? p->values[slot_of(p, key)] : 0;
}

static bool set(struct pointers *p, const void *key, uint32_t value)
{
    if (2 * (p->count + 1) > p->room) {
        struct pointers grown = {.room = p->room ? 4 * p->room : 256, .count = p->count};
        grown.keys = calloc(grown.room, sizeof *grown.keys);
        grown.values = calloc(grown.room, sizeof *grown.values);
        if (!grown.keys || !grown.values) {
            free(grown.keys);
            free(grown.values);
            return false;
        }
        for (uint32_t i = 0; i < p->room; i++) {
            if (!p->keys[i]) continue;
            uint32_t at = slot_of(&grown, p->keys[i]);
            grown.keys[at] = p->keys[i];
            grown.values[at] = p->values[i];
        }
        free(p->keys);
        free(p->values);
        *p = grown;
    }
    uint32_t at = slot_of(p, key);
    p->count += p->keys[at] == NULL;
    p->keys[at] = key;
    p->values[at] = value;
    return true;
}

/* One more in a growing array of `count`. */
static bool grow(void **items, uint32_t count, size_t size)
{
    if (count & (count - 1)) return true; /* grows at powers of two */
    void *grown = realloc(*items, (count ? 2 * (size_t)count : 1) * size);
    if (grown) *items = grown;
    return grown != NULL;
}

/* ---- kernels and graphs ---- */

/* The number of the kernel, from 1; 0 without memory. */
static uint32_t kernel_number(void *handle)
{
    uint32_t number = find(&launches.kernel_of, handle);
    const char *name = NULL;
    if (number) return number;
    if (launches.driver.function_name(&name, handle) != 0 &&
        launches.driver.kernel_name(&name, handle) != 0)
        name = NULL;
    char *copy = strdup(name ? name : "(a kernel without a name)");
    if (!copy || !grow((void **)&launches.kernels, launches.n_kernels, sizeof *launches.kernels) ||
        !set(&launches.kernel_of, handle, launches.n_kernels + 1)) {
        free(copy);
        return 0;
    }
    launches.kernels[launches.n_kernels] = (struct kernel){.name = copy};
    return ++launches.n_kernels;
}

static void add_kernel(struct graph *g, uint32_t kernel)
{
    for (uint32_t i = 0; i < g->n_kernels; i++)
        if (g->kernels[i].kernel == kernel) {
            g->kernels[i].count++;
            return;
        }
    if (kernel == 0 || !grow((void **)&g->kernels, g->n_kernels, sizeof *g->kernels)) return;
    g->kernels[g->n_kernels].kernel = kernel;
    g->kernels[g->n_kernels++].count = 1;
}

/* CUDA_KERNEL_NODE_PARAMS_v2, of which the handles are read. */
struct node_params {
    void *function;
    uint32_t grid[3], block[3], shared;
    void *parameters, *extra, *kernel, *context;
};

static void add_nodes(struct graph *g, void *graph, int depth)
{
    const struct driver *driver = &launches.driver;
    size_t n = 0;
    if (depth == DEPTH_MAX || driver->graph_nodes(graph, NULL, &n) != 0 || n == 0) return;
    void **nodes = calloc(n, sizeof *nodes);
    if (nodes && driver->graph_nodes(graph, nodes, &n) != 0) n = 0;
    for (size_t i = 0; nodes && i < n; i++) {
        struct node_params params = {0};
        void *child = NULL;
        int type = -1;
        if (driver->node_type(nodes[i], &type) != 0) continue;
        if (type == NODE_KERNEL && driver->node_kernel(nodes[i], &params) == 0)
            add_kernel(g, kernel_number(params.function ? params.function : params.kernel));
        if (type == NODE_GRAPH && driver->node_graph(nodes[i], &child) == 0)
            add_nodes(g, child, depth + 1);
    }
    free(nodes);
}

void launches_graph_made(void *exec, void *graph)
{
    if (!atomic_load(&launches.on)) return;
    writer_lock();
    struct graph made = {.number = launches.n_graphs + 1};
    add_nodes(&made, graph, 0);
    if (grow((void **)&launches.graphs, launches.n_graphs, sizeof *launches.graphs) &&
        set(&launches.graph_of, exec, made.number))
        launches.graphs[launches.n_graphs++] = made;
    else
        free(made.kernels);
    writer_unlock();
}

void launches_graph_gone(void *exec)
{
    if (!atomic_load(&launches.on)) return;
    writer_lock();
    uint32_t number = find(&launches.graph_of, exec);
    if (number) {
        struct graph *g = &launches.graphs[number - 1];
        free(g->kernels);
        g->kernels = NULL;
        g->n_kernels = 0;
        set(&launches.graph_of, exec, 0);
    }
    writer_unlock();
}

/* ---- calls ---- */

static uint32_t write_call(const char *name, int64_t start)
{
    struct trace_host_record record = {
        .record.name = writer_string(name),
        .start = start,
        .end = launches_now(),
        .correlation = ++launches.correlation,
        .thread = thread_number(),
    };
    WRITER_PUT(TRACE_API, record);
    return record.correlation;
}

void launches_call(const char *name, int64_t start)
{
    if (!atomic_load_explicit(&launches.on, memory_order_relaxed)) return;
    writer_lock();
    write_call(name, start);
    writer_unlock();
}

void launches_capturing(int change)
{
    atomic_fetch_add(&launches.captures, change);
}

/* Asks the driver only while something is captured at all. */
static bool captured(void *stream)
{
    int status = 0;
    return atomic_load_explicit(&launches.captures, memory_order_relaxed) > 0 &&
           launches.driver.is_capturing(stream, &status) == 0 && status != 0;
}

void launches_kernel(const char *name, int64_t start, void *kernel, void *stream)
{
    if (!atomic_load_explicit(&launches.on, memory_order_relaxed) || captured(stream)) return;
    writer_lock();
    write_call(name, start);
    uint32_t number = kernel_number(kernel);
    if (number) launches.kernels[number - 1].launched++;
    writer_unlock();
}

/* ---- runs of graphs ---- */

static void write_device(int device)
{
    char name[96] = "";
    struct trace_device_record record = {.device = (uint32_t)device};
    launches.driver.device_name(name, sizeof name - 1, device);
    launches.driver.device_uuid(record.uuid, device);
    static const int numbers[] = {16, 13, 75, 76}; /* CU_DEVICE_ATTRIBUTE_... */
    uint32_t *const fields[] = {&record.sm_count, &record.clock_khz, &record.compute_major,
                                &record.compute_minor};
    for (int i = 0; i < 4; i++) {
        int value = 0;
        if (launches.driver.device_attribute(&value, numbers[i], device) == 0 && value > 0)
            *fields[i] = (uint32_t)value;
    }
    record.record.name = writer_string(name);
    WRITER_PUT(TRACE_DEVICE, record);
}

/* Another thread may be capturing a stream in the mode that forbids such calls to everybody. */
static int relax(void)
{
    int mode = CAPTURE_RELAXED;
    launches.driver.capture_mode(&mode);
    return mode;
}

static void *take_event(struct place *place)
{
    void *event = NULL;
    if (place->n_spare > 0) return place->spare[--place->n_spare];
    int before = relax();
    if (launches.driver.event_create(&event, 0) != 0) event = NULL;
    launches.driver.capture_mode(&before);
    return event;
}

static void give_event(struct place *place, void *event)
{
    if (!event) return;
    if (place->n_spare == place->spare_room) {
        uint32_t room = place->spare_room ? 2 * place->spare_room : 64;
        void **grown = realloc(place->spare, room * sizeof *grown);
        if (!grown) return; /* the driver keeps it until the context goes */
        place->spare = grown;
        place->spare_room = room;
    }
    place->spare[place->n_spare++] = event;
}

/* The first event of a context, waited for: that joins the device's time with the host's. On a
 * stream of its own, because the program's may be waiting for what the host does next. */
static bool set_origin(struct place *place)
{
    void *stream = NULL;
    place->origin = take_event(place);
    int before = relax();
    bool good = place->origin && launches.driver.stream_create(&stream, STREAM_APART) == 0 &&
                launches.driver.event_record(place->origin, stream) == 0 &&
                launches.driver.event_wait(place->origin) == 0;
    place->origin_time = launches_now();
    if (stream) launches.driver.stream_destroy(stream);
    launches.driver.capture_mode(&before);
    return good;
}

/* PLACES_MAX when the context cannot have one. */
static uint32_t place_of(void)
{
    void *context = NULL;
    int device = 0;
    if (launches.driver.context(&context) != 0 || !context) return PLACES_MAX;
    for (uint32_t i = 0; i < launches.n_places; i++)
        if (launches.places[i].context == context)
            return launches.places[i].origin_time ? i : PLACES_MAX;
    if (launches.n_places == PLACES_MAX || launches.driver.device(&device) != 0) return PLACES_MAX;
    struct place *place = &launches.places[launches.n_places++];
    *place = (struct place){.context = context, .device = (uint32_t)device};
    write_device(device);
    if (set_origin(place)) return launches.n_places - 1;
    place->origin_time = 0;
    return PLACES_MAX;
}

static bool affordable(void)
{
    int64_t now = launches_now();
    if (launches.first_run == 0) launches.first_run = now;
    if (launches.enough || launches.n_pending == PENDING_MAX) return false;
    if (launches.timed_runs < SAMPLE_RUNS ||
        launches.timed_runs * RUN_COST_NS < (now - launches.first_run) / 100)
        return true;
    launches.enough = true;
    writer_note(
        "graphs run so often that timing each would cost over 1 %: the first ones were timed, "
        "the others counted");
    return false;
}

void launches_graph_before(struct launches_run *run, void *exec, void *stream)
{
    (void)exec;
    *run = (struct launches_run){.place = PLACES_MAX};
    if (!atomic_load_explicit(&launches.on, memory_order_relaxed) || captured(stream)) return;
    writer_lock();
    run->place = affordable() ? place_of() : PLACES_MAX;
    if (run->place < PLACES_MAX) {
        run->begin = take_event(&launches.places[run->place]);
        run->end = take_event(&launches.places[run->place]);
    }
    writer_unlock();
    if (run->begin && launches.driver.event_record(run->begin, stream) != 0)
        run->place = PLACES_MAX;
    run->start = launches_now();
}

void launches_graph_after(const char *name, struct launches_run *run, void *exec, void *stream,
                          int result)
{
    if (run->start == 0) return;
    int64_t start = run->start;
    bool timed = result == 0 && run->place < PLACES_MAX && run->begin && run->end;
    writer_lock();
    uint32_t correlation = write_call(name, start), number = find(&launches.graph_of, exec);
    if (number && result == 0) {
        struct graph *g = &launches.graphs[number - 1];
        g->runs++;
        for (uint32_t i = 0; i < g->n_kernels; i++)
            launches.kernels[g->kernels[i].kernel - 1].in_graphs += g->kernels[i].count;
    }
    launches.timed_runs += timed;
    writer_unlock();
    if (!timed || launches.driver.event_record(run->end, stream) != 0) return;
    writer_lock();
    if (launches.n_pending < PENDING_MAX)
        launches.pending[launches.n_pending++] =
            (struct pending){run->begin, run->end, run->place, number, correlation, stream};
    writer_unlock();
}

static bool distance(void *from, void *to, int64_t *ns)
{
    float ms = 0;
    if (launches.driver.event_elapsed(&ms, from, to) != 0) return false;
    *ns = (int64_t)((double)ms * 1e6);
    return true;
}

static uint32_t graph_name(uint32_t number)
{
    char name[32];
    snprintf(name, sizeof name, "graph %u", number);
    return writer_string(name);
}

static void write_run(const struct pending *p, const struct place *place, int64_t start,
                      int64_t end)
{
    struct trace_work_record record = {
        .record.name = graph_name(p->graph),
        .start = start,
        .end = end > start ? end : start,
        .correlation = p->correlation,
        .device = place->device,
        .context = p->place + 1,
        .stream = (uint32_t)(uintptr_t)p->stream,
        .graph = p->graph,
    };
    WRITER_PUT(TRACE_GRAPH_RUN, record);
}

/* The runs at the front that have ended; the driver is asked without the lock, so that nobody who
 * launches waits for it. */
static uint32_t collect_runs(struct pending *runs, uint32_t n)
{
    uint32_t done = 0;
    for (; done < n; done++) {
        const struct pending *p = &runs[done];
        struct place *place = &launches.places[p->place];
        int64_t start, end;
        int state = launches.driver.event_query(p->end);
        if (state == 600) break; /* CUDA_ERROR_NOT_READY */
        bool known = state == 0 && distance(place->origin, p->begin, &start) &&
                     distance(place->origin, p->end, &end);
        writer_lock();
        give_event(place, p->begin);
        if (known) {
            write_run(p, place, place->origin_time + start, place->origin_time + end);
            give_event(place, place->origin);
            place->origin = p->end;
            place->origin_time += end;
        } else {
            give_event(place, p->end);
            writer_lost(0, 1, 0);
        }
        writer_unlock();
    }
    return done;
}

/* What was counted since the last time. */
static void write_counts(void)
{
    for (uint32_t i = 0; i < launches.n_kernels; i++) {
        struct kernel *k = &launches.kernels[i];
        struct trace_count_record record = {.launched = k->launched - k->told[0],
                                            .in_graphs = k->in_graphs - k->told[1]};
        if ((record.launched | record.in_graphs) == 0) continue;
        record.record.name = writer_string(k->name);
        WRITER_PUT(TRACE_COUNT, record);
        k->told[0] = k->launched;
        k->told[1] = k->in_graphs;
    }
    for (uint32_t i = 0; i < launches.n_graphs; i++) {
        struct graph *g = &launches.graphs[i];
        struct trace_count_record record = {.launched = g->runs - g->told};
        if (record.launched == 0) continue;
        record.record.name = graph_name(g->number);
        WRITER_PUT(TRACE_COUNT, record);
        g->told = g->runs;
    }
}

void launches_collect(void)
{
    if (!atomic_load(&launches.on)) return;
    pthread_mutex_lock(&launches.collecting);
    int before = relax();
    writer_lock();
    uint32_t n = launches.n_pending;
    memcpy(launches.taken, launches.pending, n * sizeof *launches.taken);
    writer_unlock();
    uint32_t done = collect_runs(launches.taken, n);
    writer_lock();
    launches.n_pending -= done;
    memmove(launches.pending, launches.pending + done,
            launches.n_pending * sizeof *launches.pending);
    write_counts();
    writer_unlock();
    launches.driver.capture_mode(&before);
    pthread_mutex_unlock(&launches.collecting);
}

bool launches_start(const struct driver *driver)
{
    launches.driver = *driver;
    launches.pending = calloc(PENDING_MAX, sizeof *launches.pending);
    launches.taken = calloc(PENDING_MAX, sizeof *launches.taken);
    if (!launches.pending || !launches.taken) return false;
    atomic_store(&launches.on, true);
    return true;
}

void launches_stop(void)
{
    launches_collect();
    atomic_store(&launches.on, false);
}

void launches_forked(void)
{
    atomic_store(&launches.on, false);
}
