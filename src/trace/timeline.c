/* Storage of a trace: growing arrays, and hash tables over those that intern. Sorting is a radix
 * sort of (start, index) pairs: events come nearly sorted per producer, but from several. */
#include "trace/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes_hash.h"
#include "base/status.h"

/* Open addressing over the indices of an array; 0 is free, else index + 1. */
struct intern {
    uint32_t *slots;
    size_t n_slots; /* a power of two, at least twice the entries */
};

struct text {
    const char *data; /* NUL-terminated, in the arena */
    size_t length;
};

struct timeline_tables {
    struct arena *arena;
    struct text *texts;
    size_t n_texts;
    struct intern by_text, by_shape, by_transfer;
    size_t event_room, shape_room, transfer_room, sample_room, process_room, device_room,
        count_room, expected_room, note_room, text_room;
    bool finished;
};

const char *event_kind_name(enum event_kind kind)
{
    static const char *const names[EVENT_KIND_COUNT] = {
        "kernel", "copy", "set", "graph", "api", "sync", "marker", "overhead", "load", "alloc"};
    return (unsigned)kind < EVENT_KIND_COUNT ? names[kind] : "?";
}

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[MEMORY_KIND_COUNT] = {"unknown", "pageable", "pinned",
                                                         "device",  "array",    "managed"};
    return (unsigned)kind < MEMORY_KIND_COUNT ? names[kind] : "?";
}

const char *trace_level_name(enum trace_level level)
{
    static const char *const names[TRACE_LEVEL_COUNT] = {"off", "graph", "node", "launch"};
    return (unsigned)level < TRACE_LEVEL_COUNT ? names[level] : "?";
}

/* ---- growing ---- */

/* Room for one more item in *items. */
static enum sol_status grow(void *items, size_t count, size_t *room, size_t size)
{
    void **array = items;
    if (count < *room) return SOL_OK;
    size_t wanted = *room ? *room + *room / 2 : 64;
    if (count >= UINT32_MAX - 1 || wanted > SIZE_MAX / size)
        return status_set(SOL_E_MEMORY, "the trace has more than %zu entries of a kind", count);
    void *grown = realloc(*array, wanted * size);
    if (!grown) return status_set(SOL_E_MEMORY, "out of memory for a trace of %zu entries", wanted);
    *array = grown;
    *room = wanted;
    return SOL_OK;
}

static enum sol_status check_open(const struct timeline *t)
{
    if (t->tables->finished)
        return status_set(SOL_E_INTERNAL, "a finished timeline takes no more events");
    return SOL_OK;
}

/* ---- interning ---- */

static const void *entry_bytes(const struct timeline *t, const struct intern *intern, size_t index,
                               size_t *length)
{
    const struct timeline_tables *tables = t->tables;
    if (intern == &tables->by_text) {
        *length = tables->texts[index].length;
        return tables->texts[index].data;
    }
    if (intern == &tables->by_shape) {
        *length = sizeof *t->shapes;
        return &t->shapes[index];
    }
    *length = sizeof *t->transfers;
    return &t->transfers[index];
}

/* The slot that holds the entry with these bytes, or the free one where it belongs. */
static uint32_t *find_slot(const struct timeline *t, const struct intern *intern, const void *data,
                           size_t length)
{
    size_t mask = intern->n_slots - 1;
    for (size_t at = bytes_hash(data, length) & mask;; at = (at + 1) & mask) {
        uint32_t *slot = &intern->slots[at];
        if (*slot == 0) return slot;
        size_t n;
        const void *entry = entry_bytes(t, intern, *slot - 1, &n);
        if (n == length && memcmp(entry, data, n) == 0) return slot;
    }
}

/* Keeps the table at most half full with one more entry. */
static enum sol_status intern_grow(struct timeline *t, struct intern *intern, size_t count)
{
    if (2 * (count + 1) <= intern->n_slots) return SOL_OK;
    struct intern bigger = {.n_slots = intern->n_slots ? 4 * intern->n_slots : 256};
    bigger.slots = calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots) return status_set(SOL_E_MEMORY, "out of memory for %zu names", count);
    uint32_t *old = intern->slots;
    *intern = bigger;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const void *data = entry_bytes(t, intern, i, &length);
        *find_slot(t, intern, data, length) = (uint32_t)i + 1;
    }
    free(old);
    return SOL_OK;
}

enum sol_status timeline_string(struct timeline *t, const char *text, size_t length, uint32_t *out)
{
    struct timeline_tables *tables = t->tables;
    SOL_TRY(intern_grow(t, &tables->by_text, tables->n_texts));
    uint32_t *slot = find_slot(t, &tables->by_text, text, length);
    if (*slot == 0) {
        SOL_TRY(grow(&tables->texts, tables->n_texts, &tables->text_room, sizeof *tables->texts));
        const char *copy = arena_strndup(tables->arena, text, length);
        if (!copy) return SOL_E_MEMORY;
        tables->texts[tables->n_texts++] = (struct text){copy, length};
        *slot = (uint32_t)tables->n_texts;
    }
    *out = *slot - 1;
    return SOL_OK;
}

