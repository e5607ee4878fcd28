#include "trace/trace_write.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "trace/trace_file.h"

enum { STEPS = 24, STEPS_LEAST = 3 };

struct writer {
    const struct timeline *t;
    char *data;
    size_t size, room, block; /* block: where the open one begins; 0: none */
    uint16_t process;
    bool *strings, *shapes; /* that were written */
    bool failed;
};

/* ---- bytes ---- */

static void put(struct writer *w, const void *bytes, size_t size)
{
    if (w->failed) return;
    if (w->size + size > w->room) {
        size_t room = 2 * (w->size + size);
        char *grown = realloc(w->data, room);
        w->failed = grown == NULL;
        if (!grown) return;
        w->data = grown;
        w->room = room;
    }
    memcpy(w->data + w->size, bytes, size);
    w->size += size;
}

static void end_block(struct writer *w)
{
    if (w->failed || w->block == 0) return;
    struct trace_block head = {.magic = TRACE_BLOCK_MAGIC};
    head.size = (uint32_t)(w->size - w->block - sizeof head);
    head.checksum = trace_checksum(w->data + w->block + sizeof head, head.size);
    memcpy(w->data + w->block, &head, sizeof head);
    w->block = 0;
}

static void put_record(struct writer *w, uint16_t type, uint32_t name, void *record, size_t size,
                       const char *text)
{
    static const char zeros[8];
    size_t length = text ? strnlen(text, TRACE_RECORD_MAX - size - 8) : 0;
    size_t pad = (8 - length % 8) % 8;
    struct trace_record head = {type, (uint16_t)(size + length + pad), name};
    memcpy(record, &head, sizeof head);
    if (w->block && w->size - w->block > TRACE_BLOCK_MAX / 2) end_block(w);
    if (w->block == 0) {
        struct trace_block open = {.magic = 0};
        w->block = w->size;
        put(w, &open, sizeof open);
    }
    put(w, record, size);
    if (text) put(w, text, length);
    if (text) put(w, zeros, pad);
}

#define PUT(w, type, name, record) put_record((w), (type), (name), &(record), sizeof(record), NULL)

/* ---- names and shapes, each before its first use ---- */

/* Numbers begin at 1. */
static uint32_t name_of(struct writer *w, uint32_t string)
{
    struct trace_record record;
    if (string == TRACE_NONE) return 0;
    if (!w->strings[string]) {
        w->strings[string] = true;
        put_record(w, TRACE_STRING, string + 1, &record, sizeof record,
                   timeline_text(w->t, string));
    }
    return string + 1;
}

static uint32_t shape_of(struct writer *w, uint32_t index)
{
    const struct kernel_shape *s = &w->t->shapes[index];
    if (w->shapes[index]) return index + 1;
    w->shapes[index] = true;
    struct trace_shape_record record = {.registers = s->registers,
                                        .shared_static = s->shared_static,
                                        .shared_dynamic = s->shared_dynamic,
                                        .local = s->local};
    memcpy(record.grid, s->grid, sizeof record.grid);
    memcpy(record.block, s->block, sizeof record.block);
    memcpy(record.cluster, s->cluster, sizeof record.cluster);
    PUT(w, TRACE_SHAPE, index + 1, record);
    return index + 1;
}

/* ---- events ---- */

static void put_work(struct writer *w, const struct trace_event *e)
{
    static const uint16_t types[] = {TRACE_KERNEL, TRACE_COPY, TRACE_SET, TRACE_GRAPH_RUN};
    const struct kernel_shape *shape = timeline_event_shape(w->t, e);
    const struct transfer *transfer = timeline_event_transfer(w->t, e);
    struct trace_work_record record = {.start = e->start,
                                       .end = e->end,
                                       .correlation = e->correlation,
                                       .device = e->device == TRACE_NO_DEVICE ? 0 : e->device,
                                       .context = e->context,
                                       .stream = e->track};
    uint32_t name = name_of(w, e->name);
    if (shape) {
        record.shape = shape_of(w, e->detail);
        record.graph = shape->graph;
        record.node = shape->node;
    }
    if (transfer) {
        record.graph = transfer->graph;
        record.node = transfer->node;
        record.bytes = transfer->bytes;
        record.from = transfer->from;
        record.to = transfer->to;
        record.flags = transfer->flags;
    }
    PUT(w, types[e->kind], name, record);
}

static void put_host(struct writer *w, const struct trace_event *e)
{
    struct trace_host_record record = {.start = e->start,
                                       .end = e->end,
                                       .correlation = e->correlation,
                                       .thread = e->track,
                                       .context = e->context,
                                       .stream = e->track};
    uint32_t name = name_of(w, e->name);
    PUT(w, e->kind == EVENT_API ? TRACE_API : TRACE_SYNC, name, record);
}

static void put_marker(struct writer *w, const struct trace_event *e, uint32_t id)
{
    struct trace_marker_record record = {
        .time = e->start, .id = id, .flags = TRACE_MARKER_START, .thread = e->track};
    uint32_t name = name_of(w, e->name);
    PUT(w, TRACE_MARKER, name, record);
    record.time = e->end;
    record.flags = TRACE_MARKER_END;
    PUT(w, TRACE_MARKER, name, record);
}

