/* The report over many runs: metrics in their order, attempts to speed something up, and how well
 * their predictions came true. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/arena.h"
#include "opt/gates.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/report.h"
#include "report/run_data.h"

enum { CHARTS_MAX = 6, ITERATIONS_MAX = 200, RULES_MAX = 64 };

struct history_data {
    struct store *store;
    const struct report_history *options;
    struct store_list *list;       /* the newest first */
    struct store_record **records; /* the oldest first */
    size_t n_records;
    struct store_iterations *iterations;
    struct store_ledger *ledger;
    struct arena *arena;
};

static void destroy(struct history_data *d)
{
    for (size_t i = 0; i < d->n_records; i++) store_record_destroy(d->records[i]);
    free(d->records);
    store_list_destroy(d->list);
    store_iterations_destroy(d->iterations);
    store_ledger_destroy(d->ledger);
    arena_destroy(d->arena);
}

/* ---- reading ---- */

/* Runs of one kind, model and device, since others cannot be joined by a line: those asked for,
 * else those of the newest run. */
static enum sol_status read_runs(struct history_data *d)
{
    const struct report_history *o = d->options;
    struct store_filter filter = {.kind = o->kind ? o->kind : "bench",
                                  .label = o->label,
                                  .model = o->model,
                                  .device = o->device,
                                  .states_set = true,
                                  .states =
                                      1u << STORE_OK | 1u << STORE_PARTIAL | 1u << STORE_INVALID,
                                  .limit = 1};
    struct store_list *newest;
    SOL_TRY(store_list_read(d->store, &filter, &newest));
    filter.limit = o->limit;
    if (newest->count) {
        filter.model = newest->runs[0].model;
        filter.device = newest->runs[0].device;
    }
    enum sol_status status = store_list_read(d->store, &filter, &d->list);
    store_list_destroy(newest);
    SOL_TRY(status);
    d->records = calloc(d->list->count + 1, sizeof(struct store_record *));
    if (!d->records) return status_set(SOL_E_MEMORY, "no memory for %zu runs", d->list->count);
    for (size_t i = d->list->count; i-- > 0;) {
        SOL_TRY(store_record_read(d->store, d->list->runs[i].id, &d->records[d->n_records]));
        d->n_records++;
    }
    return SOL_OK;
}

/* ---- a metric over runs ---- */

static const char *keep(struct history_data *d, const char *text)
{
    const char *copy = arena_strndup(d->arena, text, strlen(text));
    return copy ? copy : "";
}

/* The run's label, else the start of the commit that it was made at, else its id. */
static const char *name_of(struct history_data *d, const struct store_record *r)
{
    char text[32];
    if (r->run.label && *r->run.label) return r->run.label;
    json_t *json = r->environment_json ? json_loads(r->environment_json, 0, NULL) : NULL;
    const char *commit = json_string_value(json_object_get(json, "commit"));
    snprintf(text, sizeof text, "%.8s", commit && *commit ? commit : r->run.id);
    json_decref(json);
    return keep(d, text);
}

static const struct store_iteration *iteration_of(const struct history_data *d, const char *run)
{
    for (size_t i = 0; i < d->iterations->count; i++) {
        const struct store_iteration *it = &d->iterations->items[i];
        if (it->bench_run && strcmp(it->bench_run, run) == 0) return it;
    }
    return NULL;
}

static struct history_point point_of(struct history_data *d, const struct store_record *r,
                                     const char *metric, const char *unit, const struct figure *f)
{
    const struct store_iteration *it = iteration_of(d, r->run.id);
    /* A verdict on one metric says nothing of the others. */
    bool other = it && it->metric && strcmp(it->metric, metric) != 0;
    if (other && it->verdict && strncmp(it->verdict, "in", 2) != 0) it = NULL;
    if (other && it && it->verdict && strcmp(it->verdict, "inconclusive") == 0) it = NULL;
    char day[FIGURE_SIZE], value[FIGURE_SIZE], hint[300];
    const char *name = name_of(d, r);
    snprintf(hint, sizeof hint, "%.80s (%s): %s %.20s%s%.20s%s%.100s", name, r->run.id,
             figure_number(f->value, value), unit, it && it->verdict ? ", " : "",
             it && it->verdict ? it->verdict : "", it && it->hypothesis ? ": " : "",
             it && it->hypothesis ? it->hypothesis : "");
    return (struct history_point){.label = name,
                                  .day = keep(d, figure_day(r->run.created_ns, day)),
                                  .median = f->value,
                                  .low = f->low,
                                  .high = f->high,
                                  .verdict = it ? it->verdict : NULL,
                                  .valid = r->run.state != STORE_INVALID,
                                  .hint = keep(d, hint)};
}

