/* One metric over the runs of one machine and model, the oldest left. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"

enum svg_mark verdict_mark(const char *verdict, const char **class)
{
    static const struct {
        const char *name, *class;
        enum svg_mark mark;
    } marks[] = {
        {"faster", "m-good", SVG_TRIANGLE}, {"slower", "m-bad", SVG_TRIANGLE_DOWN},
        {"same", "m-soft", SVG_SQUARE},     {"inconclusive", "m-warn", SVG_DIAMOND},
        {"invalid", "m-bad", SVG_CROSS},    {"incorrect", "m-bad", SVG_CROSS},
        {"failed", "m-bad", SVG_CROSS},
    };
    *class = "m";
    for (size_t i = 0; verdict && i < sizeof marks / sizeof *marks; i++)
        if (strcmp(marks[i].name, verdict) == 0) {
            *class = marks[i].class;
            return marks[i].mark;
        }
    return SVG_DOT;
}

struct plot {
    const struct history *h;
    struct svg svg;
    struct svg_scale x, y;
    struct svg_labels labels;
};

static struct svg_scale range_of(const struct history *h, double top, double bottom)
{
    struct svg_scale y = {.low = INFINITY, .high = -INFINITY, .from = bottom, .to = top};
    for (size_t i = 0; i < h->n_points; i++) {
        const struct history_point *p = &h->points[i];
        y.low = fmin(y.low, fmin(p->median, p->low)); /* fmin leaves NaN out */
        y.high = fmax(y.high, fmax(p->median, p->high));
    }
    /* The limit is drawn when it does not squeeze the runs together. */
    if (h->limit > 0 && h->limit < 1.5 * y.high && h->limit > y.low / 1.5) {
        y.low = fmin(y.low, h->limit);
        y.high = fmax(y.high, h->limit);
    }
    if (y.low > 0 && y.low < 0.5 * y.high) y.low = 0;
    svg_scale_round(&y, 5);
    return y;
}

static void draw_points(const struct plot *p)
{
    const struct history *h = p->h;
    html_raw(p->svg.html, "<path class=\"trend\" d=\"");
    for (size_t i = 0; i < h->n_points; i++)
        html_print(p->svg.html, "%c%.1f %.1f", i ? 'L' : 'M', svg_at(&p->x, (double)i),
                   svg_at(&p->y, h->points[i].median));
    html_raw(p->svg.html, "\"/>\n");
    for (size_t i = 0; i < h->n_points; i++) {
        const struct history_point *point = &h->points[i];
        const char *class;
        enum svg_mark mark = verdict_mark(point->valid ? point->verdict : "invalid", &class);
        double x = svg_at(&p->x, (double)i);
        if (!isnan(point->low))
            svg_line(&p->svg, "whisker", x, svg_at(&p->y, point->low), x,
                     svg_at(&p->y, point->high));
        svg_mark(&p->svg, mark, class, x, svg_at(&p->y, point->median), 5, point->hint);
    }
}

/* What is drawn so far, which labels keep off. */
static void block_points(struct plot *p)
{
    const struct history *h = p->h;
    for (size_t i = 0; i < h->n_points; i++) {
        double x = svg_at(&p->x, (double)i), y = svg_at(&p->y, h->points[i].median);
        svg_labels_block(&p->labels, x - 7, y - 7, x + 7, y + 7);
        if (!isnan(h->points[i].low))
            svg_labels_block(&p->labels, x - 2, svg_at(&p->y, h->points[i].high), x + 2,
                             svg_at(&p->y, h->points[i].low));
        if (i)
            svg_labels_line(&p->labels, svg_at(&p->x, (double)i - 1),
                            svg_at(&p->y, h->points[i - 1].median), x, y);
    }
}

/* Below the line of the limit or above it, wherever along it there is room. */
static void name_limit(struct plot *p, double y)
{
    char text[FIGURE_SIZE + 32], value[FIGURE_SIZE];
    snprintf(text, sizeof text, "limit %s", figure_number(p->h->limit, value));
    double wide = svg_text_width(text, 12);
    const double bases[] = {y + 15, y - 6};
    for (int side = 0; side < 2; side++)
        for (double x = p->x.from; x + wide < p->svg.width; x += 12) {
            double base = bases[side];
            if (!svg_labels_free(&p->labels, x, base - 11, x + wide, base + 4)) continue;
            svg_text(&p->svg, "s halo", SVG_START, x, base, text);
            svg_labels_block(&p->labels, x - 4, base - 12, x + wide + 4, base + 5);
            return;
        }
}

/* Name and day below every so many points, the last one always. */
static void draw_names(const struct plot *p, double y)
{
    const struct history *h = p->h;
    size_t n = h->n_points;
    double slot = n > 1 ? (p->x.to - p->x.from) / (double)(n - 1) : p->x.to - p->x.from;
    size_t every = (size_t)ceil(76 / fmax(slot, 1));
    char text[64];
    for (size_t i = 0; i < n; i++) {
        if ((n - 1 - i) % every) continue;
        double room = slot * (double)every - 8, x = svg_at(&p->x, (double)i);
        svg_text_fit(h->points[i].label, fmin(room, 130), 12, text, sizeof text);
        double half = svg_text_width(text, 12) / 2;
        x = fmin(fmax(x, half), p->svg.width - half);
        svg_text(&p->svg, "s ink", SVG_MIDDLE, x, y + 18, text);
        svg_text(&p->svg, "s", SVG_MIDDLE, x, y + 34, h->points[i].day);
    }
}

void chart_history(struct html *html, double width, const void *data)
{
    const struct history *h = data;
    bool wide = width > 500;
    double height = wide ? 320 : 280, bottom = height - 44, left = 24;
    struct plot p = {.h = h, .y = range_of(h, 30, bottom)};
    struct svg_ticks ticks;
    char tick[FIGURE_SIZE], title[200], axis[80], description[200];
    svg_ticks(&p.y, 5, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        svg_tick_number(ticks.values[i], ticks.step, tick);
        left = fmax(left, svg_text_width(tick, 12) + 10);
    }
    p.x = (struct svg_scale){.high = fmax((double)h->n_points - 1, 1),
                             .from = left + (wide ? 46 : 30),
                             .to = width - (wide ? 84 : 58)};
    snprintf(title, sizeof title, "%.120s over %zu runs", h->metric, h->n_points);
    snprintf(description, sizeof description,
             "Median with 95 %% interval of each run, the oldest left. %s is better.",
             h->higher_is_better ? "Higher" : "Lower");
    svg_begin(&p.svg, html, width, height, title, description);
    snprintf(axis, sizeof axis, "%.40s, %s is better", h->unit,
             h->higher_is_better ? "higher" : "lower");
    svg_axis_y(&p.svg, &p.y, left, width - 8, 5, svg_tick_number, axis);
    svg_labels_init(&p.labels, 0, 20, width, bottom);
    bool limit = h->limit >= p.y.low && h->limit <= p.y.high;
    double y = limit ? svg_at(&p.y, h->limit) : 0;
    if (limit) svg_line(&p.svg, "roof", left, y, width - 8, y);
    draw_points(&p);
    block_points(&p);
    if (limit) name_limit(&p, y);
    if (limit) svg_labels_line(&p.labels, left, y, width - 8, y);
    const struct history_point *last = &h->points[h->n_points - 1];
    svg_label(&p.svg, &p.labels, "t b halo", svg_at(&p.x, (double)h->n_points - 1),
              svg_at(&p.y, last->median), 6, figure_number(last->median, tick));
    draw_names(&p, bottom);
    svg_end(&p.svg);
}
