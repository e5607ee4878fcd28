#include "compare/roles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json_value.h"
#include "base/memory.h"
#include "base/status.h"
#include "stats/metric.h"
#include "store/store_json.h"

enum { NAME_SIZE = 400 };

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory for the roles of kernels");
}

static const char *part_name(int part)
{
    return part == ROLES_IDLE ? "between kernels" : role_name((enum kernel_role)part);
}

/* ---- adding up ---- */

static int by_name(const void *a, const void *b)
{
    const struct roles_kernel *x = a, *y = b;
    if (x->role != y->role) return (x->role > y->role) - (x->role < y->role);
    return strcmp(x->name, y->name);
}

static int by_time(const void *a, const void *b)
{
    const struct roles_kernel *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? 1 : -1;
    return by_name(a, b);
}

/* One entry for each name and role, then the parts from them. */
static void add_up(struct roles_side *side)
{
    size_t n = 0;
    if (side->n_kernels) qsort(side->kernels, side->n_kernels, sizeof *side->kernels, by_name);
    for (size_t i = 0; i < side->n_kernels; i++) {
        struct roles_kernel *k = &side->kernels[i];
        if (n && by_name(&side->kernels[n - 1], k) == 0) {
            side->kernels[n - 1].ns += k->ns;
            side->kernels[n - 1].calls += k->calls;
            free(k->name);
            continue;
        }
        side->kernels[n++] = *k;
    }
    side->n_kernels = n;
    side->ns[ROLES_IDLE] = side->whole_ns;
    for (size_t i = 0; i < n; i++) {
        const struct roles_kernel *k = &side->kernels[i];
        side->ns[k->role] += k->ns;
        side->calls[k->role] += k->calls;
        side->ns[ROLES_IDLE] -= k->ns;
    }
    if (n) qsort(side->kernels, n, sizeof *side->kernels, by_time);
}

static enum sol_status add_kernel(struct roles_side *side, const char *name, enum kernel_role role,
                                  double ns, double calls)
{
    struct roles_kernel *k = &side->kernels[side->n_kernels];
    *k = (struct roles_kernel){strdup(*name ? name : "(unnamed)"), role, ns, calls};
    if (!k->name) return no_memory();
    side->n_kernels++;
    return SOL_OK;
}

static enum sol_status open_side(struct roles_side *side, const char *name, const char *metric,
                                 size_t kernels)
{
    side->name = strdup(name);
    side->metric = strdup(metric);
    side->kernels = calloc(kernels + 1, sizeof *side->kernels);
    return side->name && side->metric && side->kernels ? SOL_OK : no_memory();
}

void roles_side_free(struct roles_side *side)
{
    for (size_t i = 0; i < side->n_kernels; i++) free(side->kernels[i].name);
    free(side->kernels);
    free(side->name);
    free(side->metric);
    *side = (struct roles_side){0};
}

/* ---- a time line ---- */

static enum sol_status add_step(struct roles_side *side, const struct timeline *t,
                                const uint32_t *events, size_t n, const enum kernel_role *roles,
                                const struct trace_window *w, double tokens)
{
    int64_t until = w->begin;
    for (size_t i = 0; i < n; i++) {
        const struct trace_event *e = &t->events[events[i]];
        int64_t end = e->end < w->end ? e->end : w->end;
        int64_t from = e->start > until ? e->start : until;
        double own = end > from ? (double)(end - from) : 0;
        SOL_TRY(add_kernel(side, timeline_text(t, e->name), roles[i], own / tokens, 1 / tokens));
        if (end > until) until = end;
    }
    return SOL_OK;
}

