/* The report of a run: its sections in their order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/kernels.h"
#include "report/page.h"
#include "report/report.h"
#include "report/sections.h"

enum { CARDS_MAX = 4, METRICS_MAX = 120, STRIPS_MAX = 24 };

/* ---- header ---- */

/* A benchmark is in the store from its start on. Other runs are written at their end; comparisons
 * say themselves how long they took. */
static double seconds_taken(const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    json_t *seconds = json_object_get(d->payload, "seconds");
    if (strcmp(r->kind, "bench") == 0) return 1e-9 * (double)(r->finished_ns - r->created_ns);
    return json_is_number(seconds) ? json_number_value(seconds) : 0;
}

static void show_facts(struct html *html, const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    double seconds = seconds_taken(d);
    char when[FIGURE_SIZE], took[FIGURE_SIZE], size[FIGURE_SIZE];
    html_raw(html, "<dl class=\"facts\">");
    page_pair(html, "model", r->model);
    page_pair(html, "type", r->model_type);
    if (r->model_size > 0) page_pair(html, "weights", figure_bytes((double)r->model_size, size));
    page_pair(html, "machine", r->device);
    page_pair(html, "backend", r->backend);
    page_pair(html, "when", figure_date(r->created_ns, when));
    if (seconds > 0) page_pair(html, "took", figure_time(1e9 * seconds, took));
    html_raw(html, "</dl>\n");
}

static void show_alarm(struct html *html, const struct store_run *r)
{
    static const struct {
        const char *class, *title, *text;
    } alarms[STORE_STATE_COUNT] = {
        [STORE_RUNNING] = {"alarm mild", "Still running", "More figures may follow."},
        [STORE_PARTIAL] = {"alarm mild", "Incomplete", "What is here was measured in full."},
        [STORE_INVALID] = {"alarm", "\xe2\x9c\x95 INVALID RUN",
                           "Its figures do not mean what they say. Do not quote or compare them."},
    };
    if (!alarms[r->state].title) return;
    html_print(html, "<div class=\"%s\" role=\"alert\"><strong>%s</strong><p>%s%s%s</p></div>\n",
               alarms[r->state].class, alarms[r->state].title, r->reason ? r->reason : "",
               r->reason ? ". " : "", alarms[r->state].text);
}

static void show_header(struct html *html, const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    char text[300];
    bool labelled = r->label && *r->label;
    const char *name = labelled ? r->label : r->model ? r->model : r->kind;
    snprintf(text, sizeof text, "%s%.80s %.40s, sol", r->state == STORE_INVALID ? "INVALID: " : "",
             name, r->id);
    page_begin(html, text, store_state_name(r->state));
    html_print(html,
               "<header class=\"top\">\n<p class=\"eyebrow\">sol, %s run %s<span class=\"state "
               "%s\">%s</span>"
               "</p>\n<h1>%.200s</h1>\n",
               r->kind, r->id, store_state_name(r->state), store_state_name(r->state),
               labelled   ? r->label
               : r->model ? r->model
                          : r->kind);
    show_alarm(html, r);
    show_facts(html, d);
}

/* ---- key figures ---- */

/* Speeds without their unit, which is said once; other metrics with it. */
static char *shown_text(const struct run_metric *m, double value, char text[FIGURE_SIZE])
{
    return m->speed ? figure_number(value, text) : figure_value(value, m->unit, text);
}

static void show_rating(struct html *html, const struct run_metric *m)
{
    char title[FIGURE_SIZE * 2 + 120], good[FIGURE_SIZE], best[FIGURE_SIZE], base[FIGURE_SIZE];
    json_t *against = m->rated_against;
    if (!m->rating) return;
    snprintf(title, sizeof title, "baseline %s, good %s, excellent %s",
             figure_number(json_number_value(json_object_get(against, "baseline")), base),
             figure_number(json_number_value(json_object_get(against, "good")), good),
             figure_number(json_number_value(json_object_get(against, "excellent")), best));
    html_print(html, "<span class=\"rating %s\" title=\"%s\">%.20s</span>", m->rating, title,
               m->rating);
}

