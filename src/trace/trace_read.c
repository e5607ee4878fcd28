/* Nothing in a file is trusted: sizes are checked before a record is read, numbers of names, shapes
 * and devices are looked up in tables, and what refers to nothing keeps its place with no name. */
#include "trace/trace_read.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "trace/demangle.h"
#include "trace/trace_file.h"

/* From a file's numbers, which start at 1, to those of the time line. */
struct number_map {
    uint32_t *to; /* TRACE_NONE where the file has not defined the number */
    size_t count;
};

/* A range of NVTX whose end has not come yet. */
struct open_range {
    uint32_t id, name, thread;
    int64_t start;
};

struct reader {
    struct timeline *t;
    struct number_map names, shapes, devices; /* devices: by ordinal */
    struct open_range *open;
    size_t n_open, open_room;
    uint16_t process; /* once has_process: files of samples have none */
    bool has_process, complete;
    bool joined;      /* the process is another file's */
    uint32_t numbers; /* names and shapes count from 1, and each takes a record: none is larger */
    int64_t first, last; /* times seen */
};

enum { NUMBERS_MAX = 1 << 24, ORDINAL_MAX = 1 << 10, OPEN_MAX = 1 << 16 };

static enum sol_status map_set(struct number_map *map, uint32_t number, uint32_t to)
{
    if (number >= map->count) {
        size_t count = map->count ? 2 * map->count : 256;
        while (count <= number) count *= 2;
        uint32_t *grown = realloc(map->to, count * sizeof *grown);
        if (!grown) return status_set(SOL_E_MEMORY, "out of memory for a trace");
        for (size_t i = map->count; i < count; i++) grown[i] = TRACE_NONE;
        map->to = grown;
        map->count = count;
    }
    map->to[number] = to;
    return SOL_OK;
}

static uint32_t map_get(const struct number_map *map, uint32_t number)
{
    return number < map->count ? map->to[number] : TRACE_NONE;
}

static void saw(struct reader *r, int64_t start, int64_t end)
{
    if (start < r->first) r->first = start;
    if (end > r->last) r->last = end;
}

/* The device with this ordinal; one without a name where the file did not describe it. */
static enum sol_status device_of(struct reader *r, uint32_t ordinal, uint16_t *out)
{
    uint32_t device = map_get(&r->devices, ordinal);
    if (device != TRACE_NONE) {
        *out = (uint16_t)device;
        return SOL_OK;
    }
    *out = TRACE_NO_DEVICE;
    if (ordinal >= ORDINAL_MAX) return SOL_OK;
    SOL_TRY(timeline_add_device(r->t, &(struct trace_device){.name = TRACE_NONE}, out));
    return map_set(&r->devices, ordinal, *out);
}

static enum sol_status need_process(struct reader *r)
{
    struct trace_process process = {.command = TRACE_NONE, .level = TRACE_GRAPH};
    if (r->has_process) return SOL_OK;
    r->has_process = true;
    return timeline_add_process(r->t, &process, &r->process);
}

/* Adds the event unless its times run backwards, which is then counted. */
static enum sol_status add(struct reader *r, struct trace_event *event)
{
    if (event->end < event->start) {
        r->t->lost.unknown++;
        return SOL_OK;
    }
    saw(r, event->start, event->end);
    SOL_TRY(need_process(r));
    event->process = r->process;
    return timeline_add(r->t, event);
}

/* ---- records: each function gets its whole struct, copied ---- */

static enum sol_status read_string(struct reader *r, const struct trace_record *head)
{
    const char *text = (const char *)(head + 1);
    uint32_t string;
    if (head->name == 0 || head->name > r->numbers) return SOL_OK;
    size_t length = strnlen(text, head->size - sizeof *head);
    char *plain = demangle(text, length);
    enum sol_status status = plain ? timeline_string(r->t, plain, strlen(plain), &string)
                                   : timeline_string(r->t, text, length, &string);
    free(plain);
    SOL_TRY(status);
    return map_set(&r->names, head->name, string);
}

