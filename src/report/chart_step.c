/* A step in rows of time, as text runs in lines; each row has a lane a stream, one for the gaps and
 * one for each thread of the host. Pieces too small to be seen alone are drawn as one with their
 * neighbours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "report/figures.h"
#include "report/steps.h"
#include "report/svg.h"

enum {
    LANE = 20,     /* height of a lane, with what is between two */
    BAR = 15,      /* of a bar */
    FOOT = 34,     /* of what is below the lanes of a row: the numbers of its axis */
    ROWS_WIDE = 8, /* most rows of time */
    ROWS_NARROW = 12,
    WORKS_WIDE = 20, /* pieces of the device's work that a row is for */
    WORKS_NARROW = 12,
    HINTS_MAX = 300 /* pieces with their name and time for who points at them */
};

struct drawing {
    const struct step *step;
    struct svg svg;
    double left, right, row_ns; /* time of a row */
    size_t rows, hints;
};

/* Neighbours that are drawn as one bar. */
struct run {
    double x1, x2;
    double of_class[STEP_CLASSES]; /* pixels */
    const struct step_piece *only; /* NULL: of several */
};

static enum step_class class_of(const struct run *r)
{
    int best = 0;
    for (int i = 1; i < STEP_CLASSES; i++)
        if (r->of_class[i] > r->of_class[best]) best = i;
    return (enum step_class)best;
}

static void draw_label(const struct drawing *d, const struct run *r, double y)
{
    char text[64], *shown = NULL;
    double room = r->x2 - r->x1 - 8;
    const char *name;
    if (!r->only || r->only->name == TRACE_NONE || room < 40) return;
    name = timeline_text(d->step->t, r->only->name);
    if (names_shorten(&name, 1, 40, &shown) != SOL_OK) return;
    svg_text_fit(shown, room, 11, text, sizeof text);
    if (strlen(text) >= 6)
        svg_text(&d->svg, r->only->class == STEP_WAIT ? "l on ink" : "l on", SVG_START, r->x1 + 4,
                 y + 11.5, text);
    free(shown);
}

static void draw_run(struct drawing *d, const struct run *r, double y)
{
    struct html *html = d->svg.html;
    double width = r->x2 - r->x1;
    bool hint = r->only && width >= 4 && d->hints < HINTS_MAX;
    /* A hair between two bars. */
    double drawn = width >= 3 ? width - 0.6 : fmax(width, 0.7);
    if (hint) {
        char time[FIGURE_SIZE];
        const char *name = r->only->name == TRACE_NONE ? step_class_name(r->only->class)
                                                       : timeline_text(d->step->t, r->only->name);
        d->hints++;
        html_print(html, "<g><title>%.200s: %s</title>", name,
                   figure_time(r->only->end - r->only->begin, time));
    }
    html_print(html, "<rect class=\"k%d\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>",
               (int)class_of(r), r->x1, y, drawn, BAR);
    if (hint) html_raw(html, "</g>");
    draw_label(d, r, y);
}

/* Pieces of a lane between two times. */
static void draw_lane(struct drawing *d, const struct step_lane *lane, double from, double y)
{
    double to = from + d->row_ns, scale = (d->right - d->left) / d->row_ns;
    struct run run = {.x1 = NAN};
    for (size_t i = 0; i < lane->count && lane->pieces[i].begin < to; i++) {
        const struct step_piece *p = &lane->pieces[i];
        if (p->end <= from) continue;
        double x1 = d->left + (fmax(p->begin, from) - from) * scale;
        double x2 = d->left + (fmin(p->end, to) - from) * scale;
        bool small = x2 - x1 < 1.5 || (!isnan(run.x1) && run.x2 - run.x1 < 1.5);
        if (!isnan(run.x1) && ((small && x1 < run.x2 + 0.7) || x2 <= run.x2)) {
            if (x2 > run.x2) run.x2 = x2;
            run.of_class[p->class] += x2 - x1;
            run.only = run.only && x2 - x1 < 0.1 * (run.x2 - run.x1) ? run.only : NULL;
            continue;
        }
        if (!isnan(run.x1)) draw_run(d, &run, y);
        run = (struct run){.x1 = x1, .x2 = x2, .only = p};
        run.of_class[p->class] = x2 - x1;
    }
    if (!isnan(run.x1)) draw_run(d, &run, y);
}

static void draw_axis(const struct drawing *d, double from, double top, double bottom, bool last)
{
    struct svg_scale x = {.low = from, .high = from + d->row_ns, .from = d->left, .to = d->right};
    struct svg_ticks ticks;
    svg_ticks(&x, d->svg.width > 500 ? 6 : 3, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        char text[FIGURE_SIZE];
        double at = svg_at(&x, ticks.values[i]);
        svg_tick_time(ticks.values[i], ticks.step, text);
        double half = svg_text_width(text, 12) / 2;
        svg_line(&d->svg, "grid", at, top, at, bottom + 3);
        svg_text(&d->svg, "s", SVG_MIDDLE, fmin(fmax(at, half), d->svg.width - half), bottom + 15,
                 text);
    }
    if (last)
        svg_text(&d->svg, "s unit", SVG_END, d->right, bottom + 31, "time since the step began");
}

void chart_step(struct html *html, double width, const void *data)
{
    const struct step *s = data;
    bool wide = width > 500;
    size_t most = wide ? ROWS_WIDE : ROWS_NARROW,
           rows = 1 + s->works / (wide ? WORKS_WIDE : WORKS_NARROW);
    struct drawing d = {
        .step = s, .left = wide ? 96 : 76, .right = width - 2, .rows = rows < most ? rows : most};
    double row = (double)s->n_lanes * LANE + FOOT;
    d.row_ns = s->span_ns / (double)d.rows;
    char description[200], time[FIGURE_SIZE];
    snprintf(description, sizeof description,
             "%s from left to right in %zu rows. A lane for each stream of the device, for its "
             "gaps and for the host. The table below has the sums.",
             figure_time(s->span_ns, time), d.rows);
    svg_begin(&d.svg, html, width, (double)d.rows * row + 16, "Time line of a step", description);
    for (size_t i = 0; i < d.rows; i++) {
        double top = (double)i * row + 4, from = (double)i * d.row_ns;
        draw_axis(&d, from, top, top + (double)s->n_lanes * LANE, i + 1 == d.rows);
        for (size_t j = 0; j < s->n_lanes; j++) {
            char name[40];
            double y = top + (double)j * LANE + 2;
            svg_text_fit(s->lanes[j].name, d.left - 8, 12, name, sizeof name);
            svg_text(&d.svg, "s", SVG_END, d.left - 6, y + 12, name);
            draw_lane(&d, &s->lanes[j], from, y);
        }
    }
    svg_end(&d.svg);
}
