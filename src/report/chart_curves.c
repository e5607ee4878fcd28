/* Numbers over the updates of training runs, a line for each run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"

enum {
    POINTS_MAX = 600,
    KEPT_OFF = 40
}; /* of a line; a screen has no more. Where labels are not */

struct plot {
    const struct curves *c;
    struct svg svg;
    struct svg_scale x, y;
    struct svg_labels labels;
};

static void find_ranges(const struct curves *c, struct svg_scale *x, struct svg_scale *y)
{
    x->low = y->low = INFINITY;
    x->high = y->high = -INFINITY;
    for (size_t k = 0; k < c->count; k++)
        for (size_t i = 0; i < c->items[k].count; i++) {
            const struct curve_point *p = &c->items[k].points[i];
            if (!isfinite(p->y)) continue;
            x->low = fmin(x->low, p->x);
            x->high = fmax(x->high, p->x);
            y->low = fmin(y->low, p->y);
            y->high = fmax(y->high, p->y);
        }
    if (y->low > 0 && (c->from_zero || y->low < 0.2 * y->high)) y->low = 0;
    svg_scale_round(y, 5);
    svg_scale_round(x, 6);
}

/* The last point of each stretch, so that the end of the line is the last number. */
static void draw_line(const struct plot *p, const struct curve *curve)
{
    const size_t every = curve->count / POINTS_MAX + 1;
    bool pen = false;
    html_print(p->svg.html, "<path class=\"%s\" d=\"", curve->class);
    for (size_t i = 0; i < curve->count; i++) {
        const struct curve_point *at = &curve->points[i];
        if ((curve->count - 1 - i) % every) continue;
        if (isfinite(at->y))
            html_print(p->svg.html, "%c%.1f %.1f", pen ? 'L' : 'M', svg_at(&p->x, at->x),
                       svg_at(&p->y, at->y));
        pen = isfinite(at->y);
    }
    html_raw(p->svg.html, "\"/>\n");
}

static void draw_marks(const struct plot *p, const struct curve *curve)
{
    const size_t every = curve->count / (POINTS_MAX / 10) + 1;
    for (size_t i = 0; i < curve->count; i++) {
        const struct curve_point *at = &curve->points[i];
        char hint[200], x[FIGURE_SIZE];
        if ((curve->count - 1 - i) % every || !isfinite(at->y)) continue;
        if (at->x == floor(at->x) && fabs(at->x) < 1e15)
            figure_count((int64_t)at->x, x);
        else
            figure_number(at->x, x);
        snprintf(hint, sizeof hint, "%.80s: %.*f %s %s %s", curve->name, p->c->digits, at->y,
                 p->c->at ? p->c->at : "after", x, p->c->over);
        svg_mark(&p->svg, SVG_DOT, curve->class, svg_at(&p->x, at->x), svg_at(&p->y, at->y), 3.5,
                 hint);
    }
}

/* What labels keep off, in a few pieces. */
static void block_line(struct plot *p, const struct curve *curve)
{
    const size_t every = curve->count / KEPT_OFF + 1;
    const struct curve_point *before = NULL;
    for (size_t i = 0; i < curve->count; i++) {
        const struct curve_point *at = &curve->points[i];
        if ((curve->count - 1 - i) % every || !isfinite(at->y)) continue;
        if (before)
            svg_labels_line(&p->labels, svg_at(&p->x, before->x), svg_at(&p->y, before->y),
                            svg_at(&p->x, at->x), svg_at(&p->y, at->y));
        before = at;
    }
}

static char *value_text(const struct curves *c, double value, char text[FIGURE_SIZE])
{
    if (c->digits == 0) return figure_count(llround(value), text);
    snprintf(text, FIGURE_SIZE, "%.*f", c->digits, value);
    return text;
}

static void label_end(struct plot *p, const struct curve *curve)
{
    size_t last = curve->count;
    char text[FIGURE_SIZE];
    while (last && !isfinite(curve->points[last - 1].y)) last--;
    if (!last) return;
    const struct curve_point *at = &curve->points[last - 1];
    svg_label(&p->svg, &p->labels, "t b halo", svg_at(&p->x, at->x), svg_at(&p->y, at->y), 4,
              value_text(p->c, at->y, text));
}

void chart_curves(struct html *html, double width, const void *data)
{
    const struct curves *c = data;
    const bool wide = width > 500;
    const double height = wide ? 300 : 260, top = 30, bottom = height - 44;
    struct plot p = {.c = c, .y = {.from = bottom, .to = top}};
    struct svg_ticks ticks;
    char tick[FIGURE_SIZE], description[200];
    double left = 24;
    find_ranges(c, &p.x, &p.y);
    svg_ticks(&p.y, 5, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        svg_tick_number(ticks.values[i], ticks.step, tick);
        left = fmax(left, svg_text_width(tick, 12) + 10);
    }
    p.x.from = left;
    p.x.to = width - 64;
    snprintf(description, sizeof description, "%zu lines over %s.", c->count, c->over);
    svg_begin(&p.svg, html, width, height, c->title, description);
    svg_axis_y(&p.svg, &p.y, left, p.x.to, 5, svg_tick_number, c->unit);
    svg_axis_x(&p.svg, &p.x, top, bottom, wide ? 6 : 3, svg_tick_number, c->over);
    svg_labels_init(&p.labels, left + 2, 12, width, height);
    for (size_t k = 0; k < c->count; k++) {
        draw_line(&p, &c->items[k]);
        if (c->items[k].marks) draw_marks(&p, &c->items[k]);
        block_line(&p, &c->items[k]);
    }
    for (size_t k = 0; k < c->count; k++) label_end(&p, &c->items[k]);
    svg_end(&p.svg);
}
