#include "trace/chrome.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "trace/communication.h"

/* Process numbers of the trace: a program keeps its pid where that is unique, devices get numbers
 * that no pid has (Linux: at most 2^22). */
enum { DEVICE_BASE = 10000000, PROCESS_BASE = 20000000 };

struct out {
    FILE *to;
    bool first;
    struct trace_communication ranks;
};

static void begin(struct out *o)
{
    fputs(o->first ? "\n" : ",\n", o->to);
    o->first = false;
}

/* Names are whatever a program called things: bytes that are no ASCII text are escaped one by one.
 */
static void put_text(FILE *to, const char *text)
{
    putc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if (*c < 0x20 || *c >= 0x7f)
            fprintf(to, "\\u%04x", *c);
        else
            putc(*c, to);
    }
    putc('"', to);
}

/* ns as us, exactly. */
static void put_us(FILE *to, const char *key, int64_t ns)
{
    const char *sign = ns < 0 ? "-" : "";
    uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    fprintf(to, ",\"%s\":%s%" PRIu64 ".%03u", key, sign, n / 1000, (unsigned)(n % 1000));
}

static int64_t host_number(const struct timeline *t, uint16_t process)
{
    int64_t pid = t->processes[process].pid;
    for (size_t i = 0; i < process; i++)
        if (t->processes[i].pid == pid)
            return PROCESS_BASE + process; /* exec, or a pid used again */
    return pid;
}

static void put_metadata(struct out *o, int64_t pid, const char *what, const char *name)
{
    begin(o);
    fprintf(o->to, "{\"ph\":\"M\",\"pid\":%" PRId64 ",\"name\":\"%s\",\"args\":{\"name\":", pid,
            what);
    put_text(o->to, name);
    fputs("}}", o->to);
}

static void put_order(struct out *o, int64_t pid, size_t place)
{
    begin(o);
    fprintf(o->to,
            "{\"ph\":\"M\",\"pid\":%" PRId64
            ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%zd}}",
            pid, (ssize_t)place - UINT16_MAX);
}

static void put_shape(FILE *to, const struct kernel_shape *s)
{
    fprintf(to,
            ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"registers\":%u,\"shared\":%" PRIu64
            ",\"local\":%u",
            s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2], s->registers,
            (uint64_t)s->shared_static + s->shared_dynamic, s->local);
    if (s->graph) fprintf(to, ",\"graph\":%u,\"node\":%" PRIu64, s->graph, s->node);
}

/* Of a collective that several ranks ran. */
static void put_wait(const struct timeline *t, const struct out *o, const struct trace_event *e)
{
    const struct trace_collective *c = trace_collective_of(&o->ranks, (size_t)(e - t->events));
    if (!c || !o->ranks.told) return;
    const int64_t until = c->arrived < e->end ? c->arrived : e->end;
    put_us(o->to, "waited_us", until - e->start);
}

static void put_args(const struct timeline *t, const struct out *o, const struct trace_event *e)
{
    FILE *to = o->to;
    const struct kernel_shape *shape = timeline_event_shape(t, e);
    const struct transfer *transfer = timeline_event_transfer(t, e);
    fprintf(to, ",\"args\":{\"correlation\":%u", e->correlation);
    if (shape) put_shape(to, shape);
    if (transfer)
        fprintf(to, ",\"bytes\":%" PRIu64 ",\"from\":\"%s\",\"to\":\"%s\"", transfer->bytes,
                memory_kind_name((enum memory_kind)transfer->from),
                memory_kind_name((enum memory_kind)transfer->to));
    put_wait(t, o, e);
    putc('}', to);
}

static void put_track(FILE *to, int64_t pid, const struct trace_event *e)
{
    fprintf(to, ",\"pid\":%" PRId64 ",\"tid\":%" PRIu64, pid,
            e->kind <= EVENT_GRAPH ? (uint64_t)e->context << 32 | e->track : e->track);
}

/* The ends of an arrow. Correlations are unique within a process. */
static void put_arrow(struct out *o, const struct trace_event *e, int64_t pid, const char *phase)
{
    begin(o);
    fprintf(o->to, "{\"ph\":\"%s\",\"cat\":\"launch\",\"name\":\"launch\",\"id\":%" PRIu64, phase,
            (uint64_t)e->process << 32 | e->correlation);
    put_track(o->to, pid, e);
    put_us(o->to, "ts", e->start);
    putc('}', o->to);
}