const char *timeline_text(const struct timeline *t, uint32_t string)
{
    return string < t->tables->n_texts ? t->tables->texts[string].data : "";
}

size_t timeline_string_count(const struct timeline *t)
{
    return t->tables->n_texts;
}

enum sol_status timeline_shape(struct timeline *t, const struct kernel_shape *shape, uint32_t *out)
{
    struct timeline_tables *tables = t->tables;
    SOL_TRY(intern_grow(t, &tables->by_shape, t->n_shapes));
    uint32_t *slot = find_slot(t, &tables->by_shape, shape, sizeof *shape);
    if (*slot == 0) {
        SOL_TRY(grow(&t->shapes, t->n_shapes, &tables->shape_room, sizeof *t->shapes));
        t->shapes[t->n_shapes++] = *shape;
        *slot = (uint32_t)t->n_shapes;
    }
    *out = *slot - 1;
    return SOL_OK;
}

enum sol_status timeline_transfer(struct timeline *t, const struct transfer *transfer,
                                  uint32_t *out)
{
    struct timeline_tables *tables = t->tables;
    SOL_TRY(intern_grow(t, &tables->by_transfer, t->n_transfers));
    uint32_t *slot = find_slot(t, &tables->by_transfer, transfer, sizeof *transfer);
    if (*slot == 0) {
        SOL_TRY(grow(&t->transfers, t->n_transfers, &tables->transfer_room, sizeof *t->transfers));
        t->transfers[t->n_transfers++] = *transfer;
        *slot = (uint32_t)t->n_transfers;
    }
    *out = *slot - 1;
    return SOL_OK;
}

/* ---- adding ---- */

static bool detail_fits(const struct timeline *t, const struct trace_event *e)
{
    if (e->detail == TRACE_NONE) return true;
    switch (e->kind) {
    case EVENT_KERNEL:
    case EVENT_GRAPH:
        return e->detail < t->n_shapes;
    case EVENT_COPY:
    case EVENT_SET:
    case EVENT_ALLOC:
        return e->detail < t->n_transfers;
    default:
        return false;
    }
}

enum sol_status timeline_add(struct timeline *t, const struct trace_event *event)
{
    SOL_TRY(check_open(t));
    if (event->kind >= EVENT_KIND_COUNT)
        return status_set(SOL_E_FORMAT, "trace: event kind %d is unknown", event->kind);
    if (event->end < event->start)
        return status_set(SOL_E_FORMAT, "trace: a %s ends before it starts",
                          event_kind_name(event->kind));
    bool device_ok = event->device < t->n_devices || event->device == TRACE_NO_DEVICE;
    bool name_ok = event->name < t->tables->n_texts || event->name == TRACE_NONE;
    if (!device_ok || !name_ok || event->process >= t->n_processes || !detail_fits(t, event))
        return status_set(SOL_E_FORMAT, "trace: a %s names something that is not in the trace",
                          event_kind_name(event->kind));
    SOL_TRY(grow(&t->events, t->count, &t->tables->event_room, sizeof *t->events));
    t->events[t->count++] = *event;
    return SOL_OK;
}

enum sol_status timeline_add_sample(struct timeline *t, const struct trace_sample *sample)
{
    SOL_TRY(check_open(t));
    if (sample->device >= t->n_devices)
        return status_set(SOL_E_FORMAT, "trace: a sample of device %u, which is not in the trace",
                          sample->device);
    SOL_TRY(grow(&t->samples, t->n_samples, &t->tables->sample_room, sizeof *t->samples));
    t->samples[t->n_samples++] = *sample;
    return SOL_OK;
}

enum sol_status timeline_add_process(struct timeline *t, const struct trace_process *process,
                                     uint16_t *out)
{
    SOL_TRY(check_open(t));
    if (t->n_processes >= UINT16_MAX)
        return status_set(SOL_E_FORMAT, "trace: more than %d processes", UINT16_MAX);
    SOL_TRY(grow(&t->processes, t->n_processes, &t->tables->process_room, sizeof *t->processes));
    *out = (uint16_t)t->n_processes;
    t->processes[t->n_processes++] = *process;
    return SOL_OK;
}

