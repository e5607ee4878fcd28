/* See serving.h. All figures are those that the payload has. */
#include "report/serving.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

enum { LEVELS_MAX = 64, LINES_MAX = 4, DISTRIBUTIONS_MAX = 6, POINTS_MAX = 128 };
static const char *const classes[DISTRIBUTIONS_MAX] = {"c0 l0", "c1 l1", "c2 l2",
                                                       "c3 l3", "c4 l4", "c5 l5"};
static const double unknown = (double)NAN;

static const json_t *levels_of(const struct run_data *d)
{
    return json_object_get(json_object_get(d->payload, "serve"), "levels");
}

bool serving_known(const struct run_data *d)
{
    return json_array_size(levels_of(d)) > 0;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : unknown;
}

static double part_at(const json_t *level, const char *what, const char *part)
{
    return number_at(json_object_get(level, what), part);
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- the levels ---- */

/* With its 95 % interval below. */
static void median_cell(struct html *html, const json_t *level, const char *what)
{
    const json_t *interval = json_object_get(json_object_get(level, what), "ci95");
    char text[FIGURE_SIZE], low[FIGURE_SIZE], high[FIGURE_SIZE];
    const double ns = 1e6;
    html_print(html, "<td class=\"n\">%s", figure_time(ns * part_at(level, what, "p50"), text));
    if (json_array_size(interval) == 2)
        html_print(html, "<span class=\"sub\">%s to %s</span>",
                   figure_time(ns * json_number_value(json_array_get(interval, 0)), low),
                   figure_time(ns * json_number_value(json_array_get(interval, 1)), high));
    html_raw(html, "</td>");
}

static char *count_text(double value, char text[FIGURE_SIZE])
{
    return figure_count(value >= 0 && value < 1e15 ? (int64_t)value : -1, text);
}

static void level_row(struct html *html, const json_t *level)
{
    static const char *const times[] = {"ttft_ms", "itl_ms", "end_to_end_ms"};
    char text[FIGURE_SIZE];
    const double sent = number_at(level, "requests"), fine = number_at(level, "ok");
    html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, text_at(level, "name"));
    html_raw(html, "</th>");
    page_number_cell(html, count_text(sent, text));
    page_number_cell(html, count_text(sent - fine, text));
    page_number_cell(html, figure_number(number_at(level, "output_tokens_per_s"), text));
    page_number_cell(html, figure_number(number_at(level, "total_tokens_per_s"), text));
    page_number_cell(html, figure_number(number_at(level, "requests_per_s"), text));
    page_number_cell(html, figure_number(number_at(level, "goodput_per_s"), text));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        median_cell(html, level, times[i]);
        page_number_cell(html, figure_time(1e6 * part_at(level, times[i], "p99"), text));
    }
    page_number_cell(html, count_text(number_at(level, "peak_concurrency"), text));
    html_raw(html, "</tr>\n");
}

static void failures_note(struct html *html, const json_t *level)
{
    const char *kind;
    json_t *failure;
    json_object_foreach(json_object_get(level, "failures"), kind, failure)
    {
        char text[400];
        const char *example = text_at(failure, "example");
        snprintf(text, sizeof text, "%.40s: %.0f requests failed (%.40s)%s%.200s",
                 text_at(level, "name"), number_at(failure, "count"), kind, *example ? ": " : "",
                 example);
        page_note(html, text);
    }
}

static void show_levels(struct html *html, const struct run_data *d)
{
    const json_t *serve = json_object_get(d->payload, "serve"), *levels = levels_of(d), *level;
    char text[200];
    size_t i;
    page_section(html, "load", "Load");
    page_table_begin(html, "Levels of load",
                     "load|>requests|>failed|>output tokens/s|>total tokens/s|>requests/s|"
                     ">goodput/s|>TTFT|>p99|>ITL|>p99|>end to end|>p99|>most at once");
    json_array_foreach(levels, i, level) level_row(html, level);
    page_table_end(html);
    snprintf(text, sizeof text, "Lengths: %.100s. Medians with their 95 %% interval.",
             text_at(serve, "lengths"));
    page_note(html, text);
    json_array_foreach(levels, i, level) failures_note(html, level);
}

/* ---- curves ---- */

/* A line over the levels: `what` and its `part`, or a number of the level where part is NULL. */
struct line {
    const char *name, *what, *part;
};

struct points {
    struct curve items[DISTRIBUTIONS_MAX];
    struct curve_point points[DISTRIBUTIONS_MAX][POINTS_MAX];
    size_t count;
};

static void show_key(struct html *html, const struct points *p)
{
    if (p->count < 2) return;
    html_raw(html, "<ul class=\"key\">");
    for (size_t i = 0; i < p->count; i++)
        html_print(html,
                   "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><path class=\"%s\" "
                   "d=\"M0 7L14 7\"/></svg>%s</li>",
                   p->items[i].class, p->items[i].name);
    html_raw(html, "</ul>\n");
}

