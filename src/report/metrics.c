/* The figures of a run: cards of those that stand for it, the table of all, the spread of their
 * repetitions. */
#include "report/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

enum { CARDS_MAX = 4, STRIPS_OPEN = 6, STRIPS_MAX = 24 };

/* ---- cards ---- */

/* Speeds without their unit, which is said once; other metrics with it. */
static char *shown_text(const struct run_metric *m, double value, char text[FIGURE_SIZE])
{
    return m->figure.speed ? figure_number(value, text) : figure_value(value, m->figure.unit, text);
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
    const struct figure *f = &m->figure.shown;
    if (m->figure.speed)
        html_print(html, "%s<small>tokens/s</small>", figure_number(f->value, value));
    else
        html_text(html, figure_value(f->value, m->figure.unit, value));
    html_raw(html, "</div>");
    if (!isnan(f->reached)) {
        html_print(html,
                   "<span class=\"meter\" role=\"img\" aria-label=\"%s of the limit\"><i "
                   "style=\"width:%.1f%%\"></i></span>",
                   figure_percent(f->reached, part), 100 * fmin(fmax(f->reached, 0), 1));
        html_print(html, "<p>%s of this machine's limit%s%s</p>", figure_percent(f->reached, part),
                   m->figure.speed ? ", " : "",
                   m->figure.speed ? figure_number(f->limit, value) : "");
    }
    if (!isnan(f->half))
        html_print(html, "<p>95 %% interval %s to %s</p>", shown_text(m, f->low, low),
                   shown_text(m, f->high, high));
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
            bool known = !m->figure.stored.count || (!m->figure.speed && d->n_speed);
            bool first = true;
            for (size_t j = 0; j < n; j++) {
                known = known || cards[j] == m;
                first = first && strncmp(cards[j]->metric->name, m->metric->name, 2) != 0;
            }
            if (!known && (round || first)) cards[n++] = m;
        }
    return n;
}

/* ---- the table ---- */

enum { METRICS_MAX = 120, SIDES_MAX = 8 };

/* What stands beside tests, "peak memory" of "tg128: peak memory": columns of their rows. */
struct sides {
    char names[SIDES_MAX][80];
    size_t count;
};

/* Columns of a table that have anything to say. */
struct columns {
    bool speed; /* the table of tests; else of what belongs to none */
    bool interval, limit, rating, count;
};

/* The test that a metric stands beside and, behind its colon, what it is; NULL: it is a test itself
 * or stands alone. */
static const struct run_metric *test_of(const struct run_data *d, const struct run_metric *m,
                                        const char **what)
{
    for (size_t i = 0; i < d->n_metrics && !m->figure.speed; i++) {
        const struct run_metric *test = &d->metrics[i];
        size_t length = strlen(test->metric->name);
        if (!test->figure.speed || !test->figure.stored.count) continue;
        if (strncmp(m->metric->name, test->metric->name, length) != 0) continue;
        if (strncmp(m->metric->name + length, ": ", 2) != 0) continue;
        *what = m->metric->name + length + 2;
        return test;
    }
    return NULL;
}

/* The column of `what`; `count` where it has none. */
static size_t side_at(const struct sides *sides, const char *what)
{
    size_t i = 0;
    while (i < sides->count && strcmp(sides->names[i], what) != 0) i++;
    return i;
}

static void find_sides(const struct run_data *d, struct sides *sides)
{
    const char *what;
    sides->count = 0;
    for (size_t i = 0; i < d->n_metrics; i++) {
        const struct run_metric *m = &d->metrics[i];
        if (!m->figure.stored.count || !test_of(d, m, &what)) continue;
        if (side_at(sides, what) < sides->count || sides->count == SIDES_MAX) continue;
        if (strlen(what) >= sizeof sides->names[0]) continue; /* a row of its own */
        strcpy(sides->names[sides->count++], what);
    }
}

static bool has_row(const struct run_data *d, const struct sides *sides, const struct run_metric *m,
                    bool speed)
{
    const char *what;
    if (!m->figure.stored.count || m->figure.speed != speed) return false;
    return speed || !test_of(d, m, &what) || side_at(sides, what) == sides->count;
}