enum sol_status timeline_add_device(struct timeline *t, const struct trace_device *device,
                                    uint16_t *out)
{
    static const uint8_t unknown[16];
    SOL_TRY(check_open(t));
    if (memcmp(device->uuid, unknown, 16) != 0)
        for (size_t i = 0; i < t->n_devices; i++)
            if (memcmp(device->uuid, t->devices[i].uuid, 16) == 0) {
                *out = (uint16_t)i;
                return SOL_OK;
            }
    if (t->n_devices >= TRACE_NO_DEVICE)
        return status_set(SOL_E_FORMAT, "trace: more than %d devices", TRACE_NO_DEVICE);
    SOL_TRY(grow(&t->devices, t->n_devices, &t->tables->device_room, sizeof *t->devices));
    *out = (uint16_t)t->n_devices;
    t->devices[t->n_devices++] = *device;
    return SOL_OK;
}

enum sol_status timeline_add_count(struct timeline *t, const struct trace_count *count)
{
    SOL_TRY(check_open(t));
    SOL_TRY(grow(&t->counts, t->n_counts, &t->tables->count_room, sizeof *t->counts));
    t->counts[t->n_counts++] = *count;
    return SOL_OK;
}

enum sol_status timeline_add_expected(struct timeline *t, const struct trace_expected *expected)
{
    SOL_TRY(check_open(t));
    for (size_t i = 0; i < t->n_expected; i++) {
        struct trace_expected *e = &t->expected[i];
        if (e->name != expected->name || e->process != expected->process) continue;
        e->kernels = expected->kernels;
        return SOL_OK;
    }
    SOL_TRY(grow(&t->expected, t->n_expected, &t->tables->expected_room, sizeof *t->expected));
    t->expected[t->n_expected++] = *expected;
    return SOL_OK;
}

enum sol_status timeline_add_note(struct timeline *t, const char *text)
{
    uint32_t string;
    SOL_TRY(timeline_string(t, text, strlen(text), &string));
    for (size_t i = 0; i < t->n_notes; i++)
        if (t->notes[i] == string) return SOL_OK;
    SOL_TRY(grow(&t->notes, t->n_notes, &t->tables->note_room, sizeof *t->notes));
    t->notes[t->n_notes++] = string;
    return SOL_OK;
}

/* ---- finishing ---- */

