#include "cli/profile_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/number.h"
#include "base/status.h"
#include "base/table.h"
#include "profile/ranks.h"
#include "profile/store.h"
#include "store/store_json.h"

enum { ROWS_SHOWN = 40, HOST_ROWS_SHOWN = 12 };

static const char *kernel_name(const struct timeline *t, uint32_t name)
{
    return name == TRACE_NONE ? "(name lost)" : timeline_text(t, name);
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static double us(int64_t ns)
{
    return (double)ns / 1e3;
}

/* Counts per step: of the steady part from the first window to the last. */
struct steps {
    struct trace_summary steady;
    size_t count;
};

static double per_step(const struct steps *steps, uint32_t name)
{
    for (size_t i = 0; i < steps->steady.n_kernels; i++)
        if (steps->steady.kernels[i].name == name)
            return (double)steps->steady.kernels[i].count / (double)steps->count;
    return 0;
}

static enum sol_status find_steps(const struct profile_report *r, struct steps *steps)
{
    const struct trace_window_set *w = r->windows;
    *steps = (struct steps){.count = w->count};
    if (w->count == 0) return SOL_OK;
    return profile_steady_summary(r->timeline, w, &steps->steady);
}

/* ---- tables ---- */

static enum sol_status kernel_table(const struct profile_report *r, const struct steps *steps,
                                    enum table_format format, FILE *to)
{
    const struct trace_summary *s = r->summary;
    struct table *table;
    size_t shown = format == TABLE_CSV || s->n_kernels <= ROWS_SHOWN ? s->n_kernels : ROWS_SHOWN;
    SOL_TRY(table_create(format == TABLE_CSV
                             ? "kernel|category|>time_percent|>count|>total_us|>average_us|>min_us|"
                               ">max_us|>per_step"
                             : "=kernel|-category|>time %|>-count|>average us|>--min us|>--max us|"
                               ">per step",
                         &table));
    for (size_t i = 0; i < shown; i++) {
        const struct kernel_row *row = &s->kernels[i];
        table_cell(table, "%s", kernel_name(r->timeline, row->name));
        table_cell(table, "%s", category_name(row->category));
        table_cell(table, "%.2f", percent(row->total, s->kernel_time));
        table_cell(table, "%" PRIu64, row->count);
        if (format == TABLE_CSV) table_cell(table, "%.3f", us(row->total));
        table_cell(table, "%.3f", us(row->total) / (double)row->count);
        table_cell(table, "%.3f", us(row->min));
        table_cell(table, "%.3f", us(row->max));
        if (steps->count)
            table_number(table, per_step(steps, row->name), 4);
        else
            table_cell(table, "%s", "");
    }
    table_print(table, format, to);
    table_destroy(table);
    if (shown < s->n_kernels)
        fprintf(to, "... and %zu more; -o csv and --json print all\n", s->n_kernels - shown);
    return SOL_OK;
}

/* Where kernels were counted and not timed. */
static enum sol_status launch_table(const struct profile_report *r, enum table_format format,
                                    FILE *to)
{
    const struct timeline *t = r->timeline;
    struct table *table;
    size_t shown = format == TABLE_CSV || t->n_counts <= ROWS_SHOWN ? t->n_counts : ROWS_SHOWN;
    SOL_TRY(table_create(format == TABLE_CSV ? "kernel|category|>launched|>in_graphs"
                                             : "=kernel|-category|>launched|>in graphs",
                         &table));
    for (size_t i = 0; i < shown; i++) {
        const struct trace_count *c = &t->counts[i];
        table_cell(table, "%s", kernel_name(t, c->name));
        bool graph = strncmp(timeline_text(t, c->name), "graph ", 6) == 0;
        table_cell(table, "%s",
                   graph ? "graph" : category_name(category_of(timeline_text(t, c->name))));
        table_cell(table, "%" PRIu64, c->launched);
        table_cell(table, "%" PRIu64, c->in_graphs);
    }
    table_print(table, format, to);
    table_destroy(table);
    if (shown < t->n_counts)
        fprintf(to, "... and %zu more; -o csv and --json print all\n", t->n_counts - shown);
    return SOL_OK;
}

static enum sol_status category_table(const struct trace_summary *s, FILE *to)
{
    struct table *table;
    int64_t times[CATEGORY_COUNT] = {0};
    uint64_t counts[CATEGORY_COUNT] = {0};
    for (size_t i = 0; i < s->n_kernels; i++) {
        times[s->kernels[i].category] += s->kernels[i].total;
        counts[s->kernels[i].category] += s->kernels[i].count;
    }
    SOL_TRY(table_create("category|>time %|>count|>total ms", &table));
    for (int c = 0; c < CATEGORY_COUNT; c++) {
        if (counts[c] == 0) continue;
        table_cell(table, "%s", category_name((enum kernel_category)c));
        table_cell(table, "%.2f", percent(times[c], s->kernel_time));
        table_cell(table, "%" PRIu64, counts[c]);
        table_cell(table, "%.3f", (double)times[c] / 1e6);
    }
    fputs("\n", to);
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status copy_table(const struct profile_report *r, FILE *to)
{
    const struct trace_summary *s = r->summary;
    struct table *table;
    if (s->n_copies == 0) return SOL_OK;
    SOL_TRY(table_create("~copy|from|to|>count|>MiB|>total ms|>GB/s", &table));
    for (size_t i = 0; i < s->n_copies; i++) {
        const struct copy_row *c = &s->copies[i];
        table_cell(table, "%s", timeline_text(r->timeline, c->name));
        table_cell(table, "%s", c->from ? memory_kind_name((enum memory_kind)c->from) : "");
        table_cell(table, "%s", memory_kind_name((enum memory_kind)c->to));
        table_cell(table, "%" PRIu64, c->count);
        table_cell(table, "%.3f", (double)c->bytes / (1 << 20));
        table_cell(table, "%.3f", (double)c->total / 1e6);
        table_cell(table, "%.2f", c->total ? (double)c->bytes / (double)c->total : 0);
    }
    fputs("\n", to);
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status host_table(const struct profile_report *r, FILE *to)
{
    const struct trace_summary *s = r->summary;
    struct table *table;
    if (s->n_host == 0) return SOL_OK;
    SOL_TRY(table_create("=on the host|-kind|>count|>total ms|>average us|>max us", &table));
    for (size_t i = 0; i < s->n_host && i < HOST_ROWS_SHOWN; i++) {
        const struct host_row *h = &s->host[i];
        table_cell(table, "%s", timeline_text(r->timeline, h->name));
        table_cell(table, "%s", event_kind_name((enum event_kind)h->kind));
        table_cell(table, "%" PRIu64, h->count);
        table_cell(table, "%.3f", (double)h->total / 1e6);
        table_cell(table, "%.3f", us(h->total) / (double)h->count);
        table_cell(table, "%.3f", us(h->max));
    }
    fputs("\n", to);
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

/* ---- text around the tables ---- */

/* Of the samples while the trace ran. */
struct device_state {
    uint32_t sm_min, sm_max, power_max, power_limit, throttle;
    int32_t temperature_max;
    size_t count;
};

static struct device_state state_of(const struct timeline *t, size_t device)
{
    struct device_state s = {.temperature_max = INT32_MIN};
    for (size_t i = 0; i < t->n_samples; i++) {
        const struct trace_sample *p = &t->samples[i];
        if (p->device != device) continue;
        s.count++;
        if (p->sm_mhz && (s.sm_min == 0 || p->sm_mhz < s.sm_min)) s.sm_min = p->sm_mhz;
        if (p->sm_mhz > s.sm_max) s.sm_max = p->sm_mhz;
        if (p->power_mw > s.power_max) s.power_max = p->power_mw;
        if (p->power_limit_mw) s.power_limit = p->power_limit_mw;
        if (p->temperature_c > s.temperature_max) s.temperature_max = p->temperature_c;
        s.throttle |= p->throttle & ~1u; /* idle is no fault */
    }
    return s;
}

static void print_state(const struct timeline *t, size_t device, FILE *to)
{
    struct device_state s = state_of(t, device);
    if (s.count == 0) return;
    fprintf(to, "  %zu samples: SM clock %u to %u MHz, power up to %u of %u W", s.count, s.sm_min,
            s.sm_max, s.power_max / 1000, s.power_limit / 1000);
    if (s.temperature_max != INT32_MIN) fprintf(to, ", up to %d C", s.temperature_max);
    fprintf(to, ", throttle reasons 0x%x\n", s.throttle);
}

static void print_totals(const struct profile_report *r, FILE *to)
{
    const struct trace_summary *s = r->summary;
    const struct timeline *t = r->timeline;
    for (size_t i = 0; i < t->n_devices; i++) {
        fprintf(to, "device %zu: %s, %u SMs\n", i, timeline_text(t, t->devices[i].name),
                t->devices[i].sm_count);
        print_state(t, i, to);
    }
    fprintf(to,
            "%" PRIu64 " kernels, %" PRIu64 " graph runs, %zu processes, tracing level %s\n"
            "device time %.3f ms: busy %.3f ms (%.1f %%), gaps %.3f ms (%" PRIu64
            ", longest %.1f us), held up by tracing %.3f ms\n",
            s->kernel_count, s->graph_count, t->n_processes, trace_level_name(t->level),
            (double)s->span / 1e6, (double)s->busy / 1e6, percent(s->busy, s->span),
            (double)s->gap / 1e6, s->gap_count, us(s->gap_max), (double)s->tracer / 1e6);
}

static void print_windows(const struct profile_report *r, FILE *to)
{
    const struct trace_window_set *w = r->windows;
    if (w->count == 0) {
        fputs("steps: nothing repeats three times\n", to);
        return;
    }
    const struct trace_window *typical = &w->windows[w->typical];
    fprintf(to,
            "steps: %zu, found by %s%s%s; typical step %.3f ms with %zu pieces of device work\n",
            w->count, window_method_name(w->method), w->name == TRACE_NONE ? "" : " ",
            timeline_text(r->timeline, w->name), (double)(typical->end - typical->begin) / 1e6,
            typical->works);
    if (r->inflation.timed)
        fprintf(to,
                "sampled: %zu of %zu steps were timed, which made them %.1f %% longer; the others "
                "took %.3f ms\n",
                r->inflation.timed, r->inflation.timed + r->inflation.untimed,
                100 * r->inflation.share, r->inflation.untimed_ns / 1e6);
}

/* Of programs that say what their plans have. */
static void print_plans(const struct profile_report *r, FILE *to)
{
    const struct trace_launches *all = r->launches;
    char text[TRACE_UNSOUND];
    for (size_t i = 0; i < all->count; i++) {
        const struct trace_launched *l = &all->items[i];
        fprintf(to, "%s: %" PRIu64 " kernels in the plan", timeline_text(r->timeline, l->name),
                l->planned);
        if (l->ranges && l->least == l->most)
            fprintf(to, ", %" PRIu64 " launched in each of %zu", l->least, l->ranges);
        else if (l->ranges)
            fprintf(to, ", %" PRIu64 " to %" PRIu64 " launched in %zu", l->least, l->most,
                    l->ranges);
        if (l->wholes)
            fprintf(to, ", not counted in %zu (--level node takes graphs apart)", l->wholes);
        fputc('\n', to);
    }
    if (all->count && isfinite(trace_launches_preparing(all)))
        fprintf(to, "%.1f %% of their kernels' time quantises and transposes\n",
                100 * trace_launches_preparing(all));
    if (trace_launches_unsound(r->timeline, all, text)) fprintf(to, "INVALID: %s\n", text);
}

/* Graphs that were traced as wholes hide what ranks cost each other. */
static bool hides_ranks(const struct profile_report *r)
{
    return r->summary->devices > 1 && r->summary->graph_count && r->ranks->n_ranks == 0;
}

static enum sol_status print_ranks(const struct profile_report *r, FILE *to)
{
    if (hides_ranks(r))
        fprintf(to,
                "%zu GPUs ran graphs, which were timed as wholes; --level node shows what the "
                "GPUs wait for each other\n",
                r->summary->devices);
    return profile_ranks_print(r->ranks, r->windows->device, (double)r->ranks->steps,
                               r->windows->count ? "step" : "trace", to);
}

static void print_loss(const struct profile_report *r, FILE *to)
{
    const struct timeline *t = r->timeline;
    const struct trace_loss *l = &t->lost;
    size_t early = 0;
    for (size_t i = 0; i < t->n_processes; i++) early += !t->processes[i].complete;
    for (size_t i = 0; i < t->n_notes; i++)
        fprintf(to, "note: %s\n", timeline_text(t, t->notes[i]));
    if (r->signal) fprintf(to, "note: signal %d ended the command\n", r->signal);
    if (early)
        fprintf(to,
                "lost: %zu of %zu processes ended without closing their trace (killed, crashed, "
                "_exit or "
                "exec); their last 0.1 s or so is missing\n",
                early, t->n_processes);
    if (l->records) fprintf(to, "lost: %" PRIu64 " records dropped by CUPTI\n", l->records);
    if (l->timestamps)
        fprintf(to, "lost: times of %" PRIu64 " pieces of device work\n", l->timestamps);
    if (l->unknown) fprintf(to, "lost: %" PRIu64 " records of unknown form\n", l->unknown);
    if (l->unpaired) fprintf(to, "lost: the other end of %" PRIu64 " NVTX ranges\n", l->unpaired);
    if (l->bytes || l->files)
        fprintf(to, "lost: %" PRIu64 " bytes of %" PRIu64 " trace files\n", l->bytes, l->files);
}

static enum sol_status print_text(const struct profile_report *r, const struct steps *steps,
                                  FILE *to)
{
    print_totals(r, to);
    print_windows(r, to);
    print_plans(r, to);
    SOL_TRY(print_ranks(r, to));
    if (r->summary->n_kernels) {
        fputs("\n", to);
        SOL_TRY(kernel_table(r, steps, TABLE_TEXT, to));
        SOL_TRY(category_table(r->summary, to));
    }
    if (r->timeline->n_counts) {
        fputs("\ncounted without being timed (level node times them):\n", to);
        SOL_TRY(launch_table(r, TABLE_TEXT, to));
    }
    SOL_TRY(copy_table(r, to));
    SOL_TRY(host_table(r, to));
    print_loss(r, to);
    if (r->run) fprintf(to, "\nkept as run %s (sol advise %s)\n", r->run, r->run);
    if (r->next) next_print(r->next, to);
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *name_json(const struct timeline *t, uint32_t name)
{
    return store_json_string(timeline_text(t, name));
}

static json_t *kernels_json(const struct profile_report *r, const struct steps *steps)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->summary->n_kernels; i++) {
        const struct kernel_row *row = &r->summary->kernels[i];
        json_t *item =
            json_pack("{s:o, s:s, s:f, s:I, s:I, s:f, s:I, s:I}", "name",
                      name_json(r->timeline, row->name), "category", category_name(row->category),
                      "time_percent", percent(row->total, r->summary->kernel_time), "count",
                      (json_int_t)row->count, "total_ns", (json_int_t)row->total, "average_ns",
                      (double)row->total / (double)row->count, "min_ns", (json_int_t)row->min,
                      "max_ns", (json_int_t)row->max);
        if (steps->count)
            json_object_set_new(item, "per_step", json_real(per_step(steps, row->name)));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *launched_json(const struct timeline *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_counts; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:I}", "name", name_json(t, t->counts[i].name),
                                        "launched", (json_int_t)t->counts[i].launched, "in_graphs",
                                        (json_int_t)t->counts[i].in_graphs));
    return list;
}

static json_t *copies_json(const struct profile_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->summary->n_copies; i++) {
        const struct copy_row *c = &r->summary->copies[i];
        json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:I, s:I, s:I}", "name",
                                              name_json(r->timeline, c->name), "from",
                                              memory_kind_name((enum memory_kind)c->from), "to",
                                              memory_kind_name((enum memory_kind)c->to), "count",
                                              (json_int_t)c->count, "bytes", (json_int_t)c->bytes,
                                              "total_ns", (json_int_t)c->total));
    }
    return list;
}