/* SOL_OK with *points 0 when no run has it. */
static enum sol_status collect(struct history_data *d, const char *name, struct history *h,
                               struct history_point *points)
{
    *h = (struct history){.metric = name, .points = points, .limit = (double)NAN};
    const char *stored = NULL;
    double factor = 1;
    for (size_t i = 0; i < d->n_records; i++) {
        const struct store_metric *metric = store_record_metric(d->records[i], name);
        struct metric_figure m;
        if (!metric) continue;
        SOL_TRY(metric_figure_of(metric, &m));
        if (!isfinite(m.shown.value)) continue;
        /* A metric that changed its unit is another one; all are shown in the unit of the first. */
        if (stored && strcmp(stored, metric->unit) != 0) continue;
        if (!stored) {
            h->unit = m.unit;
            factor = m.factor;
            stored = metric->unit;
        }
        struct figure f = figure_scaled(&m.shown, factor / m.factor);
        h->higher_is_better = m.speed != (metric->better == STORE_HIGHER);
        h->limit = f.limit;
        points[h->n_points++] = point_of(d, d->records[i], name, h->unit, &f);
    }
    return SOL_OK;
}

static void show_change(struct html *html, const struct history *h)
{
    const struct history_point *first = &h->points[0], *last = &h->points[h->n_points - 1];
    char change[FIGURE_SIZE], from[FIGURE_SIZE], to[FIGURE_SIZE];
    html_print(
        html,
        "<h3>%.120s</h3>\n<p class=\"note\">%s %.20s at first, %s at last: %s over %zu runs.</p>\n",
        h->metric, figure_number(first->median, from), h->unit, figure_number(last->median, to),
        figure_change(last->median / first->median - 1, change), h->n_points);
}

