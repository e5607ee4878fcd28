/* Knows every record type that is enabled in inject.c. Names of functions come from CUPTI itself,
 * so that no table of them has to follow its versions; the number that each got in the trace is
 * kept. */
#include "inject/records.h"

#include <stdio.h>

#include "inject/cupti.h"
#include "inject/writer.h"

/* As trace/timeline.h numbers them; the reader checks ranges. */
enum {
    MEMORY_DEVICE = 3,
    MEMORY_MANAGED = 5,
    TRANSFER_ASYNC = 1,
    TRANSFER_FREE = 2,
    TRANSFER_PEER = 4
};

struct counts {
    uint64_t timestamps, unknown;
};

static uint8_t memory_kind(uint32_t kind)
{
    if (kind == CUPTI_TO_DEVICE_STATIC) return MEMORY_DEVICE;
    if (kind == CUPTI_TO_MANAGED_STATIC) return MEMORY_MANAGED;
    return (uint8_t)(kind <= MEMORY_MANAGED ? kind : 0);
}

/* False, and counted, for work whose times were lost. */
static bool timed(uint64_t start, uint64_t end, struct counts *counts)
{
    if (start != 0 && end >= start) return true;
    counts->timestamps++;
    return false;
}

static void write_kernel(const struct cupti_kernel *k, struct counts *counts)
{
    if (!timed(k->start, k->end, counts)) return;
    struct trace_shape_record shape = {
        .registers = k->registers,
        .shared_static = (uint32_t)k->shared_static,
        .shared_dynamic = (uint32_t)k->shared_dynamic,
        .local = k->local,
    };
    for (int i = 0; i < 3; i++) {
        shape.grid[i] = (uint32_t)k->grid[i];
        shape.block[i] = (uint32_t)k->block[i];
        shape.cluster[i] = k->cluster[i];
    }
    struct trace_work_record record = {
        .record.name = writer_string(k->name),
        .start = (int64_t)k->start,
        .end = (int64_t)k->end,
        .correlation = k->correlation,
        .device = k->device,
        .context = k->context,
        .stream = k->stream,
        .graph = k->graph,
        .node = k->graph_node,
        .shape = writer_shape(&shape),
    };
    WRITER_PUT(TRACE_KERNEL, record);
}

static const char *const copy_names[] = {"copy",      "copy HtoD", "copy DtoH", "copy HtoA",
                                         "copy AtoH", "copy AtoA", "copy AtoD", "copy DtoA",
                                         "copy DtoD", "copy HtoH", "copy PtoP"};

static const char *copy_name(uint8_t kind)
{
    return kind < sizeof copy_names / sizeof *copy_names ? copy_names[kind] : copy_names[0];
}

/* `flags`: of the transfer, beside what the record says. */
static void write_copy(const struct cupti_memcpy *c, unsigned flags, struct counts *counts)
{
    if (!timed(c->start, c->end, counts)) return;
    if (c->flags & CUPTI_MEMCPY_ASYNC) flags |= TRANSFER_ASYNC;
    struct trace_work_record record = {
        .record.name = writer_string(copy_name(c->copy_kind)),
        .start = (int64_t)c->start,
        .end = (int64_t)c->end,
        .correlation = c->correlation,
        .device = c->device,
        .context = c->context,
        .stream = c->stream,
        .graph = c->graph,
        .node = c->graph_node,
        .bytes = c->bytes,
        .from = memory_kind(c->from),
        .to = memory_kind(c->to),
        .flags = (uint16_t)flags,
    };
    WRITER_PUT(TRACE_COPY, record);
}

/* A copy between devices as a copy: which devices is not kept. */
static struct cupti_memcpy copy_of_peer(const struct cupti_memcpy_peer *p)
{
    return (struct cupti_memcpy){.copy_kind = p->copy_kind,
                                 .from = p->from,
                                 .to = p->to,
                                 .flags = p->flags,
                                 .bytes = p->bytes,
                                 .start = p->start,
                                 .end = p->end,
                                 .device = p->device,
                                 .context = p->context,
                                 .stream = p->stream,
                                 .correlation = p->correlation,
                                 .graph_node = p->graph_node,
                                 .graph = p->graph};
}