static struct columns find_columns(const struct run_data *d, const struct sides *sides, bool speed)
{
    struct columns c = {.speed = speed, .count = speed};
    for (size_t i = 0; i < d->n_metrics; i++) {
        const struct run_metric *m = &d->metrics[i];
        if (!has_row(d, sides, m, speed)) continue;
        c.interval |= !isnan(m->figure.shown.half);
        c.limit |= !isnan(m->figure.shown.reached);
        c.rating |= m->rating != NULL;
        c.count |= m->figure.shown.count > 1;
    }
    return c;
}

static void side_cells(struct html *html, const struct run_data *d, const struct sides *sides,
                       const struct run_metric *test)
{
    char text[FIGURE_SIZE];
    const struct run_metric *found[SIDES_MAX] = {NULL};
    const char *what;
    for (size_t i = 0; i < d->n_metrics && sides->count; i++) {
        const struct run_metric *m = &d->metrics[i];
        if (!m->figure.stored.count || test_of(d, m, &what) != test) continue;
        size_t at = side_at(sides, what);
        if (at < sides->count) found[at] = m;
    }
    for (size_t i = 0; i < sides->count; i++) {
        const struct figure *f = found[i] ? &found[i]->figure.shown : NULL;
        html_print(html, "<td class=\"n\">%s", f ? shown_text(found[i], f->value, text) : "");
        if (f && !isnan(f->half))
            html_print(html, "<span class=\"sub\">\xc2\xb1%s</span>",
                       figure_percent(f->half, text));
        html_raw(html, "</td>");
    }
}

static void metric_row(struct html *html, const struct columns *c, const struct run_metric *m)
{
    char text[FIGURE_SIZE];
    const struct figure *f = &m->figure.shown;
    html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, m->metric->name);
    html_print(html, "</th><td class=\"n\">%s</td>", shown_text(m, f->value, text));
    if (c->interval)
        html_print(html, "<td class=\"n\">%s%s</td>", isnan(f->half) ? "" : "\xc2\xb1",
                   isnan(f->half) ? "" : figure_percent(f->half, text));
    if (c->limit)
        page_share_cells(html, isnan(f->reached) ? "" : figure_percent(f->reached, text),
                         f->reached);
    if (c->rating) {
        html_raw(html, "<td>");
        show_rating(html, m);
        html_raw(html, "</td>");
    }
    if (c->speed) page_number_cell(html, figure_time(m->figure.stored.value, text));
    if (c->interval) page_number_cell(html, isnan(f->sd) ? "" : figure_percent(f->sd, text));
    if (c->count)
        html_print(html,
                   f->starts > 1 ? "<td class=\"n\">%zu in %zu starts</td>"
                                 : "<td class=\"n\">%zu</td>",
                   f->count, f->starts);
}

static void table_head(struct html *html, const struct columns *c, const struct sides *sides)
{
    char columns[SIDES_MAX * 90 + 160];
    int at = snprintf(columns, sizeof columns, "%s|>%s%s%s%s%s%s%s", c->speed ? "test" : "metric",
                      c->count ? "median" : "value", c->interval ? "|>95 %" : "",
                      c->limit ? "|=of the limit" : "", c->rating ? "|rating" : "",
                      c->speed ? "|>time a token" : "", c->interval ? "|>sd" : "",
                      c->count ? "|>n" : "");
    for (size_t i = 0; c->speed && i < sides->count; i++) {
        char name[80];
        strcpy(name, sides->names[i]);
        for (char *s = name; *s; s++)
            if (*s == '|') *s = '/'; /* would begin a column */
        at += snprintf(columns + at, sizeof columns - (size_t)at, "|>%s", name);
    }
    page_table_begin(html, c->speed ? "Tests" : "Other figures", columns);
}

/* The tests, each with what stands beside it; or what belongs to none. */
static void show_table(struct html *html, const struct run_data *d, const struct sides *sides,
                       bool speed)
{
    size_t rows = 0;
    struct columns c = find_columns(d, sides, speed);
    for (size_t i = 0; i < d->n_metrics; i++) {
        if (!has_row(d, sides, &d->metrics[i], speed)) continue;
        if (rows == 0) table_head(html, &c, sides);
        if (rows++ >= METRICS_MAX) continue;
        metric_row(html, &c, &d->metrics[i]);
        if (speed) side_cells(html, d, sides, &d->metrics[i]);
        html_raw(html, "</tr>\n");
    }
    if (rows) page_table_end(html);
    if (rows > METRICS_MAX)
        html_print(html, "<p class=\"note\">%zu more: <code>sol runs show %s</code></p>\n",
                   rows - METRICS_MAX, d->record->run.id);
    if (rows && speed)
        page_note(html,
                  "Speeds in tokens per second. 95 %: half of the interval of the median, by order "
                  "statistics. n: repetitions that count.");
}