static void put_heads(struct writer *w)
{
    const struct trace_process *p = &w->t->processes[w->process];
    struct trace_process_record process = {
        .pid = p->pid, .parent = p->parent, .start = p->start, .level = p->level};
    uint32_t name = name_of(w, p->command);
    PUT(w, TRACE_PROCESS, name, process);
    for (size_t i = 0; i < w->t->n_devices; i++) {
        const struct trace_device *d = &w->t->devices[i];
        struct trace_device_record device = {.memory_bytes = d->memory_bytes,
                                             .memory_kbytes_per_s =
                                                 (uint64_t)(d->memory_bandwidth / 1e3),
                                             .device = (uint32_t)i,
                                             .clock_khz = (uint32_t)(d->clock_hz / 1e3),
                                             .sm_count = d->sm_count,
                                             .compute_major = d->compute_major,
                                             .compute_minor = d->compute_minor};
        memcpy(device.uuid, d->uuid, sizeof device.uuid);
        name = name_of(w, d->name);
        PUT(w, TRACE_DEVICE, name, device);
    }
}

/* ---- a stretch ---- */

/* When the calls began that started the works of [begin, end]: their numbers rise with time. */
static int64_t first_call(const struct writer *w, int64_t begin, int64_t end)
{
    const struct timeline *t = w->t;
    size_t last = timeline_lower_bound(t, end + 1);
    uint32_t least = UINT32_MAX;
    for (size_t i = timeline_lower_bound(t, begin); i < last; i++) {
        const struct trace_event *e = &t->events[i];
        if (event_on_device(e->kind) && e->process == w->process && e->correlation &&
            e->correlation < least)
            least = e->correlation;
    }
    for (size_t i = 0; i < last; i++) {
        const struct trace_event *e = &t->events[i];
        if (e->kind == EVENT_API && e->process == w->process && e->correlation >= least)
            return e->start < begin ? e->start : begin;
    }
    return begin;
}

static enum sol_status write_stretch(struct writer *w, int64_t begin, int64_t end)
{
    const struct timeline *t = w->t;
    struct trace_file_header head = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof head};
    int64_t called = first_call(w, begin, end);
    put(w, &head, sizeof head);
    put_heads(w);
    for (size_t i = timeline_lower_bound(t, called); i < t->count && t->events[i].start <= end;
         i++) {
        const struct trace_event *e = &t->events[i];
        if (e->process != w->process) continue;
        if (event_on_device(e->kind) && e->start >= begin) put_work(w, e);
        if (e->kind == EVENT_API || e->kind == EVENT_SYNC) put_host(w, e);
        if (e->kind == EVENT_MARKER && e->end > e->start && e->end <= end)
            put_marker(w, e, (uint32_t)i);
    }
    struct trace_end_record last = {.time = end};
    PUT(w, TRACE_END, 0, last);
    end_block(w);
    return w->failed ? status_set(SOL_E_MEMORY, "out of memory to keep the steps of a trace")
                     : SOL_OK;
}

static enum sol_status busiest_process(struct writer *w, int64_t begin, int64_t end)
{
    const struct timeline *t = w->t;
    size_t *works = calloc(t->n_processes + 1, sizeof *works);
    if (!works) return status_set(SOL_E_MEMORY, "out of memory to keep the steps of a trace");
    for (size_t i = timeline_lower_bound(t, begin); i < t->count && t->events[i].start <= end; i++)
        if (event_on_device(t->events[i].kind)) works[t->events[i].process]++;
    w->process = 0;
    for (uint16_t i = 0; i < t->n_processes; i++)
        if (works[i] > works[w->process]) w->process = i;
    free(works);
    return SOL_OK;
}

/* `steps` of them, the typical one in the middle. */
static enum sol_status write_steps(const struct timeline *t, const struct trace_window_set *windows,
                                   size_t steps, struct writer *w)
{
    size_t half = steps / 2, at = windows->typical, n = windows->count;
    size_t first = at < half ? 0 : at - half;
    if (first + steps > n) first = n - steps;
    int64_t begin = windows->windows[first].begin, end = windows->windows[first + steps - 1].end;
    *w = (struct writer){.t = t};
    w->strings = calloc(timeline_string_count(t) + 1, sizeof *w->strings);
    w->shapes = calloc(t->n_shapes + 1, sizeof *w->shapes);
    enum sol_status status = w->strings && w->shapes
                                 ? busiest_process(w, begin, end)
                                 : status_set(SOL_E_MEMORY, "out of memory to keep a trace");
    if (status == SOL_OK) status = write_stretch(w, begin, end);
    free(w->strings);
    free(w->shapes);
    return status;
}

enum sol_status trace_write_steps(const struct timeline *t, const struct trace_window_set *windows,
                                  size_t most, char **data, size_t *size)
{
    *data = NULL;
    *size = 0;
    size_t steps = windows->count < STEPS ? windows->count : STEPS;
    for (; steps >= STEPS_LEAST;
         steps = steps > STEPS_LEAST && steps / 2 < STEPS_LEAST ? STEPS_LEAST : steps / 2) {
        struct writer w;
        enum sol_status status = write_steps(t, windows, steps, &w);
        if (status == SOL_OK && w.size <= most) {
            *data = w.data;
            *size = w.size;
            return SOL_OK;
        }
        free(w.data);
        SOL_TRY(status);
    }
    return SOL_OK;
}