static void key_entry(struct html *html, const char *verdict, const char *text)
{
    struct svg svg = {.html = html};
    const char *class;
    enum svg_mark mark = verdict_mark(verdict, &class);
    html_raw(html, "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">");
    svg_mark(&svg, mark, class, 7, 7, 4.4, NULL);
    html_print(html, "</svg>%s</li>", text);
}

static void show_key(struct html *html)
{
    static const char *const verdicts[] = {"faster", "slower", "same", "inconclusive", "invalid"};
    html_raw(html, "<ul class=\"key\">");
    key_entry(html, NULL, "not judged");
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        key_entry(html, verdicts[i], i < 4 ? verdicts[i] : "invalid or incorrect");
    html_raw(html, "<li>lines up and down: 95 % interval</li></ul>\n");
}

/* The metrics asked for; else of the newest run the first test of each kind (pp, tg). */
static size_t choose_metrics(const struct history_data *d, const char *names[CHARTS_MAX])
{
    const struct string_list *asked = d->options->metrics;
    size_t n = 0;
    for (size_t i = 0; asked && i < asked->count && n < CHARTS_MAX; i++)
        names[n++] = asked->values[i];
    if (n || !d->n_records) return n;
    const struct store_record *newest = d->records[d->n_records - 1];
    for (int speed = 1; speed >= 0 && !n; speed--)
        for (size_t i = 0; i < newest->n_metrics && n < CHARTS_MAX; i++) {
            const struct store_metric *m = &newest->metrics[i];
            bool first = m->n_samples > 0 && (!speed || strcmp(m->unit, "ns/token") == 0);
            for (size_t j = 0; j < n; j++) first = first && strncmp(names[j], m->name, 2) != 0;
            if (first) names[n++] = m->name;
        }
    return n;
}

static enum sol_status show_metrics(struct html *html, struct history_data *d)
{
    const char *names[CHARTS_MAX];
    size_t n = choose_metrics(d, names);
    struct history_point *points = ARENA_NEW(d->arena, struct history_point, d->n_records + 1);
    if (!points) return SOL_E_MEMORY;
    page_section(html, "metrics", "Speed over runs");
    if (!n) page_note(html, "The store has no benchmark runs that fit.");
    if (n) show_key(html);
    for (size_t i = 0; i < n; i++) {
        struct history h;
        SOL_TRY(collect(d, names[i], &h, points));
        if (h.n_points == 0) {
            html_print(html, "<h3>%.120s</h3>\n", names[i]);
            page_note(html, "No run has this metric.");
            continue;
        }
        show_change(html, &h);
        if (h.n_points == 1)
            page_note(html, "One run makes no history; the next one will.");
        else
            svg_figure(html, chart_history, &h, NULL);
    }
    return SOL_OK;
}

/* ---- iterations ---- */

static void iteration_row(struct html *html, const struct store_iteration *it)
{
    char text[FIGURE_SIZE], low[FIGURE_SIZE], high[FIGURE_SIZE], day[FIGURE_SIZE];
    const char *class;
    char gates[80];
    enum svg_mark mark = verdict_mark(it->verdict, &class);
    struct svg svg = {.html = html};
    html_print(html, "<tr><td class=\"n\">%lld</td><th scope=\"row\" class=\"name\">%.400s",
               (long long)it->number, it->hypothesis);
    html_print(html, "<span class=\"sub\">%s%s%.60s%s%.80s</span></th>",
               figure_day(it->created_ns, day), it->rule ? ", rule " : "", it->rule ? it->rule : "",
               it->metric ? ", " : "", it->metric ? it->metric : "");
    page_number_cell(html, figure_change(it->predicted, text));
    double gain = gates_gain(it, it->state);
    html_print(html, "<td class=\"n\">%s", figure_change(gain, text));
    if (gain == it->realised && isfinite(it->realised_low) && isfinite(it->realised_high))
        html_print(html, "<span class=\"sub\">%s to %s</span>",
                   figure_change(it->realised_low, low), figure_change(it->realised_high, high));
    html_raw(html, "</td><td>");
    if (it->verdict) {
        html_raw(html,
                 "<span class=\"key\"><span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">");
        svg_mark(&svg, mark, class, 7, 7, 4.4, NULL);
        html_print(html, "</svg><span class=\"v-%.20s\">%.40s</span></span></span>", it->verdict,
                   it->verdict);
    }
    gates_summary(it, gates);
    html_print(html,
               "</td><td>%.80s</td><td class=\"v-%.20s\">%.40s</td><td class=\"mono\">%.10s</td>"
               "</tr>\n",
               gates, it->state, it->state, it->base_commit);
}

static void show_iterations(struct html *html, const struct history_data *d)
{
    const struct store_iterations *list = d->iterations;
    page_section(html, "iterations", "What was tried");
    if (list->count == 0) {
        page_note(html, "No attempts are recorded; sol opt records them.");
        return;
    }
    page_note(html, "Gains are time saved, and none where a gate refused; the smaller line is the "
                    "95 % interval.");
    page_table_begin(html, "Iterations",
                     ">#|what was tried|>predicted|>realised|verdict|gates|state|base");
    for (size_t i = 0; i < list->count && i < ITERATIONS_MAX; i++)
        iteration_row(html, &list->items[i]);
    page_table_end(html);
    if (list->count > ITERATIONS_MAX) page_note(html, "Older ones are in the store.");
}

/* ---- ledger ---- */

static enum sol_status show_rules(struct html *html, const struct history_data *d)
{
    const char *rules[RULES_MAX];
    size_t n = 0;
    char text[FIGURE_SIZE];
    for (size_t i = 0; i < d->ledger->count; i++) {
        bool known = n == RULES_MAX;
        for (size_t j = 0; j < n && !known; j++)
            known = strcmp(rules[j], d->ledger->items[i].rule) == 0;
        if (!known) rules[n++] = d->ledger->items[i].rule;
    }
    page_table_begin(html, "Rules", "rule|>attempts|=comes true");
    for (size_t i = 0; i < n; i++) {
        double factor;
        int64_t entries;
        SOL_TRY(store_rule_factor(d->store, rules[i], &factor, &entries));
        html_print(html, "<tr><th scope=\"row\" class=\"name\">%.80s</th>", rules[i]);
        page_number_cell(html, figure_count(entries, text));
        page_share_cells(html, figure_percent(factor, text), factor);
        html_raw(html, "</tr>\n");
    }
    page_table_end(html);
    page_note(html, "How much of a prediction comes true. Each rule starts as if one prediction "
                    "had come true by half. New advice is weighted by "
                    "this share.");
    return SOL_OK;
}

static enum sol_status show_ledger(struct html *html, const struct history_data *d)
{
    bool any = false;
    for (size_t i = 0; i < d->ledger->count; i++)
        any = any ||
              (isfinite(d->ledger->items[i].predicted) && isfinite(d->ledger->items[i].realised));
    page_section(html, "ledger", "How predictions came true");
    if (!any) {
        page_note(html, "No prediction has been tried out yet.");
        return SOL_OK;
    }
    svg_figure(html, chart_ledger, d->ledger, NULL);
    return show_rules(html, d);
}

/* ---- the whole ---- */

static void show_header(struct html *html, const struct history_data *d)
{
    static const struct page_link links[] = {{"metrics", "Speed over runs"},
                                             {"iterations", "What was tried"},
                                             {"ledger", "How predictions came true"}};
    char count[FIGURE_SIZE], from[FIGURE_SIZE], to[FIGURE_SIZE];
    const struct store_run *newest = d->list->count ? &d->list->runs[0] : NULL;
    const struct store_run *oldest = newest ? &d->list->runs[d->list->count - 1] : NULL;
    char title[200];
    snprintf(title, sizeof title, "History%s%.100s, sol", newest && newest->model ? ": " : "",
             newest && newest->model ? newest->model : "");
    page_begin(html, title, "history");
    html_print(html,
               "<header class=\"top\">\n<p class=\"eyebrow\">sol, history</p>\n<h1>%.200s</h1>\n",
               newest && newest->model ? newest->model : "History");
    html_raw(html, "<dl class=\"facts\">");
    if (newest) {
        page_pair(html, "machine", newest->device);
        page_pair(html, "runs", figure_count((int64_t)d->list->count, count));
        page_pair(html, "from", figure_date(oldest->created_ns, from));
        page_pair(html, "to", figure_date(newest->created_ns, to));
    }
    page_pair(html, "attempts", figure_count((int64_t)d->iterations->count, count));
    html_raw(html, "</dl>\n");
    page_links(html, links, sizeof links / sizeof *links);
    html_raw(html, "</header>\n<main>\n");
}

static enum sol_status write_report(struct html *html, struct history_data *d)
{
    show_header(html, d);
    SOL_TRY(show_metrics(html, d));
    show_iterations(html, d);
    SOL_TRY(show_ledger(html, d));
    page_end(html, "Runs of one machine and model, the oldest first.");
    return SOL_OK;
}

enum sol_status report_history(struct store *store, const struct report_history *options,
                               struct html **out)
{
    struct history_data d = {.store = store, .options = options};
    *out = NULL;
    enum sol_status status = arena_create((size_t)1 << 14, &d.arena);
    if (status == SOL_OK) status = read_runs(&d);
    if (status == SOL_OK)
        status = store_iterations_read(store, options->tree, NULL, 0, &d.iterations);
    if (status == SOL_OK) status = store_ledger_read(store, NULL, &d.ledger);
    if (status == SOL_OK && !d.list->count && !d.iterations->count && !d.ledger->count)
        status = status_set(SOL_E_ARGUMENT, "the store in %s has no runs that fit and no attempts",
                            store_path(store));
    if (status == SOL_OK) status = html_create(out);
    if (status == SOL_OK) status = write_report(*out, &d);
    if (status != SOL_OK) {
        html_destroy(*out);
        *out = NULL;
    }
    destroy(&d);
    return status;
}
