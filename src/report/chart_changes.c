/* Changes of the metrics of a comparison: a point with its 95 % interval, and the band of what
 * counts for nothing. */
#include <math.h>
#include <stdio.h>

#include "report/charts.h"
#include "report/figures.h"

enum { ROW_WIDE = 30, ROW_NARROW = 42 };

static void draw_row(const struct svg *svg, const struct svg_scale *x, const struct change *c,
                     double y, bool wide, double left)
{
    char name[128], value[FIGURE_SIZE], text[FIGURE_SIZE + 40];
    const char *class;
    enum svg_mark mark = verdict_mark(c->verdict, &class);
    snprintf(text, sizeof text, "%s %s", figure_change(c->change, value),
             c->verdict ? c->verdict : "");
    double need = svg_text_width(text, SVG_TEXT), base = wide ? y : y + 8;
    if (wide) {
        svg_text(svg, c->deciding ? "t b halo" : "t halo", SVG_END, left - 12, y + 4,
                 svg_text_fit(c->name, left - 16, SVG_TEXT, name, sizeof name));
        svg_text(svg, "t halo", SVG_START, x->to + 14, y + 4, text);
    } else {
        svg_text(svg, c->deciding ? "t b halo" : "t halo", SVG_START, 2, y - 9,
                 svg_text_fit(c->name, svg->width - need - 12, SVG_TEXT, name, sizeof name));
        svg_text(svg, "t halo", SVG_END, svg->width - 2, y - 9, text);
    }
    if (isfinite(c->change) && isfinite(c->low) && isfinite(c->high)) {
        double a = svg_at(x, fmin(fmax(c->low, x->low), x->high));
        double b = svg_at(x, fmax(fmin(c->high, x->high), x->low));
        svg_line(svg, "whisker", a, base, b, base);
        svg_line(svg, "whisker", a, base - 4, a, base + 4);
        svg_line(svg, "whisker", b, base - 4, b, base + 4);
    }
    if (isfinite(c->change)) svg_mark(svg, mark, class, svg_at(x, c->change), base, 5, NULL);
}

void chart_changes(struct html *html, double width, const void *data)
{
    const struct changes *list = data;
    bool wide = width > 500;
    double row = wide ? ROW_WIDE : ROW_NARROW, left = wide ? 200 : 16, top = 12;
    double height = top + row * (double)list->count + 46, bottom = height - 40;
    struct svg_scale x = {.from = left, .to = wide ? width - 180 : width - 16};
    double delta = isfinite(list->delta) ? list->delta : 0;
    x.low = -1.5 * delta;
    x.high = 1.5 * delta;
    for (size_t i = 0; i < list->count; i++) {
        const struct change *c = &list->items[i];
        if (!isfinite(c->change)) continue;
        x.low = fmin(x.low, fmin(c->change, c->low));
        x.high = fmax(x.high, fmax(c->change, c->high));
    }
    svg_scale_round(&x, wide ? 6 : 4);
    struct svg svg;
    svg_begin(&svg, html, width, height, "Changes with their 95 % intervals",
              "One row per metric. Within the shaded band a change counts for nothing.");
    if (delta > 0)
        svg_rect(&svg, "band", svg_at(&x, -delta), top, svg_at(&x, delta) - svg_at(&x, -delta),
                 bottom - top);
    svg_axis_x(&svg, &x, top, bottom, wide ? 6 : 4, svg_tick_percent,
               "change of the metric as shown");
    for (size_t i = 0; i < list->count; i++)
        draw_row(&svg, &x, &list->items[i], top + row * ((double)i + 0.5), wide, left);
    svg_end(&svg);
}