static enum sol_status read_shape(struct reader *r, const struct trace_shape_record *s)
{
    /* The shapes of the time line also carry the graph node: kept here without, joined per kernel.
     */
    struct kernel_shape shape = {
        .registers = s->registers,
        .shared_static = s->shared_static,
        .shared_dynamic = s->shared_dynamic,
        .local = s->local,
    };
    memcpy(shape.grid, s->grid, sizeof shape.grid);
    memcpy(shape.block, s->block, sizeof shape.block);
    memcpy(shape.cluster, s->cluster, sizeof shape.cluster);
    uint32_t index;
    if (s->record.name == 0 || s->record.name > r->numbers) return SOL_OK;
    SOL_TRY(timeline_shape(r->t, &shape, &index));
    return map_set(&r->shapes, s->record.name, index);
}

static enum sol_status shape_of(struct reader *r, const struct trace_work_record *w, uint32_t *out)
{
    uint32_t plain = w->record.type == TRACE_KERNEL ? map_get(&r->shapes, w->shape) : TRACE_NONE;
    *out = plain;
    if (w->graph == 0 && w->node == 0) return SOL_OK;
    struct kernel_shape shape = {.graph = 0};
    if (plain != TRACE_NONE) shape = r->t->shapes[plain];
    shape.graph = w->graph;
    shape.node = w->node;
    return timeline_shape(r->t, &shape, out);
}

static enum sol_status read_work(struct reader *r, const struct trace_work_record *w)
{
    static const uint16_t kinds[] = {EVENT_KERNEL, EVENT_COPY, EVENT_SET, EVENT_GRAPH};
    struct trace_event event = {
        .start = w->start,
        .end = w->end,
        .name = map_get(&r->names, w->record.name),
        .correlation = w->correlation,
        .detail = TRACE_NONE,
        .track = w->stream,
        .kind = kinds[w->record.type - TRACE_KERNEL],
        .context = (uint16_t)w->context,
    };
    SOL_TRY(device_of(r, w->device, &event.device));
    if (event.kind == EVENT_KERNEL || event.kind == EVENT_GRAPH) {
        SOL_TRY(shape_of(r, w, &event.detail));
    } else {
        struct transfer transfer = {
            .bytes = w->bytes,
            .from = w->from < MEMORY_KIND_COUNT ? w->from : MEMORY_UNKNOWN,
            .to = w->to < MEMORY_KIND_COUNT ? w->to : MEMORY_UNKNOWN,
            .flags = w->flags,
            .graph = w->graph,
            .node = w->node,
        };
        SOL_TRY(timeline_transfer(r->t, &transfer, &event.detail));
    }
    return add(r, &event);
}

static enum sol_status read_host(struct reader *r, const struct trace_host_record *h)
{
    static const uint16_t kinds[] = {EVENT_API, EVENT_SYNC, EVENT_OVERHEAD, EVENT_LOAD};
    uint16_t kind = kinds[h->record.type - TRACE_API];
    struct trace_event event = {
        .start = h->start,
        .end = h->end,
        .name = map_get(&r->names, h->record.name),
        .correlation = h->correlation,
        .detail = TRACE_NONE,
        .track = kind == EVENT_SYNC ? h->stream : h->thread,
        .kind = kind,
        .device = TRACE_NO_DEVICE,
        .context = (uint16_t)h->context,
    };
    return add(r, &event);
}

static enum sol_status add_marker(struct reader *r, const struct open_range *range, int64_t end)
{
    struct trace_event event = {
        .start = range->start,
        .end = end,
        .name = range->name,
        .detail = TRACE_NONE,
        .track = range->thread,
        .kind = EVENT_MARKER,
        .device = TRACE_NO_DEVICE,
    };
    return add(r, &event);
}

/* Ranges nest or overlap little, so the one that ends is among the last that began. */
static enum sol_status end_range(struct reader *r, const struct trace_marker_record *m)
{
    for (size_t i = r->n_open; i-- > 0;) {
        if (r->open[i].id != m->id) continue;
        struct open_range range = r->open[i];
        memmove(&r->open[i], &r->open[i + 1], (--r->n_open - i) * sizeof *r->open);
        return add_marker(r, &range, m->time);
    }
    r->t->lost.unpaired++;
    return SOL_OK;
}