static void write_set(const struct cupti_memset *s, struct counts *counts)
{
    if (!timed(s->start, s->end, counts)) return;
    struct trace_work_record record = {
        .record.name = writer_string("set"),
        .start = (int64_t)s->start,
        .end = (int64_t)s->end,
        .correlation = s->correlation,
        .device = s->device,
        .context = s->context,
        .stream = s->stream,
        .graph = s->graph,
        .node = s->graph_node,
        .bytes = s->bytes,
        .to = memory_kind(s->to),
        .flags = s->flags & CUPTI_MEMCPY_ASYNC ? TRANSFER_ASYNC : 0,
    };
    WRITER_PUT(TRACE_SET, record);
}

static void write_graph(const struct cupti_graph_trace *g, struct counts *counts)
{
    if (!timed(g->start, g->end, counts)) return;
    char name[32];
    snprintf(name, sizeof name, "graph %u", g->graph);
    struct trace_work_record record = {
        .record.name = writer_string(name),
        .start = (int64_t)g->start,
        .end = (int64_t)g->end,
        .correlation = g->correlation,
        .device = g->device,
        .context = g->context,
        .stream = g->stream,
        .graph = g->graph,
    };
    WRITER_PUT(TRACE_GRAPH_RUN, record);
}

static void write_api(const struct cupti *cupti, const struct cupti_api *a)
{
    const char *name = NULL;
    uint32_t domain = a->kind == CUPTI_DRIVER ? CUPTI_DRIVER_DOMAIN : CUPTI_RUNTIME_DOMAIN;
    if (a->start == 0 || a->end < a->start) return; /* the call was under way: it has no end yet */
    if (cupti->callback_name(domain, a->callback, &name) != CUPTI_OK) name = NULL;
    struct trace_host_record record = {
        .record.name = writer_string(name ? name : "unknown call"),
        .start = (int64_t)a->start,
        .end = (int64_t)a->end,
        .correlation = a->correlation,
        .thread = a->thread,
    };
    WRITER_PUT(TRACE_API, record);
}

static void write_sync(const struct cupti_synchronization *s)
{
    static const char *const names[] = {"synchronization", "event synchronize", "stream wait event",
                                        "stream synchronize", "context synchronize"};
    if (s->start == 0 || s->end < s->start) return;
    uint32_t type = s->type < sizeof names / sizeof *names ? s->type : 0;
    if (type == CUPTI_SYNC_STREAM_WAIT) return; /* the device waits, the host does not */
    struct trace_host_record record = {
        .record.name = writer_string(names[type]),
        .start = (int64_t)s->start,
        .end = (int64_t)s->end,
        .correlation = s->correlation,
        .context = s->context,
        .stream = s->stream,
    };
    WRITER_PUT(TRACE_SYNC, record);
}

struct overhead_name {
    uint32_t kind;
    enum trace_record_type type;
    const char *name;
};

/* What is the tracer's doing, and what the driver does in any program. */
static const struct overhead_name overhead_names[] = {
    {CUPTI_OVERHEAD_FLUSH, TRACE_OVERHEAD, "tracer: flush"},
    {CUPTI_OVERHEAD_INSTRUMENTATION, TRACE_OVERHEAD, "tracer: instrumentation"},
    {CUPTI_OVERHEAD_RESOURCE, TRACE_OVERHEAD, "tracer: resources"},
    {CUPTI_OVERHEAD_BUFFER_REQUEST, TRACE_OVERHEAD, "tracer: buffer"},
    {CUPTI_OVERHEAD_MANAGED_MEMORY, TRACE_OVERHEAD, "tracer: managed memory"},
    {CUPTI_OVERHEAD_COMPILER, TRACE_LOAD, "compile"},
    {CUPTI_OVERHEAD_MODULE, TRACE_LOAD, "load module"},
    {CUPTI_OVERHEAD_FUNCTION, TRACE_LOAD, "load function"},
    {CUPTI_OVERHEAD_COMMAND_BUFFER, TRACE_SYNC, "command buffer full"},
};

static void write_overhead(const struct cupti_overhead *o)
{
    static const struct overhead_name other = {0, TRACE_OVERHEAD, "tracer"};
    if (o->start == 0 || o->end < o->start) return;
    const struct overhead_name *what = &other;
    for (size_t i = 0; i < sizeof overhead_names / sizeof *overhead_names; i++)
        if (overhead_names[i].kind == o->overhead) what = &overhead_names[i];
    struct trace_host_record record = {
        .record.name = writer_string(what->name),
        .start = (int64_t)o->start,
        .end = (int64_t)o->end,
        .thread = o->object == CUPTI_OBJECT_THREAD ? o->id[1] : 0,
    };
    WRITER_PUT(what->type, record);
}