static void show_chart(struct html *html, const struct points *p, const struct curves *how)
{
    struct curves curves = *how;
    curves.items = p->items;
    curves.count = p->count;
    if (p->count == 0) return;
    html_print(html, "<h3>%s</h3>\n", how->title);
    show_key(html, p);
    svg_figure(html, chart_curves, &curves, NULL);
}

/* Levels of one kind of arrival, by rising load: others have no place on the same axis. */
static size_t levels_by_load(const json_t *levels, const json_t *out[LEVELS_MAX])
{
    const char *arrival = text_at(json_array_get(levels, 0), "arrival");
    const json_t *level;
    size_t n = 0, i;
    json_array_foreach(levels, i, level)
    {
        const char *own = text_at(level, "arrival");
        const double load = number_at(level, "load");
        if (strcmp(arrival, own) != 0 || isnan(load) || n == LEVELS_MAX) continue;
        size_t at = n++;
        for (; at && number_at(out[at - 1], "load") > load; at--) out[at] = out[at - 1];
        out[at] = level;
    }
    return n;
}

static void add_line(struct points *p, const struct line *line, const json_t *const *levels,
                     size_t n)
{
    struct curve_point *points = p->points[p->count];
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        points[i].x = number_at(levels[i], "load");
        points[i].y = line->part ? part_at(levels[i], line->what, line->part)
                                 : number_at(levels[i], line->what);
        any |= isfinite(points[i].y);
    }
    if (!any) return;
    p->items[p->count] = (struct curve){.name = line->name,
                                        .class = classes[p->count],
                                        .points = points,
                                        .count = n,
                                        .marks = true};
    p->count++;
}

static void show_over_load(struct html *html, const json_t *const *levels, size_t n,
                           struct points *p)
{
    static const struct {
        struct curves how;
        struct line lines[LINES_MAX];
    } charts[] = {
        {{.title = "Time to first token", .unit = "ms", .digits = 1, .from_zero = true},
         {{"median", "ttft_ms", "p50"}, {"p90", "ttft_ms", "p90"}, {"p99", "ttft_ms", "p99"}}},
        {{.title = "Time between chunks (ITL)", .unit = "ms", .digits = 2, .from_zero = true},
         {{"median", "itl_ms", "p50"}, {"p90", "itl_ms", "p90"}, {"p99", "itl_ms", "p99"}}},
        {{.title = "Output", .unit = "tokens per second", .digits = 0, .from_zero = true},
         {{"output", "output_tokens_per_s", NULL}}},
        {{.title = "Goodput", .unit = "requests per second", .digits = 2, .from_zero = true},
         {{"within the limits", "goodput_per_s", NULL}, {"answered", "requests_per_s", NULL}}},
    };
    const char *arrival = text_at(levels[0], "arrival");
    const bool rate = strcmp(arrival, "poisson") == 0;
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        struct curves how = charts[i].how;
        how.at = "at";
        how.over = rate ? "requests per second offered" : "requests at once";
        p->count = 0;
        for (int k = 0; k < LINES_MAX && charts[i].lines[k].name; k++)
            add_line(p, &charts[i].lines[k], levels, n);
        const bool limited = isfinite(number_at(levels[0], "goodput_per_s"));
        if (i + 1 < sizeof charts / sizeof *charts || limited) show_chart(html, p, &how);
    }
}

/* Up to the 99th percentile: the rest is few and far away, and in the table. */
static void show_distribution(struct html *html, const json_t *levels, struct points *p)
{
    const json_t *level;
    size_t i;
    p->count = 0;
    json_array_foreach(levels, i, level)
    {
        const json_t *list = json_object_get(level, "itl_quantiles_ms");
        const size_t n = json_array_size(list);
        if (n < 2 || n > POINTS_MAX || p->count == DISTRIBUTIONS_MAX) continue;
        struct curve_point *points = p->points[p->count];
        for (size_t k = 0; k < n; k++)
            points[k] = (struct curve_point){100 * (double)k / (double)(n - 1),
                                             json_number_value(json_array_get(list, k))};
        p->items[p->count] = (struct curve){.name = text_at(level, "name"),
                                            .class = classes[p->count],
                                            .points = points,
                                            .count = n - 1};
        p->count++;
    }
    show_chart(html, p,
               &(struct curves){.title = "Distribution of ITL",
                                .unit = "ms between chunks",
                                .over = "percentile",
                                .digits = 2,
                                .from_zero = true});
}

enum sol_status serving_sections(struct html *html, const struct run_data *d)
{
    const json_t *levels = levels_of(d), *sorted[LEVELS_MAX];
    if (!serving_known(d)) return SOL_OK;
    show_levels(html, d);
    struct points *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for a report");
    page_section(html, "serving", "Over the load");
    const size_t n = levels_by_load(levels, sorted);
    if (n > 1) show_over_load(html, sorted, n, p);
    show_distribution(html, levels, p);
    free(p);
    return SOL_OK;
}