static enum sol_status read_marker(struct reader *r, const struct trace_marker_record *m)
{
    struct open_range range = {m->id, map_get(&r->names, m->record.name), m->thread, m->time};
    if (m->flags & TRACE_MARKER_END) return end_range(r, m);
    if (!(m->flags & TRACE_MARKER_START)) return add_marker(r, &range, m->time);
    if (r->n_open == OPEN_MAX) {
        r->t->lost.unpaired++;
        return SOL_OK;
    }
    SOL_TRY(array_grow(&r->open, r->n_open, &r->open_room, sizeof *r->open, "a trace"));
    r->open[r->n_open++] = range;
    return SOL_OK;
}

static enum sol_status read_alloc(struct reader *r, const struct trace_alloc_record *a)
{
    struct transfer transfer = {
        .bytes = a->bytes,
        .to = (uint8_t)(a->kind < MEMORY_KIND_COUNT ? a->kind : MEMORY_UNKNOWN),
        .flags = a->flags,
    };
    struct trace_event event = {
        .start = a->time,
        .end = a->time,
        .name = map_get(&r->names, a->record.name),
        .correlation = a->correlation,
        .kind = EVENT_ALLOC,
        .device = TRACE_NO_DEVICE,
        .context = (uint16_t)a->context,
    };
    SOL_TRY(timeline_transfer(r->t, &transfer, &event.detail));
    if (transfer.to == MEMORY_DEVICE) SOL_TRY(device_of(r, a->device, &event.device));
    return add(r, &event);
}

/* Clocks, temperature and power come one by one, at nearly the same time: one sample. */
static enum sol_status read_sample(struct reader *r, const struct trace_sample_record *s)
{
    enum { SAME_NS = 20000000 };
    uint16_t device;
    SOL_TRY(device_of(r, s->device, &device));
    if (device == TRACE_NO_DEVICE) return SOL_OK;
    struct trace_sample sample = {s->time,           s->sm_mhz,        s->memory_mhz, s->power_mw,
                                  s->power_limit_mw, s->temperature_c, s->throttle,   device};
    for (size_t i = r->t->n_samples, looked = 0; i-- > 0 && looked < 8; looked++) {
        struct trace_sample *p = &r->t->samples[i];
        if (p->device != device || sample.time < p->time || sample.time - SAME_NS > p->time)
            continue;
        bool clash = (p->sm_mhz && sample.sm_mhz) || (p->power_mw && sample.power_mw) ||
                     (p->temperature_c != INT32_MIN && sample.temperature_c != INT32_MIN);
        if (clash) break;
        if (sample.sm_mhz) {
            p->sm_mhz = sample.sm_mhz;
            p->memory_mhz = sample.memory_mhz;
            p->throttle = sample.throttle;
        }
        if (sample.power_mw) {
            p->power_mw = sample.power_mw;
            p->power_limit_mw = sample.power_limit_mw;
        }
        if (sample.temperature_c != INT32_MIN) p->temperature_c = sample.temperature_c;
        return SOL_OK;
    }
    return timeline_add_sample(r->t, &sample);
}

static enum sol_status read_device(struct reader *r, const struct trace_device_record *d)
{
    uint16_t index;
    struct trace_device device = {
        .name = map_get(&r->names, d->record.name),
        .sm_count = d->sm_count,
        .compute_major = d->compute_major,
        .compute_minor = d->compute_minor,
        .memory_bytes = d->memory_bytes,
        .memory_bandwidth = 1e3 * (double)d->memory_kbytes_per_s,
        .clock_hz = 1e3 * (double)d->clock_khz,
        .threads_per_sm = d->threads_per_sm,
        .blocks_per_sm = d->blocks_per_sm,
        .warp_size = d->warp_size,
        .registers_per_sm = d->registers_per_sm,
        .registers_per_block = d->registers_per_block,
        .shared_per_sm = d->shared_per_sm,
        .shared_per_block = d->shared_per_block,
    };
    memcpy(device.uuid, d->uuid, sizeof device.uuid);
    if (d->device >= ORDINAL_MAX) return SOL_OK;
    uint32_t known = map_get(&r->devices, d->device);
    if (known != TRACE_NONE) {
        if (r->t->devices[known].name == TRACE_NONE) r->t->devices[known] = device;
        return SOL_OK;
    }
    SOL_TRY(timeline_add_device(r->t, &device, &index));
    return map_set(&r->devices, d->device, index);
}

/* The process of that number, which has a file of its own. */
static bool join_process(struct reader *r, int64_t pid)
{
    for (size_t i = 0; i < r->t->n_processes && !r->has_process; i++) {
        if (r->t->processes[i].pid != pid) continue;
        r->has_process = r->joined = true;
        r->process = (uint16_t)i;
    }
    return r->joined;
}