void metrics_figures(struct html *html, const struct run_data *d)
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
    struct sides sides;
    find_sides(d, &sides);
    show_table(html, d, &sides, true);
    show_table(html, d, &sides, false);
}

/* ---- spread ---- */

static void key_entry(struct html *html, enum svg_mark mark, const char *class, const char *text)
{
    struct svg svg = {.html = html};
    html_raw(html, "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\">");
    svg_mark(&svg, mark, class, 7, 7, 4, NULL);
    html_print(html, "</svg>%s</li>", text);
}

/* "most" in words. */
static const char *stopped_text(const char *reason)
{
    static const char *const texts[][2] = {
        {"count", "as many as were asked for"},   {"precision", "the interval is narrow enough"},
        {"noise", "the noise is steady"},         {"most", "no more are made"},
        {"time", "the time for a test was over"}, {"interrupted", "it was interrupted"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(reason, texts[i][0]) == 0) return texts[i][1];
    return reason;
}

static void show_strip(struct html *html, const struct run_metric *m)
{
    char spread[FIGURE_SIZE];
    const struct figure *f = &m->figure.stored;
    double range = (f->most - f->least) / f->value;
    html_print(html, "<div class=\"cell\"><h3>%.80s</h3><p>%s between the extremes",
               m->metric->name, figure_percent(range, spread));
    if (m->figure.outliers)
        html_print(html, ", %zu outlier%s", m->figure.outliers, m->figure.outliers == 1 ? "" : "s");
    if (m->figure.repeated) html_print(html, ", %zu disturbed", m->figure.repeated);
    if (m->stopped) html_print(html, "; %s", stopped_text(m->stopped));
    html_raw(html, "</p>");
    chart_strip(html, SVG_SMALL, m);
    html_raw(html, "</div>\n");
}

static bool has_strip(const struct run_metric *m)
{
    return m->figure.stored.count >= 2 && m->figure.stored.value > 0;
}

bool metrics_has_spread(const struct run_data *d)
{
    for (size_t i = 0; i < d->n_metrics; i++)
        if (has_strip(&d->metrics[i])) return true;
    return false;
}

static void show_key(struct html *html)
{
    html_raw(html, "<ul class=\"key\">");
    key_entry(html, SVG_DOT, "m", "repetition");
    key_entry(html, SVG_RING, "m-soft", "warm-up, does not count");
    key_entry(html, SVG_DIAMOND, "m-warn", "outlier, counts");
    key_entry(html, SVG_SQUARE, "m-warn", "disturbed from outside, repeated, counts");
    html_raw(html, "<li>shaded: 95 % interval</li></ul>\n");
}

void metrics_spread(struct html *html, const struct run_data *d)
{
    size_t shown = 0, all = 0;
    for (size_t i = 0; i < d->n_metrics; i++) all += has_strip(&d->metrics[i]);
    if (!all) return;
    page_section(html, "spread", "Spread of the repetitions");
    show_key(html);
    html_raw(html, "<div class=\"grid3\">\n");
    for (size_t i = 0; i < d->n_metrics && shown < STRIPS_MAX; i++) {
        if (!has_strip(&d->metrics[i])) continue;
        if (shown++ == STRIPS_OPEN)
            html_print(html,
                       "</div>\n<details><summary>%zu more</summary>\n<div class=\"grid3\">\n",
                       (all < STRIPS_MAX ? all : STRIPS_MAX) - STRIPS_OPEN);
        show_strip(html, &d->metrics[i]);
    }
    html_raw(html, shown > STRIPS_OPEN ? "</div></details>\n" : "</div>\n");
    if (all > STRIPS_MAX) {
        char line[120];
        snprintf(line, sizeof line, "%zu more metrics are in the store: sol runs export %s",
                 all - STRIPS_MAX, d->record->run.id);
        page_note(html, line);
    }
}