static void put_event(const struct timeline *t, struct out *o, const struct trace_event *e)
{
    bool device = event_on_device(e->kind);
    int64_t pid = device && e->device != TRACE_NO_DEVICE ? DEVICE_BASE + e->device
                                                         : host_number(t, e->process);
    const char *name = timeline_text(t, e->name);
    begin(o);
    fputs(e->kind == EVENT_ALLOC ? "{\"ph\":\"i\",\"s\":\"p\",\"name\":"
                                 : "{\"ph\":\"X\",\"name\":",
          o->to);
    put_text(o->to, *name ? name : "(name lost)");
    fprintf(o->to, ",\"cat\":\"%s\"", event_kind_name((enum event_kind)e->kind));
    put_track(o->to, pid, e);
    put_us(o->to, "ts", e->start);
    if (e->kind != EVENT_ALLOC) put_us(o->to, "dur", e->end - e->start);
    put_args(t, o, e);
    putc('}', o->to);
    if (e->correlation == 0) return;
    if (device)
        put_arrow(o, e, pid, "f\",\"bp\":\"e");
    else if (e->kind == EVENT_API && strstr(name, "Launch"))
        put_arrow(o, e, pid, "s");
}

static void put_sample(struct out *o, const struct trace_sample *s)
{
    const struct {
        const char *name;
        int64_t value;
        bool known;
    } counters[] = {
        {"SM clock (MHz)", s->sm_mhz, s->sm_mhz != 0},
        {"power (mW)", s->power_mw, s->power_mw != 0},
        {"temperature (C)", s->temperature_c, s->temperature_c != INT32_MIN},
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        if (!counters[i].known) continue;
        begin(o);
        fprintf(o->to, "{\"ph\":\"C\",\"name\":\"%s\",\"pid\":%d", counters[i].name,
                (int)(DEVICE_BASE + s->device));
        put_us(o->to, "ts", s->time);
        fprintf(o->to, ",\"args\":{\"value\":%" PRId64 "}}", counters[i].value);
    }
}

static void put_processes(const struct timeline *t, struct out *o)
{
    char text[1200];
    for (size_t i = 0; i < t->n_processes; i++) {
        const struct trace_process *p = &t->processes[i];
        snprintf(text, sizeof text, "%" PRId64 " %.1000s", p->pid, timeline_text(t, p->command));
        put_metadata(o, host_number(t, (uint16_t)i), "process_name", text);
    }
    for (size_t i = 0; i < t->n_devices; i++) {
        const char *name = timeline_text(t, t->devices[i].name);
        const char *what = t->devices[i].cpu ? "CPU" : "GPU";
        const bool rank = o->ranks.n_ranks > 1 && trace_rank_of(&o->ranks, (uint16_t)i);
        if (rank)
            snprintf(text, sizeof text, "rank %zu: %s %.1000s", i, what, name);
        else
            snprintf(text, sizeof text, "%s %zu %.1000s", what, i, name);
        put_metadata(o, (int64_t)(DEVICE_BASE + i), "process_name", text);
        if (rank) put_order(o, (int64_t)(DEVICE_BASE + i), i);
    }
}

enum sol_status chrome_write(const struct timeline *t, FILE *to, const char *name)
{
    struct out o = {.to = to, .first = true};
    enum sol_status status = trace_communicate(t, NULL, &o.ranks);
    errno = 0;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", to);
    put_processes(t, &o);
    for (size_t i = 0; i < t->count; i++) put_event(t, &o, &t->events[i]);
    for (size_t i = 0; i < t->n_samples; i++) put_sample(&o, &t->samples[i]);
    fputs("\n]}\n", to);
    trace_communication_free(&o.ranks);
    SOL_TRY(status);
    if (fflush(to) != 0 || ferror(to))
        return status_set(SOL_E_IO, "cannot write '%s': %s", name,
                          errno ? strerror(errno) : "input/output error");
    return SOL_OK;
}