static json_t *host_json(const struct profile_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->summary->n_host; i++) {
        const struct host_row *h = &r->summary->host[i];
        json_array_append_new(list, json_pack("{s:o, s:s, s:I, s:I, s:I}", "name",
                                              name_json(r->timeline, h->name), "kind",
                                              event_kind_name((enum event_kind)h->kind), "count",
                                              (json_int_t)h->count, "total_ns",
                                              (json_int_t)h->total, "max_ns", (json_int_t)h->max));
    }
    return list;
}

static json_t *processes_json(const struct timeline *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_processes; i++) {
        const struct trace_process *p = &t->processes[i];
        json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:s, s:b, s:I, s:I}", "pid",
                                              (json_int_t)p->pid, "parent", (json_int_t)p->parent,
                                              "command", name_json(t, p->command), "level",
                                              trace_level_name((enum trace_level)p->level),
                                              "complete", (int)p->complete, "start_ns",
                                              (json_int_t)p->start, "end_ns", (json_int_t)p->end));
    }
    return list;
}

static json_t *devices_json(const struct timeline *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_devices; i++) {
        const struct trace_device *d = &t->devices[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:i, s:s, s:I, s:f, s:f}", "name",
                                        name_json(t, d->name), "sm_count", (int)d->sm_count, "kind",
                                        d->cpu ? "cpu" : "gpu", "memory_bytes",
                                        (json_int_t)d->memory_bytes, "memory_bandwidth_bytes_per_s",
                                        d->memory_bandwidth, "clock_hz", d->clock_hz));
    }
    return list;
}