static void write_marker(const struct cupti_marker *m)
{
    struct trace_marker_record record = {
        .record.name = writer_string(m->name),
        .time = (int64_t)m->time,
        .id = m->marker,
        .flags = m->flags & (CUPTI_MARKER_MARK | CUPTI_MARKER_START | CUPTI_MARKER_END),
        .thread = m->object == CUPTI_OBJECT_THREAD ? m->id[1] : 0,
        .domain = writer_string(m->domain && *m->domain ? m->domain : NULL),
    };
    WRITER_PUT(TRACE_MARKER, record);
}

static void write_sample(const struct cupti_environment *e)
{
    struct trace_sample_record record = {
        .time = (int64_t)e->time, .device = e->device, .temperature_c = INT32_MIN};
    switch (e->what) {
    case CUPTI_SPEED:
        record.sm_mhz = e->data[0];
        record.memory_mhz = e->data[1];
        record.throttle = e->data[4];
        break;
    case CUPTI_TEMPERATURE:
        record.temperature_c = (int32_t)e->data[0];
        break;
    case CUPTI_POWER:
        record.power_mw = e->data[0];
        record.power_limit_mw = e->data[1];
        break;
    default:
        return;
    }
    WRITER_PUT(TRACE_SAMPLE, record);
}

static void write_alloc(const struct cupti_memory *m)
{
    bool release = m->operation == CUPTI_OPERATION_RELEASE;
    struct trace_alloc_record record = {
        .record.name = writer_string(release ? "free" : "alloc"),
        .time = (int64_t)m->time,
        .bytes = m->bytes,
        .correlation = m->correlation,
        .device = m->device,
        .context = m->context,
        .stream = m->stream,
        .kind = memory_kind(m->to),
        .flags = (uint16_t)((release ? TRANSFER_FREE : 0) | (m->async ? TRANSFER_ASYNC : 0)),
    };
    WRITER_PUT(TRACE_ALLOC, record);
}

static void write_device(const struct cupti_device *d)
{
    struct trace_device_record record = {
        .record.name = writer_string(d->name),
        .memory_bytes = d->memory_bytes,
        .memory_kbytes_per_s = d->memory_kbytes_per_s,
        .device = d->id,
        .clock_khz = d->clock_khz,
        .sm_count = d->sm_count,
        .compute_major = d->compute_major,
        .compute_minor = d->compute_minor,
        .threads_per_sm = d->warps_per_sm * d->warp_size,
        .blocks_per_sm = d->blocks_per_sm,
        .warp_size = d->warp_size,
        .registers_per_sm = d->registers_per_sm,
        .registers_per_block = d->registers_per_block,
        .shared_per_sm = d->shared_per_sm,
        .shared_per_block = d->shared_per_block,
    };
    for (int i = 0; i < 16; i++) record.uuid[i] = d->uuid[i];
    WRITER_PUT(TRACE_DEVICE, record);
}

static void write_record(const struct cupti *cupti, const void *record, struct counts *counts)
{
    struct cupti_memcpy plain;
    switch (*(const uint32_t *)record) {
    case CUPTI_CONCURRENT_KERNEL:
        write_kernel(record, counts);
        break;
    case CUPTI_MEMCPY:
        write_copy(record, 0, counts);
        break;
    case CUPTI_MEMCPY_PEER:
        plain = copy_of_peer(record);
        write_copy(&plain, TRANSFER_PEER, counts);
        break;
    case CUPTI_MEMSET:
        write_set(record, counts);
        break;
    case CUPTI_GRAPH_TRACE:
        write_graph(record, counts);
        break;
    case CUPTI_DRIVER:
    case CUPTI_RUNTIME:
        write_api(cupti, record);
        break;
    case CUPTI_SYNCHRONIZATION:
        write_sync(record);
        break;
    case CUPTI_OVERHEAD:
        write_overhead(record);
        break;
    case CUPTI_MARKER:
        write_marker(record);
        break;
    case CUPTI_ENVIRONMENT:
        write_sample(record);
        break;
    case CUPTI_MEMORY:
        write_alloc(record);
        break;
    case CUPTI_DEVICE:
        write_device(record);
        break;
    default:
        counts->unknown++;
    }
}

void records_write(const struct cupti *cupti, uint8_t *buffer, size_t valid)
{
    struct counts counts = {0, 0};
    void *record = NULL;
    int result;
    while ((result = cupti->next_record(buffer, valid, &record)) == CUPTI_OK)
        write_record(cupti, record, &counts);
    if (result != CUPTI_END) counts.unknown++; /* the rest of the buffer cannot be walked */
    writer_lost(0, counts.timestamps, counts.unknown);
}