struct key {
    uint64_t start; /* since the origin, so that high digits are mostly zero and skipped */
    size_t index;
};

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Stable, by start. `keys` and `spare` have `n` entries; returns the one that holds the result. */
static struct key *sort_keys(struct key *keys, struct key *spare, size_t n, uint64_t span)
{
    for (unsigned shift = 0; shift < 64 && span >> shift; shift += DIGIT_BITS) {
        size_t starts[DIGITS] = {0};
        for (size_t i = 0; i < n; i++) starts[keys[i].start >> shift & (DIGITS - 1)]++;
        for (size_t d = 0, sum = 0; d < DIGITS; d++) {
            size_t count = starts[d];
            starts[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            spare[starts[keys[i].start >> shift & (DIGITS - 1)]++] = keys[i];
        struct key *other = keys;
        keys = spare;
        spare = other;
    }
    return keys;
}

static bool is_sorted(const struct timeline *t)
{
    for (size_t i = 1; i < t->count; i++)
        if (t->events[i].start < t->events[i - 1].start) return false;
    return true;
}

static enum sol_status sort_events(struct timeline *t, uint64_t span)
{
    if (is_sorted(t)) return SOL_OK;
    struct key *keys = malloc(2 * t->count * sizeof *keys);
    struct trace_event *events = malloc(t->count * sizeof *events);
    if (!keys || !events) {
        free(keys);
        free(events);
        return status_set(SOL_E_MEMORY, "out of memory to sort a trace of %zu events", t->count);
    }
    for (size_t i = 0; i < t->count; i++)
        keys[i] = (struct key){(uint64_t)t->events[i].start - (uint64_t)t->origin, i};
    const struct key *sorted = sort_keys(keys, keys + t->count, t->count, span);
    for (size_t i = 0; i < t->count; i++) events[i] = t->events[sorted[i].index];
    free(keys);
    free(t->events);
    t->events = events;
    t->tables->event_room = t->count;
    return SOL_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct trace_sample *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

/* Differences of hostile times wrap instead of overflowing; they are then merely wrong. */
static int64_t since(int64_t time, int64_t origin)
{
    return (int64_t)((uint64_t)time - (uint64_t)origin);
}

static void rebase(struct timeline *t)
{
    t->end = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct trace_event *e = &t->events[i];
        e->start = since(e->start, t->origin);
        e->end = since(e->end, t->origin);
        if (e->end > t->end) t->end = e->end;
    }
    for (size_t i = 0; i < t->n_samples; i++)
        t->samples[i].time = since(t->samples[i].time, t->origin);
    for (size_t i = 0; i < t->n_processes; i++) {
        t->processes[i].start = since(t->processes[i].start, t->origin);
        t->processes[i].end = since(t->processes[i].end, t->origin);
    }
}

static int by_name(const void *a, const void *b)
{
    const struct trace_count *x = a, *y = b;
    return (x->name > y->name) - (x->name < y->name);
}

static int by_launches(const void *a, const void *b)
{
    const struct trace_count *x = a, *y = b;
    uint64_t m = x->launched + x->in_graphs, n = y->launched + y->in_graphs;
    return m != n ? (m < n) - (m > n) : by_name(a, b);
}

/* One entry a kernel. */
static void join_counts(struct timeline *t)
{
    size_t n = 0;
    if (t->n_counts == 0) return;
    qsort(t->counts, t->n_counts, sizeof *t->counts, by_name);
    for (size_t i = 0; i < t->n_counts; i++) {
        const struct trace_count c = t->counts[i];
        if (n == 0 || t->counts[n - 1].name != c.name) {
            t->counts[n++] = c;
            continue;
        }
        t->counts[n - 1].launched += c.launched;
        t->counts[n - 1].in_graphs += c.in_graphs;
    }
    t->n_counts = n;
    qsort(t->counts, n, sizeof *t->counts, by_launches);
}

static enum trace_level least_detailed(const struct timeline *t)
{
    static const int detail[TRACE_LEVEL_COUNT] = {
        [TRACE_OFF] = 0, [TRACE_LAUNCH] = 1, [TRACE_GRAPH] = 2, [TRACE_NODE] = 3};
    enum trace_level least = t->n_processes ? TRACE_NODE : TRACE_OFF;
    for (size_t i = 0; i < t->n_processes; i++) {
        enum trace_level level = (enum trace_level)t->processes[i].level;
        if ((unsigned)level < TRACE_LEVEL_COUNT && detail[level] < detail[least]) least = level;
    }
    return least;
}

enum sol_status timeline_finish(struct timeline *t)
{
    SOL_TRY(check_open(t));
    if (t->count) {
        int64_t first = INT64_MAX, last = INT64_MIN;
        double total = 0;
        for (size_t i = 0; i < t->count; i++) {
            if (t->events[i].start < first) first = t->events[i].start;
            if (t->events[i].end > last) last = t->events[i].end;
            total += (double)t->events[i].end - (double)t->events[i].start;
        }
        /* Then no sum over events, or over the gaps of all devices, leaves 64 bits. */
        double span = (double)last - (double)first;
        if (total + span * (double)(t->n_devices + 1) > 0x1p62)
            return status_set(SOL_E_FORMAT, "trace: its times add up to more than 146 years");
        t->origin = first;
        SOL_TRY(sort_events(t, (uint64_t)last - (uint64_t)first));
    } else if (t->n_processes) {
        t->origin = t->processes[0].start;
    }
    rebase(t);
    if (t->n_samples) qsort(t->samples, t->n_samples, sizeof *t->samples, by_time);
    join_counts(t);
    t->level = least_detailed(t);
    t->tables->finished = true;
    return SOL_OK;
}

/* ---- reading ---- */

const struct kernel_shape *timeline_event_shape(const struct timeline *t,
                                                const struct trace_event *event)
{
    bool has = event->kind == EVENT_KERNEL || event->kind == EVENT_GRAPH;
    return has && event->detail < t->n_shapes ? &t->shapes[event->detail] : NULL;
}

const struct transfer *timeline_event_transfer(const struct timeline *t,
                                               const struct trace_event *event)
{
    bool has = event->kind == EVENT_COPY || event->kind == EVENT_SET || event->kind == EVENT_ALLOC;
    return has && event->detail < t->n_transfers ? &t->transfers[event->detail] : NULL;
}

size_t timeline_lower_bound(const struct timeline *t, int64_t time)
{
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->events[middle].start < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- life ---- */

enum sol_status timeline_create(struct timeline **out)
{
    *out = NULL;
    struct timeline *t = calloc(1, sizeof *t);
    if (!t) goto fail;
    t->tables = calloc(1, sizeof *t->tables);
    if (!t->tables || arena_create((size_t)1 << 16, &t->tables->arena) != SOL_OK) goto fail;
    *out = t;
    return SOL_OK;
fail:
    timeline_destroy(t);
    return status_set(SOL_E_MEMORY, "out of memory for a trace");
}

void timeline_destroy(struct timeline *t)
{
    if (!t) return;
    if (t->tables) {
        arena_destroy(t->tables->arena);
        free(t->tables->texts);
        free(t->tables->by_text.slots);
        free(t->tables->by_shape.slots);
        free(t->tables->by_transfer.slots);
        free(t->tables);
    }
    free(t->events);
    free(t->shapes);
    free(t->transfers);
    free(t->samples);
    free(t->processes);
    free(t->devices);
    free(t->counts);
    free(t->expected);
    free(t->notes);
    free(t);
}
