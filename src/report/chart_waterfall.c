/* From the limit to what was measured: what each kernel takes beyond its own limit, then what no
 * kernel accounts for. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"

enum { KERNELS_SHOWN = 7, ROW_WIDE = 30, ROW_NARROW = 44 };

static void add_step(struct waterfall *w, const char *name, double ns, bool total)
{
    struct waterfall_step *s = &w->steps[w->n_steps++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->ns = ns;
    s->total = total;
}

/* What a kernel takes beyond its limit; all of it where no kernel's limit is known. */
static double loss_of(const struct run_group *g, const struct run_kernel *k)
{
    return isnan(g->limit_ns) ? k->ns : k->ns - k->limit_ns;
}

/* Collectives whose cost is the bar of exposed communication. */
static bool is_exposed(const struct run_group *g, const struct run_kernel *k)
{
    return g->communication.ranks > 1 && strcmp(k->category, "communication") == 0;
}

/* Kernels by what they lose, the greatest first. */
static void add_losses(const struct run_group *g, struct waterfall *w)
{
    size_t index[KERNELS_SHOWN], n = 0;
    double rest = 0;
    for (size_t i = 0; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        double loss = loss_of(g, k);
        if (isnan(loss) || is_exposed(g, k)) continue;
        size_t at = n;
        while (at && loss > loss_of(g, &g->kernels[index[at - 1]])) at--;
        if (at == KERNELS_SHOWN) {
            rest += loss;
            continue;
        }
        if (n == KERNELS_SHOWN) {
            const struct run_kernel *out = &g->kernels[index[--n]];
            rest += loss_of(g, out);
        }
        memmove(index + at + 1, index + at, (n - at) * sizeof *index);
        index[at] = i;
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        const struct run_kernel *k = &g->kernels[index[i]];
        add_step(w, k->label, loss_of(g, k), false);
    }
    if (fabs(rest) > 1e-9 * g->ns) add_step(w, "all other kernels", rest, false);
}

/* Of the kernels that have bars of their own or count among the others. */
static void sum_limits(const struct run_group *g, double *limit, double *unlimited)
{
    *limit = g->limit_ns;
    *unlimited = g->unlimited_ns;
    for (size_t i = 0; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        if (!is_exposed(g, k)) continue;
        if (!isnan(k->limit_ns))
            *limit -= k->limit_ns;
        else if (!isnan(k->ns))
            *unlimited -= k->ns;
    }
}

bool waterfall_make(const struct run_group *g, struct waterfall *w)
{
    *w = (struct waterfall){.per = g->per};
    if (!(g->ns > 0)) return false;
    bool limits = !isnan(g->limit_ns);
    double limit, unlimited, start;
    sum_limits(g, &limit, &unlimited);
    start = limit;
    if (limits && g->metric_limit_ns > 0 && g->metric_limit_ns < limit) start = g->metric_limit_ns;
    if (limits) {
        add_step(w, "limit of this machine", start, true);
        if (limit - start > 0.002 * g->ns)
            add_step(w, "kernels one after the other", limit - start, false);
        else
            w->steps[0].ns = limit;
    }
    add_losses(g, w);
    if (limits && unlimited > 1e-9 * g->ns)
        add_step(w, "kernels without a known limit", unlimited, false);
    if (g->communication.ranks > 1)
        add_step(w, "exposed communication", g->communication.exposed_ns, false);
    double sum = 0;
    for (size_t i = 0; i < w->n_steps; i++) sum += w->steps[i].ns;
    if (g->measured_ns > 0) {
        double rest = g->measured_ns - sum;
        add_step(w, rest >= 0 ? "gaps and everything else" : "timed runs were slower", rest, false);
        add_step(w, "measured", g->measured_ns, true);
    } else {
        add_step(w, "all kernels", sum, true);
    }
    return true;
}

static void bar_text(const struct waterfall_step *s, double whole, char *text, size_t size)
{
    char time[FIGURE_SIZE], share[FIGURE_SIZE];
    figure_time(fabs(s->ns), time);
    figure_percent(fabs(s->ns) / whole, share);
    snprintf(text, size, "%s%s, %s", s->total ? "" : s->ns < 0 ? "\xe2\x88\x92" : "+", time, share);
}

void chart_waterfall(struct html *html, double width, const void *data)
{
    const struct waterfall *w = data;
    bool wide = width > 500;
    double row = wide ? ROW_WIDE : ROW_NARROW, left = wide ? 232 : 4, top = 8;
    double height = top + row * (double)w->n_steps + 44, most = 0, sum = 0;
    for (size_t i = 0; i < w->n_steps; i++) {
        sum = w->steps[i].total ? w->steps[i].ns : sum + w->steps[i].ns;
        most = fmax(most, sum);
    }
    struct svg svg;
    struct svg_scale x = {.high = most, .from = left, .to = width - (wide ? 10 : 22)};
    double whole = w->steps[w->n_steps - 1].ns, bottom = height - 44;
    char unit[64];
    snprintf(unit, sizeof unit, "time%s%s", w->per ? " " : ", summed", w->per ? w->per : "");
    svg_begin(&svg, html, width, height, w->title,
              "From the limit at the top to the measured time at the bottom; each bar between is "
              "what one "
              "part adds.");
    /* On phones names stand above the bars, where lines would strike them through. */
    svg_axis_x(&svg, &x, wide ? top : bottom - 5, bottom, wide ? 6 : 4, svg_tick_time, unit);
    sum = 0;
    for (size_t i = 0; i < w->n_steps; i++) {
        const struct waterfall_step *s = &w->steps[i];
        double from = s->total ? 0 : sum, to = from + s->ns;
        double y = top + row * (double)i + (wide ? 5 : 20), bar = 20;
        double x1 = svg_at(&x, fmin(from, to)), x2 = svg_at(&x, fmax(from, to));
        char text[2 * FIGURE_SIZE + 8], name[128];
        bar_text(s, whole, text, sizeof text);
        svg_rect(&svg,
                 s->total    ? "col total"
                 : s->ns < 0 ? "col gain"
                             : "col",
                 x1, y, fmax(x2 - x1, 1.5), bar);
        double edge = svg_at(&x, to), need = svg_text_width(text, SVG_TEXT);
        if (wide && i + 1 < w->n_steps) svg_line(&svg, "join", edge, y + bar, edge, y + row);
        if (wide) {
            svg_text_fit(s->name, left - 14, SVG_TEXT, name, sizeof name);
            svg_text(&svg, s->total ? "t b" : "t", SVG_END, left - 10, y + 15, name);
            bool right = x2 + 6 + need < width;
            if (right || x1 - 6 - need > left)
                svg_text(&svg, "t halo", right ? SVG_START : SVG_END, right ? x2 + 6 : x1 - 6,
                         y + 15, text);
            else
                svg_text(&svg, "t on", SVG_END, x2 - 8, y + 15, text);
        } else {
            svg_text_fit(s->name, width - need - 14, SVG_TEXT, name, sizeof name);
            svg_text(&svg, s->total ? "t b" : "t", SVG_START, left, y - 5, name);
            svg_text(&svg, "t", SVG_END, width - 2, y - 5, text);
        }
        sum = to;
    }
    svg_end(&svg);
}