static void show_card(struct html *html, const struct run_metric *m)
{
    char value[FIGURE_SIZE], low[FIGURE_SIZE], high[FIGURE_SIZE], part[FIGURE_SIZE];
    html_print(html, "<div class=\"card\"><div class=\"name\">%.80s</div><div class=\"big\">",
               m->metric->name);
    if (m->speed)
        html_print(html, "%s<small>tokens/s</small>", figure_number(m->median, value));
    else
        html_text(html, figure_value(m->median, m->unit, value));
    html_raw(html, "</div>");
    if (!isnan(m->of_limit)) {
        html_print(html,
                   "<span class=\"meter\" role=\"img\" aria-label=\"%s of the limit\"><i "
                   "style=\"width:%.1f%%\"></i></span>",
                   figure_percent(m->of_limit, part), 100 * fmin(fmax(m->of_limit, 0), 1));
        html_print(html, "<p>%s of this machine's limit%s%s</p>", figure_percent(m->of_limit, part),
                   m->speed ? ", " : "", m->speed ? figure_number(m->limit, value) : "");
    }
    if (!isnan(m->low))
        html_print(html, "<p>95 %% interval of the mean %s to %s</p>", shown_text(m, m->low, low),
                   shown_text(m, m->high, high));
    if (m->rating) {
        html_raw(html, "<p>");
        show_rating(html, m);
        html_raw(html, "</p>");
    }
    html_raw(html, "</div>\n");
}

/* Those that stand for the run: speeds, the first of each kind of test (pp, tg) before others. */
static size_t choose_cards(const struct run_data *d, const struct run_metric **cards)
{
    size_t n = 0;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < d->n_metrics && n < CARDS_MAX; i++) {
            const struct run_metric *m = &d->metrics[i];
            bool known = !m->counted || (!m->speed && d->n_speed);
            bool first = true;
            for (size_t j = 0; j < n; j++) {
                known = known || cards[j] == m;
                first = first && strncmp(cards[j]->metric->name, m->metric->name, 2) != 0;
            }
            if (!known && (round || first)) cards[n++] = m;
        }
    return n;
}

/* Columns that have anything to say. */
struct columns {
    bool interval, limit, rating, speed;
};

static void metric_row(struct html *html, const struct columns *c, const struct run_metric *m)
{
    char text[FIGURE_SIZE];
    bool interval = !isnan(m->low);
    html_print(html, "<tr><th scope=\"row\" class=\"name\">%.120s</th><td class=\"n\">%s</td>",
               m->metric->name, shown_text(m, m->median, text));
    if (c->interval)
        html_print(
            html, "<td class=\"n\">%s%s</td>", interval ? "\xc2\xb1" : "",
            figure_percent(interval ? (m->high - m->low) / 2 / m->median : (double)NAN, text));
    if (c->limit) {
        html_raw(html, "<td class=\"n\">");
        page_bar(html, m->of_limit);
        html_print(html, "%s</td>", figure_percent(m->of_limit, text));
    }
    if (c->rating) {
        html_raw(html, "<td>");
        show_rating(html, m);
        html_raw(html, "</td>");
    }
    if (c->speed) page_number_cell(html, m->speed ? figure_time(m->stored.median, text) : "");
    page_number_cell(html, shown_text(m, m->mean, text));
    if (c->interval) page_number_cell(html, shown_text(m, m->sd, text));
    html_print(html, "<td class=\"n\">%zu</td></tr>\n", m->counted);
}

/* Speeds first, then what is beside them ("tg128: peak memory"). */
static void show_metrics(struct html *html, const struct run_data *d)
{
    size_t rows = 0;
    struct columns c = {.speed = d->n_speed > 0};
    char columns[160];
    for (size_t i = 0; i < d->n_metrics; i++) {
        c.interval |= !isnan(d->metrics[i].low);
        c.limit |= !isnan(d->metrics[i].of_limit);
        c.rating |= d->metrics[i].rating != NULL;
    }
    snprintf(columns, sizeof columns, "metric|>median%s%s%s%s|>mean%s|>n",
             c.interval ? "|>95 %" : "", c.limit ? "|>of the limit" : "", c.rating ? "|rating" : "",
             c.speed ? "|>time a token" : "", c.interval ? "|>sd" : "");
    page_table_begin(html, "Metrics", columns);
    for (int speed = 1; speed >= 0; speed--)
        for (size_t i = 0; i < d->n_metrics; i++) {
            if (d->metrics[i].speed != speed || !d->metrics[i].counted) continue;
            if (rows++ < METRICS_MAX) metric_row(html, &c, &d->metrics[i]);
        }
    if (rows > METRICS_MAX)
        html_print(html,
                   "<tr class=\"rest\"><th scope=\"row\">%zu more: sol runs show %s</th></tr>\n",
                   rows - METRICS_MAX, d->record->run.id);
    page_table_end(html);
    if (d->n_speed)
        page_note(
            html,
            "Speeds in tokens per second. 95 %: half of the interval of the mean, by logarithms. "
            "n: repetitions that count.");
}

static void show_figures(struct html *html, const struct run_data *d)
{
    const struct run_metric *cards[CARDS_MAX];
    page_section(html, "figures", "Figures");
    size_t n = choose_cards(d, cards);
    if (d->record->run.state == STORE_INVALID && n)
        html_raw(html, "<p class=\"wrong\">\xe2\x9c\x95 Not valid: see above.</p>\n");
    if (n == 0) {
        page_note(html, "This run measured nothing.");
        return;
    }
    html_raw(html, "<div class=\"cards\">\n");
    for (size_t i = 0; i < n; i++) show_card(html, cards[i]);
    html_raw(html, "</div>\n");
    show_metrics(html, d);
}

