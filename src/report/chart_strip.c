/* Repetitions in the order of time, so that drift shows; median and 95 % interval across. */
#include <math.h>
#include <stdio.h>

#include "report/charts.h"
#include "report/figures.h"

enum { HEIGHT = 182, POINTS_MAX = 150 };

struct strip {
    const struct run_metric *m;
    struct svg svg;
    struct svg_scale x, y;
};

/* Range of what counts, its interval included; a warm-up beyond it is drawn at the edge. */
static struct svg_scale range_of(const struct run_metric *m)
{
    struct svg_scale y = {.low = INFINITY, .high = -INFINITY, .from = HEIGHT - 38, .to = 34};
    for (size_t i = 0; i < m->metric->n_samples; i++) {
        const struct store_sample *s = &m->metric->samples[i];
        double value = metric_shown(&m->figure, s->value);
        if ((s->flags & STORE_WARMUP) || !isfinite(value)) continue;
        y.low = fmin(y.low, value);
        y.high = fmax(y.high, value);
    }
    if (!isnan(m->figure.shown.low)) {
        /* A wide interval of two or three values must not flatten the points. */
        double span = fmax(y.high - y.low, 1e-3 * fabs(y.high));
        y.low = fmin(y.low, fmax(m->figure.shown.low, y.low - span));
        y.high = fmax(y.high, fmin(m->figure.shown.high, y.high + span));
    }
    svg_scale_round(&y, 3);
    return y;
}

static void hint_of(const struct run_metric *m, const struct store_sample *s, size_t number,
                    char *hint, size_t size)
{
    char value[FIGURE_SIZE];
    figure_value(metric_shown(&m->figure, s->value), m->figure.unit, value);
    snprintf(hint, size, "repetition %zu: %s%s%s%s%s", number, value,
             s->flags & STORE_WARMUP ? ", warm-up" : "",
             s->flags & STORE_OUTLIER ? ", outlier" : "",
             s->flags & STORE_REPEATED ? ", repeated: " : "",
             s->flags & STORE_REPEATED && s->cause ? s->cause : "");
}

static void draw_point(const struct strip *strip, const struct store_sample *s, size_t i)
{
    double value = metric_shown(&strip->m->figure, s->value), r = 4;
    char hint[200];
    if (!isfinite(value)) return;
    hint_of(strip->m, s, i + 1, hint, sizeof hint);
    double x = svg_at(&strip->x, (double)i), y = svg_at(&strip->y, value);
    bool above = y<strip->y.to - 4, below = y> strip->y.from + 4;
    if (above || below)
        svg_mark(&strip->svg, above ? SVG_TRIANGLE : SVG_TRIANGLE_DOWN, "m-soft", x,
                 above ? strip->y.to - 2 : strip->y.from + 2, r - 0.5, hint);
    else if (s->flags & STORE_WARMUP)
        svg_mark(&strip->svg, SVG_RING, "m-soft", x, y, r, hint);
    else if (s->flags & STORE_REPEATED)
        svg_mark(&strip->svg, SVG_SQUARE, "m-warn", x, y, r - 0.5, hint);
    else if (s->flags & STORE_OUTLIER)
        svg_mark(&strip->svg, SVG_DIAMOND, "m-warn", x, y, r, hint);
    else
        svg_mark(&strip->svg, SVG_DOT, "m", x, y, r, NULL);
}

void chart_strip(struct html *html, double width, const void *data)
{
    const struct run_metric *m = data;
    struct strip strip = {.m = m, .y = range_of(m)};
    size_t n = m->metric->n_samples, every = 1 + (n - 1) / POINTS_MAX;
    char title[200], text[FIGURE_SIZE], tick[FIGURE_SIZE];
    /* Room for the numbers left, for the word "median" right. */
    struct svg_ticks ticks;
    double left = 20;
    svg_ticks(&strip.y, 3, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        svg_tick_number(ticks.values[i], ticks.step, tick);
        left = fmax(left, svg_text_width(tick, 12) + 10);
    }
    double right = width - 58;
    strip.x = (struct svg_scale){.low = -0.5, .high = (double)n - 0.5, .from = left, .to = right};
    snprintf(title, sizeof title, "%s: %zu repetitions in the order of time", m->metric->name, n);
    figure_value(m->figure.shown.value, m->figure.unit, text);
    char description[300];
    snprintf(description, sizeof description,
             "Median %s of %zu that count; %zu warm-ups, %zu outliers, %zu repeated for an outside "
             "cause.",
             text, m->figure.shown.count, m->figure.warmups, m->figure.outliers,
             m->figure.repeated);
    svg_begin(&strip.svg, html, width, HEIGHT, title, description);
    char unit[80];
    svg_text_fit(m->figure.unit, right - left, 12, unit, sizeof unit);
    svg_axis_y(&strip.svg, &strip.y, left, right, 3, svg_tick_number, unit);
    double middle = svg_at(&strip.y, m->figure.shown.value);
    if (!isnan(m->figure.shown.low)) {
        double top = fmax(svg_at(&strip.y, m->figure.shown.high), strip.y.to);
        double bottom = fmin(svg_at(&strip.y, m->figure.shown.low), strip.y.from);
        svg_rect(&strip.svg, "band", left, top, right - left, fmax(bottom - top, 1));
    }
    svg_line(&strip.svg, "mid", left, middle, right, middle);
    svg_text(&strip.svg, "s", SVG_START, right + 6, middle + 4, "median");
    for (size_t i = 0; i < n; i++)
        if (i % every == 0 || (m->metric->samples[i].flags && i % (every / 4 + 1) == 0))
            draw_point(&strip, &m->metric->samples[i], i);
    svg_text(&strip.svg, "s", SVG_MIDDLE, svg_at(&strip.x, 0), HEIGHT - 18, "1");
    snprintf(tick, sizeof tick, "%zu", n);
    if (n > 1)
        svg_text(&strip.svg, "s", SVG_MIDDLE, svg_at(&strip.x, (double)(n - 1)), HEIGHT - 18, tick);
    svg_text(&strip.svg, "s unit", SVG_MIDDLE, (left + right) / 2, HEIGHT - 4,
             "repetition, in order of time");
    svg_end(&strip.svg);
}
