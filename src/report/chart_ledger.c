/* How predictions came true: on the diagonal what was promised, on the axis what gained nothing. */
#include <math.h>
#include <stdio.h>

#include "report/charts.h"
#include "report/figures.h"

void chart_ledger(struct html *html, double width, const void *data)
{
    const struct store_ledger *l = data;
    bool wide = width > 500;
    double w = wide ? 620 : width, height = wide ? 420 : 330, bottom = height - 46;
    struct svg_scale x = {.high = 0.01, .from = 56, .to = w - 14};
    struct svg_scale y = {.from = bottom, .to = 34};
    struct svg_labels labels;
    struct svg svg;
    for (size_t i = 0; i < l->count; i++) {
        if (!isfinite(l->items[i].predicted) || !isfinite(l->items[i].realised)) continue;
        x.high = fmax(x.high, 1.05 * l->items[i].predicted);
        y.high = fmax(y.high, 1.05 * l->items[i].realised);
        y.low = fmin(y.low, 1.05 * l->items[i].realised);
    }
    y.high = fmax(y.high, 0.6 * x.high);
    svg_scale_round(&x, wide ? 6 : 4);
    svg_scale_round(&y, 5);
    svg_begin(&svg, html, w, height, "Predicted against realised gains",
              "Each point is one attempt. On the diagonal a prediction came true; below it, less "
              "was gained.");
    svg_axis_y(&svg, &y, x.from, x.to, 5, svg_tick_percent, "realised: time saved");
    svg_axis_x(&svg, &x, y.to, bottom, wide ? 6 : 4, svg_tick_percent, "predicted: time saved");
    double end = fmin(x.high, y.high), half = fmin(x.high, 2 * y.high);
    double ex = svg_at(&x, end), ey = svg_at(&y, end), hx = svg_at(&x, half),
           hy = svg_at(&y, half / 2);
    svg_line(&svg, "roof", svg_at(&x, 0), svg_at(&y, 0), ex, ey);
    svg_line(&svg, "roof faint", svg_at(&x, 0), svg_at(&y, 0), hx, hy);
    svg_labels_init(&labels, x.from + 2, 18, x.to, bottom);
    svg_labels_line(&labels, svg_at(&x, 0), svg_at(&y, 0), ex, ey);
    svg_labels_line(&labels, svg_at(&x, 0), svg_at(&y, 0), hx, hy);
    for (size_t i = 0; i < l->count; i++)
        svg_labels_block(
            &labels, svg_at(&x, l->items[i].predicted) - 5, svg_at(&y, l->items[i].realised) - 5,
            svg_at(&x, l->items[i].predicted) + 5, svg_at(&y, l->items[i].realised) + 5);
    svg_label(&svg, &labels, "s halo", ex, ey, 2, "came true");
    svg_label(&svg, &labels, "s halo", hx, hy, 2, "half of it");
    for (size_t i = 0; i < l->count; i++) {
        const struct store_ledger_entry *e = &l->items[i];
        char hint[200], predicted[FIGURE_SIZE], realised[FIGURE_SIZE], name[48];
        if (!isfinite(e->predicted) || !isfinite(e->realised)) continue;
        snprintf(hint, sizeof hint, "%.80s: predicted %s, realised %s", e->rule,
                 figure_change(e->predicted, predicted), figure_change(e->realised, realised));
        double px = svg_at(&x, e->predicted), py = svg_at(&y, e->realised);
        svg_mark(&svg, e->realised < 0 ? SVG_TRIANGLE_DOWN : SVG_DOT,
                 e->realised < 0 ? "m-bad" : "m", px, py, 5, hint);
        svg_label(&svg, &labels, "s ink halo", px, py, 5,
                  svg_text_fit(e->rule, 120, 12, name, sizeof name));
    }
    svg_end(&svg);
}