enum sol_status roles_of_timeline(const struct timeline *t, const struct trace_window_set *windows,
                                  double tokens, const char *name, struct roles_side *out)
{
    *out = (struct roles_side){0};
    if (windows->count == 0)
        return status_set(SOL_E_ARGUMENT,
                          "%s: nothing repeats in this trace, so there is no step to divide", name);
    const struct trace_window *w = &windows->windows[windows->typical];
    size_t n = 0, first = timeline_lower_bound(t, w->begin);
    size_t last = timeline_lower_bound(t, w->end);
    uint32_t *events = malloc((last - first + 1) * sizeof *events);
    enum kernel_role *roles = malloc((last - first + 1) * sizeof *roles);
    for (size_t i = first; events && i < last; i++)
        if (event_on_device(t->events[i].kind) && t->events[i].device == windows->device)
            events[n++] = (uint32_t)i;
    enum sol_status status = events && roles ? open_side(out, name, "step", n) : no_memory();
    if (status == SOL_OK) status = role_of_events(t, events, n, roles);
    out->whole_ns = (double)(w->end - w->begin) / tokens;
    if (status == SOL_OK) status = add_step(out, t, events, n, roles, w, tokens);
    if (status == SOL_OK) add_up(out);
    free(events);
    free(roles);
    return status;
}

/* ---- a stored run ---- */

static const char *choose_metric(const struct store_record *r)
{
    const char *first = NULL;
    for (size_t i = 0; i < r->n_kernels; i++) {
        const struct store_kernel *k = &r->kernels[i];
        if (!k->metric || !(k->total_ns >= 0)) continue;
        if (!first) first = k->metric;
        if (k->phase && strcmp(k->phase, "decode") == 0) return k->metric;
    }
    return first;
}

static enum sol_status add_row(struct roles_side *side, const struct store_kernel *k)
{
    char name[NAME_SIZE], parent[NAME_SIZE];
    const char *variant = k->variant ? k->variant : "";
    double tokens = metric_row_tokens(k);
    snprintf(name, sizeof name, "%s%s%s", k->name ? k->name : "", *variant ? " " : "", variant);
    snprintf(parent, sizeof parent, "%s", k->name ? k->name : "");
    parent[strcspn(parent, "/")] = '\0';
    enum kernel_role role = k->op ? role_of_op(parent, k->op) : ROLE_NOT_PLACED;
    return add_kernel(side, name, role, k->total_ns / tokens,
                      k->calls > 0 ? (double)k->calls / tokens : 0);
}

enum sol_status roles_of_record(const struct store_record *record, const char *metric,
                                const char *name, struct roles_side *out)
{
    *out = (struct roles_side){0};
    if (!metric) metric = choose_metric(record);
    const struct store_metric *m = metric ? store_record_metric(record, metric) : NULL;
    if (metric && !m)
        return status_set(SOL_E_ARGUMENT, "run %s has no test %s", record->run.id, metric);
    size_t n = 0;
    if (m) SOL_TRY(open_side(out, name, metric, record->n_kernels));
    for (size_t i = 0; m && i < record->n_kernels; i++) {
        const struct store_kernel *k = &record->kernels[i];
        if (!k->metric || strcmp(k->metric, metric) != 0 || !(k->total_ns >= 0)) continue;
        SOL_TRY(add_row(out, k));
        n++;
    }
    if (n == 0)
        return status_set(SOL_E_ARGUMENT,
                          "run %s (%s) has no times of kernels%s%s; make one with sol profile, or "
                          "sol bench --ops",
                          record->run.id, record->run.kind, metric ? " of " : "",
                          metric ? metric : "");
    out->whole_ns = metric_figure_value(m);
    add_up(out);
    return SOL_OK;
}

/* ---- showing ---- */

static double delta_of(const struct roles_side sides[2], int part)
{
    return sides[1].ns[part] - sides[0].ns[part];
}

static double share_of(const struct roles_side sides[2], int part)
{
    double whole = sides[1].whole_ns - sides[0].whole_ns;
    return whole == 0 ? (double)NAN : 100 * delta_of(sides, part) / whole;
}

static bool is_empty(const struct roles_side sides[2], int part)
{
    return part != ROLES_IDLE && part != ROLE_NOT_PLACED && sides[0].calls[part] == 0 &&
           sides[1].calls[part] == 0;
}