/* ---- spread ---- */

static void key_entry(struct html *html, enum svg_mark mark, const char *class, const char *text)
{
    struct svg svg = {.html = html};
    html_raw(html, "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">");
    svg_mark(&svg, mark, class, 7, 7, 4, NULL);
    html_print(html, "</svg>%s</li>", text);
}

static void show_strip(struct html *html, const struct run_metric *m)
{
    char spread[FIGURE_SIZE];
    double range = (m->stored.max - m->stored.min) / m->stored.median;
    html_print(html, "<div class=\"cell\"><h3>%.80s</h3><p>%s between the extremes",
               m->metric->name, figure_percent(range, spread));
    if (m->outliers) html_print(html, ", %zu outlier%s", m->outliers, m->outliers == 1 ? "" : "s");
    if (m->repeated) html_print(html, ", %zu disturbed", m->repeated);
    if (m->stopped) html_print(html, "; stopped by %.20s", m->stopped);
    html_raw(html, "</p>");
    chart_strip(html, SVG_SMALL, m);
    html_raw(html, "</div>\n");
}

static void show_spread(struct html *html, const struct run_data *d)
{
    size_t shown = 0, left_out = 0;
    page_section(html, "spread", "Spread of the repetitions");
    for (size_t i = 0; i < d->n_metrics; i++) {
        const struct run_metric *m = &d->metrics[i];
        if (m->counted < 2 || !(m->stored.median > 0)) continue;
        if (shown == STRIPS_MAX) {
            left_out++;
            continue;
        }
        if (shown++ == 0) {
            html_raw(html, "<ul class=\"key\">");
            key_entry(html, SVG_DOT, "m", "repetition");
            key_entry(html, SVG_RING, "m-soft", "warm-up, does not count");
            key_entry(html, SVG_DIAMOND, "m-warn", "outlier, counts");
            key_entry(html, SVG_SQUARE, "m-warn", "disturbed from outside, repeated, counts");
            html_raw(html, "<li>shaded: 95 % interval</li></ul>\n<div class=\"grid3\">\n");
        }
        show_strip(html, m);
    }
    if (shown) html_raw(html, "</div>\n");
    if (!shown) page_note(html, "Not known: no metric has two repetitions or more.");
    if (left_out) {
        char line[120];
        snprintf(line, sizeof line, "%zu more metrics are in the store: sol runs export %s",
                 left_out, d->record->run.id);
        page_note(html, line);
    }
}

/* ---- the whole ---- */

static void show_links(struct html *html, const struct run_data *d, bool comparison)
{
    struct page_link links[10];
    size_t n = 0;
    if (comparison) links[n++] = (struct page_link){"changes", "Comparison"};
    if (d->n_metrics) links[n++] = (struct page_link){"figures", "Figures"};
    if (d->n_metrics) links[n++] = (struct page_link){"spread", "Spread"};
    if (d->n_groups) links[n++] = (struct page_link){"time", "Where the time goes"};
    if (!isnan(d->span_ns)) links[n++] = (struct page_link){"gaps", "Gaps"};
    if (d->record->n_advice) links[n++] = (struct page_link){"advice", "Advice"};
    if (d->environment) links[n++] = (struct page_link){"environment", "Environment"};
    links[n++] = (struct page_link){"repeat", "How to repeat it"};
    page_links(html, links, n);
}

enum sol_status report_run(const struct store_record *record, struct html **out)
{
    struct run_data *d;
    *out = NULL;
    SOL_TRY(run_data_create(record, &d));
    enum sol_status status = html_create(out);
    if (status == SOL_OK) {
        struct html *html = *out;
        bool comparison = sections_has_changes(d);
        /* A rating would be the last thing that an invalid figure deserves. */
        for (size_t i = 0; i < d->n_metrics && record->run.state == STORE_INVALID; i++)
            d->metrics[i].rating = NULL;
        show_header(html, d);
        show_links(html, d, comparison);
        html_raw(html, "</header>\n<main>\n");
        if (comparison) sections_changes(html, d);
        if (!comparison || d->n_metrics) show_figures(html, d);
        if (d->n_metrics) show_spread(html, d);
        if (d->n_groups || d->n_metrics) kernels_section(html, d);
        sections_gaps(html, d);
        sections_advice(html, d);
        sections_environment(html, d);
        sections_repeat(html, d);
        page_end(html,
                 "Medians of the repetitions that count; limits were measured on this machine.");
    }
    run_data_destroy(d);
    return status;
}