static enum sol_status read_process(struct reader *r, const struct trace_process_record *p)
{
    if ((p->flags & TRACE_PROCESS_MORE) && join_process(r, p->pid)) return SOL_OK;
    SOL_TRY(need_process(r));
    struct trace_process *process = &r->t->processes[r->process];
    process->pid = p->pid;
    process->parent = p->parent;
    process->command = map_get(&r->names, p->record.name);
    process->level = p->level < TRACE_LEVEL_COUNT ? (uint16_t)p->level : TRACE_GRAPH;
    saw(r, p->start, p->start);
    return SOL_OK;
}

static enum sol_status read_lost(struct reader *r, const struct trace_lost_record *l)
{
    r->t->lost.records += l->records;
    r->t->lost.timestamps += l->timestamps;
    r->t->lost.unknown += l->unknown;
    return SOL_OK;
}

static enum sol_status read_count(struct reader *r, const struct trace_count_record *c)
{
    return timeline_add_count(
        r->t, &(struct trace_count){map_get(&r->names, c->record.name), c->launched, c->in_graphs});
}

static enum sol_status read_expected(struct reader *r, const struct trace_expected_record *e)
{
    const uint32_t name = map_get(&r->names, e->record.name);
    if (name == TRACE_NONE) return SOL_OK;
    SOL_TRY(need_process(r));
    return timeline_add_expected(r->t, &(struct trace_expected){name, r->process, e->kernels});
}

static enum sol_status read_note(struct reader *r, const struct trace_record *head)
{
    uint32_t text = map_get(&r->names, head->name);
    return text == TRACE_NONE ? SOL_OK : timeline_add_note(r->t, timeline_text(r->t, text));
}

static enum sol_status read_end(struct reader *r, const struct trace_end_record *e)
{
    r->complete = true;
    if (e->time) saw(r, e->time, e->time);
    return SOL_OK;
}

/* ---- walking ---- */

/* Reads the record if it has at least the size that this version knows. */
#define CASE(type, kind, function)                                                                 \
    case type: {                                                                                   \
        if (head->size < sizeof(struct kind)) break;                                               \
        return function(r, (const struct kind *)head);                                             \
    }

static enum sol_status read_record(struct reader *r, const struct trace_record *head)
{
    switch (head->type) {
        CASE(TRACE_STRING, trace_record, read_string)
        CASE(TRACE_SHAPE, trace_shape_record, read_shape)
        CASE(TRACE_KERNEL, trace_work_record, read_work)
        CASE(TRACE_COPY, trace_work_record, read_work)
        CASE(TRACE_SET, trace_work_record, read_work)
        CASE(TRACE_GRAPH_RUN, trace_work_record, read_work)
        CASE(TRACE_API, trace_host_record, read_host)
        CASE(TRACE_SYNC, trace_host_record, read_host)
        CASE(TRACE_OVERHEAD, trace_host_record, read_host)
        CASE(TRACE_LOAD, trace_host_record, read_host)
        CASE(TRACE_MARKER, trace_marker_record, read_marker)
        CASE(TRACE_ALLOC, trace_alloc_record, read_alloc)
        CASE(TRACE_SAMPLE, trace_sample_record, read_sample)
        CASE(TRACE_DEVICE, trace_device_record, read_device)
        CASE(TRACE_PROCESS, trace_process_record, read_process)
        CASE(TRACE_LOST, trace_lost_record, read_lost)
        CASE(TRACE_COUNT, trace_count_record, read_count)
        CASE(TRACE_EXPECTED, trace_expected_record, read_expected)
        CASE(TRACE_NOTE, trace_record, read_note)
        CASE(TRACE_END, trace_end_record, read_end)
    default:
        break;
    }
    r->t->lost.unknown++;
    return SOL_OK;
}

/* A block whose checksum holds; its records may still be senseless. */
static enum sol_status read_block(struct reader *r, const unsigned char *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const struct trace_record *head = (const void *)(data + at);
        if (size - at < sizeof *head || head->size < sizeof *head || head->size % 8 != 0 ||
            head->size > size - at) {
            r->t->lost.unknown++;
            return SOL_OK;
        }
        SOL_TRY(read_record(r, head));
        at += head->size;
    }
    return SOL_OK;
}