static void print_row(struct table *table, const struct roles_side sides[2], int part)
{
    double share = share_of(sides, part);
    table_cell(table, "%s", part_name(part));
    for (int i = 0; i < 2; i++)
        if (part < ROLE_COUNT && sides[i].calls[part] == 0)
            table_cell(table, "%s", "");
        else
            table_cell(table, "%.0f", sides[i].ns[part]);
    table_cell(table, "%+.0f", delta_of(sides, part));
    if (isfinite(share))
        table_cell(table, "%.1f", share);
    else
        table_cell(table, "%s", "");
}

/* The kernels of a side that nothing could be said about, longest first. */
static void print_unplaced(const struct roles_side *side, char letter, FILE *to)
{
    enum { SHOWN = 5 };
    size_t shown = 0, n = 0;
    for (size_t i = 0; i < side->n_kernels; i++) n += side->kernels[i].role == ROLE_NOT_PLACED;
    if (n == 0) return;
    fprintf(to, "not placed in %c: ", letter);
    for (size_t i = 0; i < side->n_kernels && shown < SHOWN; i++) {
        const struct roles_kernel *k = &side->kernels[i];
        if (k->role != ROLE_NOT_PLACED) continue;
        fprintf(to, "%s%.60s (%.0f ns)", shown++ ? ", " : "", k->name, k->ns);
    }
    fprintf(to, "%s\n", n > SHOWN ? ", ..." : "");
}

enum sol_status roles_print(const struct roles_side sides[2], enum table_format format, FILE *to)
{
    struct table *table;
    for (int i = 0; i < 2; i++)
        fprintf(to, "%c: %s, %s, %.0f ns/token%s", 'A' + i, sides[i].name, sides[i].metric,
                sides[i].whole_ns, format == TABLE_TEXT ? "\n" : "  \n");
    fputs("\n", to);
    SOL_TRY(table_create("role|>A ns/token|>B ns/token|>difference|>% of it", &table));
    for (int part = 0; part < ROLES_PARTS; part++)
        if (!is_empty(sides, part)) print_row(table, sides, part);
    table_cell(table, "all");
    for (int i = 0; i < 2; i++) table_cell(table, "%.0f", sides[i].whole_ns);
    table_cell(table, "%+.0f", sides[1].whole_ns - sides[0].whole_ns);
    table_cell(table, "%s", sides[1].whole_ns == sides[0].whole_ns ? "" : "100.0");
    table_print(table, format, to);
    table_destroy(table);
    fputs("\n", to);
    for (int i = 0; i < 2; i++) print_unplaced(&sides[i], (char)('A' + i), to);
    fputs("A fused kernel counts as what takes most of its time.\n", to);
    return SOL_OK;
}

static json_t *kernels_json(const struct roles_side *side, int part)
{
    enum { SHOWN = 12 };
    json_t *list = json_array();
    for (size_t i = 0; i < side->n_kernels && json_array_size(list) < SHOWN; i++) {
        const struct roles_kernel *k = &side->kernels[i];
        if ((int)k->role == part)
            json_array_append_new(list,
                                  json_pack("{s:o, s:f, s:f}", "name", store_json_string(k->name),
                                            "ns", k->ns, "calls", k->calls));
    }
    return list;
}

json_t *roles_json(const struct roles_side sides[2])
{
    json_t *rows = json_array(), *names = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(names, json_pack("{s:o, s:s, s:f}", "name",
                                               store_json_string(sides[i].name), "metric",
                                               sides[i].metric, "ns_per_token", sides[i].whole_ns));
    for (int part = 0; part < ROLES_PARTS; part++) {
        double share = share_of(sides, part);
        if (is_empty(sides, part)) continue;
        json_array_append_new(
            rows,
            json_pack("{s:s, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:o}", "role", part_name(part),
                      "old_ns", sides[0].ns[part], "new_ns", sides[1].ns[part], "delta_ns",
                      delta_of(sides, part), "share_percent", json_number(share), "old_calls",
                      sides[0].calls[part], "new_calls", sides[1].calls[part], "old_kernels",
                      kernels_json(&sides[0], part), "new_kernels", kernels_json(&sides[1], part)));
    }
    return json_pack("{s:s, s:o, s:o, s:f}", "schema", "sol.roles.1", "sides", names, "roles", rows,
                     "delta_ns_per_token", sides[1].whole_ns - sides[0].whole_ns);
}