static json_t *lost_json(const struct timeline *t)
{
    const struct trace_loss *l = &t->lost;
    json_t *notes = json_array();
    for (size_t i = 0; i < t->n_notes; i++) json_array_append_new(notes, name_json(t, t->notes[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "records", (json_int_t)l->records,
                     "timestamps", (json_int_t)l->timestamps, "unknown", (json_int_t)l->unknown,
                     "unpaired_ranges", (json_int_t)l->unpaired, "bytes", (json_int_t)l->bytes,
                     "files", (json_int_t)l->files, "notes", notes);
}

static json_t *windows_json(const struct profile_report *r, const struct steps *steps)
{
    const struct trace_window_set *w = r->windows;
    json_t *object = json_pack("{s:s, s:I}", "method", window_method_name(w->method), "count",
                               (json_int_t)w->count);
    if (r->inflation.timed)
        json_object_set_new(
            object, "sampled",
            json_pack("{s:I, s:I, s:f, s:f}", "timed", (json_int_t)r->inflation.timed, "untimed",
                      (json_int_t)r->inflation.untimed, "timed_ns", r->inflation.timed_ns,
                      "untimed_ns", r->inflation.untimed_ns));
    if (w->count == 0) return object;
    const struct trace_window *typical = &w->windows[w->typical];
    json_object_set_new(object, "name", name_json(r->timeline, w->name));
    json_object_set_new(object, "kernel_ns", json_integer((json_int_t)steps->steady.kernel_time));
    json_object_set_new(object, "busy_ns", json_integer((json_int_t)steps->steady.busy));
    json_object_set_new(object, "typical",
                        json_pack("{s:I, s:I, s:I}", "begin_ns", (json_int_t)typical->begin,
                                  "end_ns", (json_int_t)typical->end, "works",
                                  (json_int_t)typical->works));
    return object;
}

static json_t *plans_json(const struct profile_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->launches->count; i++) {
        const struct trace_launched *l = &r->launches->items[i];
        json_array_append_new(
            list, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                            name_json(r->timeline, l->name), "planned", (json_int_t)l->planned,
                            "counted", (json_int_t)l->ranges, "wrong", (json_int_t)l->wrong,
                            "not_counted", (json_int_t)l->wholes, "least", (json_int_t)l->least,
                            "most", (json_int_t)l->most, "kernel_ns", (json_int_t)l->kernel_ns,
                            "preparing_ns", (json_int_t)l->preparing_ns));
    }
    return list;
}