/* Bytes of the block at `data`, its header included; 0 when it is not whole. */
static size_t block_size(const unsigned char *data, size_t size)
{
    struct trace_block block;
    if (size < sizeof block) return 0;
    memcpy(&block, data, sizeof block);
    if (block.magic != TRACE_BLOCK_MAGIC || block.size > TRACE_BLOCK_MAX || block.size % 8 != 0 ||
        block.size > size - sizeof block)
        return 0;
    if (trace_checksum(data + sizeof block, block.size) != block.checksum) return 0;
    return sizeof block + block.size;
}

static enum sol_status check_header(const void *data, size_t size, const char *name, size_t *start)
{
    struct trace_file_header header;
    if (size < sizeof header) return status_set(SOL_E_FORMAT, "'%s' is no trace file", name);
    memcpy(&header, data, sizeof header);
    if (header.magic != TRACE_FILE_MAGIC)
        return status_set(SOL_E_FORMAT, "'%s' is no trace file", name);
    if (header.version != TRACE_FILE_VERSION || header.size < sizeof header ||
        header.size % 8 != 0 || header.size > size)
        return status_set(SOL_E_FORMAT,
                          "'%s' is a trace file of version %" PRIu32 "; this sol reads version %d",
                          name, header.version, TRACE_FILE_VERSION);
    *start = header.size;
    return SOL_OK;
}

static void close_process(struct reader *r)
{
    r->t->lost.unpaired += r->n_open;
    if (!r->has_process || r->joined) return;
    struct trace_process *process = &r->t->processes[r->process];
    process->complete = r->complete;
    process->start = r->first <= r->last ? r->first : 0;
    process->end = r->first <= r->last ? r->last : 0;
}

bool trace_read_begins(const void *data, size_t size)
{
    uint64_t magic = 0;
    if (size >= sizeof magic) memcpy(&magic, data, sizeof magic);
    return magic == TRACE_FILE_MAGIC;
}

enum sol_status trace_read_memory(struct timeline *t, const void *data, size_t size,
                                  const char *name)
{
    size_t at;
    struct reader r = {.t = t, .first = INT64_MAX, .last = INT64_MIN};
    size_t records = size / sizeof(struct trace_record);
    SOL_TRY(check_header(data, size, name, &at));
    r.numbers = records < NUMBERS_MAX ? (uint32_t)records : NUMBERS_MAX;
    enum sol_status status = SOL_OK;
    while (status == SOL_OK && at < size) {
        size_t n = block_size((const unsigned char *)data + at, size - at);
        if (n == 0) {
            t->lost.bytes += size - at;
            t->lost.files++;
            break;
        }
        status = read_block(&r, (const unsigned char *)data + at + sizeof(struct trace_block),
                            n - sizeof(struct trace_block));
        at += n;
    }
    if (status == SOL_OK) close_process(&r);
    free(r.names.to);
    free(r.shapes.to);
    free(r.devices.to);
    free(r.open);
    return status;
}

enum sol_status trace_read_file(struct timeline *t, const char *path)
{
    struct mapped_file file;
    SOL_TRY(mapped_file_open(path, &file));
    enum sol_status status = trace_read_memory(t, file.data, file.size, path);
    mapped_file_close(&file);
    return status;
}

static int is_trace(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), suffix = strlen(TRACE_FILE_SUFFIX);
    return length > suffix && strcmp(entry->d_name + length - suffix, TRACE_FILE_SUFFIX) == 0;
}

static enum sol_status read_entry(struct timeline *t, const char *folder, const char *name)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum sol_status status = trace_read_file(t, path);
    if (status != SOL_E_FORMAT && status != SOL_E_IO) return status;
    t->lost.files++;
    return timeline_add_note(t, sol_last_error());
}

enum sol_status trace_read_folder(struct timeline *t, const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_trace, alphasort);
    if (n < 0) return status_set(SOL_E_IO, "cannot read '%s': %s", folder, strerror(errno));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < n; i++) {
        if (status == SOL_OK) status = read_entry(t, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    SOL_TRY(status);
    if (n == 0) return status_set(SOL_E_FORMAT, "'%s' holds no trace file", folder);
    return timeline_finish(t);
}