static enum sol_status print_json(const struct profile_report *r, const struct steps *steps,
                                  FILE *to)
{
    const struct trace_summary *s = r->summary;
    json_t *device_time =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "span_ns", (json_int_t)s->span, "busy_ns",
                  (json_int_t)s->busy, "gap_ns", (json_int_t)s->gap, "tracer_ns",
                  (json_int_t)s->tracer, "gaps", (json_int_t)s->gap_count, "gap_max_ns",
                  (json_int_t)s->gap_max, "kernel_ns", (json_int_t)s->kernel_time);
    json_t *report =
        json_pack("{s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "schema", "sol.profile.1", "exit_status", r->exit_status, "signal", r->signal,
                  "level", trace_level_name(r->timeline->level), "kernels_run",
                  (json_int_t)s->kernel_count, "graph_runs", (json_int_t)s->graph_count, "samples",
                  (json_int_t)r->timeline->n_samples, "device_time", device_time, "steps",
                  windows_json(r, steps), "kernels", kernels_json(r, steps), "copies",
                  copies_json(r), "host", host_json(r), "devices", devices_json(r->timeline),
                  "processes", processes_json(r->timeline), "lost", lost_json(r->timeline));
    if (!report) return status_set(SOL_E_MEMORY, "out of memory for a report");
    json_object_set_new(report, "launched", launched_json(r->timeline));
    json_object_set_new(report, "plans", plans_json(r));
    json_object_set_new(report, "communication",
                        communication_json(r->ranks, r->windows->device, (double)r->ranks->steps));
    json_object_set_new(report, "run", r->run ? json_string(r->run) : json_null());
    next_set(r->next ? r->next : &(struct next){.first = ""}, report);
    json_dumpf(report, to, JSON_INDENT(2));
    fputs("\n", to);
    json_decref(report);
    return SOL_OK;
}

enum sol_status profile_report_print(const struct profile_report *report, enum report_format format,
                                     FILE *to)
{
    struct steps steps;
    enum sol_status status = find_steps(report, &steps);
    if (status == SOL_OK) {
        if (format == REPORT_JSON)
            status = print_json(report, &steps, to);
        else if (format == REPORT_CSV)
            status = report->timeline->n_counts ? launch_table(report, TABLE_CSV, to)
                                                : kernel_table(report, &steps, TABLE_CSV, to);
        else
            status = print_text(report, &steps, to);
    }
    trace_summary_free(&steps.steady);
    return status;
}
