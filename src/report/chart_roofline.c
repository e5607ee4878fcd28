/* Roofline: what a kernel reaches against the work that it does per byte. Its distance to the roof
 * above it is what could be gained. */
#include <math.h>
#include <stdio.h>

#include "report/charts.h"
#include "report/figures.h"

enum { DOTS_MAX = 60, LABELS_MAX = 12 };

struct plot {
    const struct roofline *r;
    struct svg svg;
    struct svg_scale x, y;
    struct svg_labels labels;
};

static double intensity(const struct run_kernel *k)
{
    return k->flops / k->bytes;
}

static double speed(const struct run_kernel *k)
{
    return k->flops / k->ns * 1e9;
}

bool chart_roofline_shows(const struct run_group *group, size_t i)
{
    const struct run_kernel *k = &group->kernels[i];
    if (!(k->flops > 0 && k->bytes > 0 && k->ns > 0)) return false;
    /* Beyond these nothing real lies, and a scale would have hundreds of powers of ten. */
    return intensity(k) > 1e-9 && intensity(k) < 1e9 && speed(k) > 1 && speed(k) < 1e20;
}

/* Highest ceiling of a kind; 0: none. */
static double highest(const struct roofline *r, bool memory)
{
    double best = 0;
    for (size_t i = 0; i < r->n_ceilings; i++)
        if (r->ceilings[i].memory == memory) best = fmax(best, r->ceilings[i].rate);
    return best;
}

static void find_range(struct plot *p)
{
    const struct run_group *g = p->r->group;
    double flops = highest(p->r, false), bytes = highest(p->r, true);
    p->x = (struct svg_scale){.log = true, .low = INFINITY, .high = 0};
    p->y = p->x;
    for (size_t i = 0; i < g->n_kernels; i++) {
        if (!chart_roofline_shows(g, i)) continue;
        p->x.low = fmin(p->x.low, intensity(&g->kernels[i]));
        p->x.high = fmax(p->x.high, intensity(&g->kernels[i]));
        p->y.low = fmin(p->y.low, speed(&g->kernels[i]));
        p->y.high = fmax(p->y.high, speed(&g->kernels[i]));
    }
    for (size_t i = 0; i < p->r->n_ceilings; i++)
        if (!p->r->ceilings[i].memory) p->y.high = fmax(p->y.high, p->r->ceilings[i].rate);
    if (flops > 0 && bytes > 0) { /* the ridge, and its foot */
        p->x.high = fmax(p->x.high, 1.5 * flops / bytes);
        p->x.low = fmin(p->x.low, flops / bytes);
    }
    p->x.low /= 1.3;
    p->x.high *= 1.3;
    p->y.low /= 1.3;
    p->y.high *= 1.3;
    svg_scale_round(&p->x, 0);
    svg_scale_round(&p->y, 0);
}

static void tick_flops(double value, double step, char *text)
{
    (void)step;
    figure_trim(figure_si(value, "", text));
}

/* Blocks the place of a slanted text that starts at (x, y); false when something lies there. */
static bool claim_slanted(struct svg_labels *l, double x, double y, double wide, double angle)
{
    enum { PIECES = 10 };
    for (int round = 0; round < 2; round++)
        for (int i = 0; i <= PIECES; i++) {
            double px = x + wide * i / PIECES * cos(angle), py = y + wide * i / PIECES * sin(angle);
            if (round)
                svg_labels_block(l, px - 7, py - 12, px + 7, py + 5);
            else if (!svg_labels_free(l, px - 7, py - 12, px + 7, py + 5))
                return false;
        }
    return true;
}

static void draw_memory(struct plot *p, const struct run_ceiling *c, double top_flops, bool above)
{
    double x1 = fmax(p->x.low, p->y.low / c->rate);
    double roof = top_flops > 0 ? top_flops : p->y.high, x2 = fmin(p->x.high, roof / c->rate);
    if (x2 <= x1) return;
    double left = svg_at(&p->x, x1), bottom = svg_at(&p->y, x1 * c->rate);
    double right = svg_at(&p->x, x2), top = svg_at(&p->y, x2 * c->rate);
    svg_line(&p->svg, "roof", left, bottom, right, top);
    char rate[FIGURE_SIZE], text[FIGURE_SIZE + 64];
    figure_si(c->rate, "B/s", rate);
    snprintf(text, sizeof text, "%s %s", c->name, rate);
    double length = hypot(right - left, bottom - top), wide = svg_text_width(text, 12);
    /* Where it covers nothing, above the line for the fastest memory, below for the others. */
    double angle = -atan2(bottom - top, right - left), off = above ? -6 : 15;
    for (int step = 0; 20 * step + wide < length - 22; step++) {
        double at = 14 + 20 * step;
        double x = left + at * cos(angle) - off * sin(angle),
               y = bottom + at * sin(angle) + off * cos(angle);
        if (!claim_slanted(&p->labels, x, y, wide, angle)) continue;
        html_print(
            p->svg.html,
            "<text class=\"s halo\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s</text>\n", x,
            y, angle * 57.29578, text);
        return;
    }
}

static void draw_flat(struct plot *p, const struct run_ceiling *c, double top_bytes)
{
    double x1 = top_bytes > 0 ? fmax(p->x.low, c->rate / top_bytes) : p->x.low;
    if (x1 >= p->x.high || c->rate < p->y.low) return;
    double left = svg_at(&p->x, x1), right = p->x.to, y = svg_at(&p->y, c->rate);
    svg_line(&p->svg, "roof", left, y, right, y);
    char rate[FIGURE_SIZE], text[FIGURE_SIZE + 64];
    figure_si(c->rate, "FLOP/s", rate);
    snprintf(text, sizeof text, "%s %s", c->name, rate);
    double wide = svg_text_width(text, 12);
    const double bases[] = {y - 6, y + 15};
    for (int i = 0; i < 2; i++)
        for (int step = 0; right - 2 - wide * (1 + 0.5 * step) >= p->x.from; step++) {
            double end = right - 2 - 0.5 * wide * step;
            struct svg_labels *l = &p->labels;
            if (!svg_labels_free(l, end - wide, bases[i] - 11, end, bases[i] + 4)) continue;
            svg_text(&p->svg, "s halo", SVG_END, end, bases[i], text);
            svg_labels_block(l, end - wide - 4, bases[i] - 12, end + 4, bases[i] + 5);
            return;
        }
}

static void draw_ceilings(struct plot *p)
{
    const struct roofline *r = p->r;
    double bytes = highest(r, true), flops = highest(r, false);
    for (size_t i = 0; i < r->n_ceilings; i++)
        if (r->ceilings[i].memory)
            draw_memory(p, &r->ceilings[i], flops, r->ceilings[i].rate >= bytes);
    for (size_t i = 0; i < r->n_ceilings; i++)
        if (!r->ceilings[i].memory) draw_flat(p, &r->ceilings[i], bytes);
}

/* Names of kernels keep off the lines. */
static void block_ceilings(struct plot *p)
{
    double bytes = highest(p->r, true), flops = highest(p->r, false);
    for (size_t i = 0; i < p->r->n_ceilings; i++) {
        const struct run_ceiling *c = &p->r->ceilings[i];
        if (!c->memory) {
            double y = svg_at(&p->y, c->rate), x = svg_at(&p->x, c->rate / bytes);
            svg_labels_block(&p->labels, bytes > 0 ? fmax(x, p->x.from) : p->x.from, y - 1, p->x.to,
                             y + 1);
            continue;
        }
        for (int step = 0; 8 * step < p->x.to - p->x.from; step++) {
            double x = p->x.from + 8 * step;
            double at =
                p->x.low * pow(p->x.high / p->x.low, (x - p->x.from) / (p->x.to - p->x.from));
            double y = svg_at(&p->y, at * c->rate);
            if (y > p->y.from || (flops > 0 && at * c->rate > flops) || y < p->y.to) continue;
            if (p->labels.count < SVG_BOXES_MAX - 40)
                svg_labels_block(&p->labels, x, y - 4, x + 8, y + 4);
        }
    }
}

static double radius_of(const struct plot *p, const struct run_kernel *k)
{
    double share = p->r->group->ns > 0 ? k->ns / p->r->group->ns : 0;
    return 4 + (p->svg.width > 500 ? 22 : 14) * sqrt(share);
}

static void block_kernels(struct plot *p)
{
    const struct run_group *g = p->r->group;
    for (size_t i = 0, dots = 0; i < g->n_kernels && dots < DOTS_MAX; i++) {
        const struct run_kernel *k = &g->kernels[i];
        if (!chart_roofline_shows(g, i)) continue;
        double x = svg_at(&p->x, intensity(k)), y = svg_at(&p->y, speed(k)),
               r = 0.8 * radius_of(p, k);
        svg_labels_block(&p->labels, x - r, y - r, x + r, y + r);
        dots++;
    }
}

static void draw_kernels(struct plot *p)
{
    const struct run_group *g = p->r->group;
    size_t dots = 0, labels = 0;
    for (size_t i = 0; i < g->n_kernels && dots < DOTS_MAX; i++) {
        const struct run_kernel *k = &g->kernels[i];
        if (!chart_roofline_shows(g, i)) continue;
        char hint[300], rate[FIGURE_SIZE], share[FIGURE_SIZE];
        figure_si(speed(k), "FLOP/s", rate);
        figure_percent(k->ns / g->ns, share);
        snprintf(hint, sizeof hint, "%.120s %.100s: %s, %.3g FLOP per byte, %s of the time",
                 k->name, k->detail, rate, intensity(k), share);
        double x = svg_at(&p->x, intensity(k)), y = svg_at(&p->y, speed(k));
        svg_mark(&p->svg, SVG_DOT, "bubble", x, y, radius_of(p, k), hint);
        dots++;
    }
    for (size_t i = 0; i < g->n_kernels && labels < LABELS_MAX; i++) {
        const struct run_kernel *k = &g->kernels[i];
        if (!chart_roofline_shows(g, i)) continue;
        char name[64];
        svg_text_fit(k->label, p->svg.width > 500 ? 190 : 110, SVG_TEXT, name, sizeof name);
        double r = radius_of(p, k), x = svg_at(&p->x, intensity(k)), y = svg_at(&p->y, speed(k));
        labels += svg_label(&p->svg, &p->labels, "t halo", x, y, r, name);
    }
}

void chart_roofline(struct html *html, double width, const void *data)
{
    const struct roofline *r = data;
    struct plot p = {.r = r};
    double height = width > 500 ? 440 : 380, left = 56, bottom = height - 48;
    char title[200];
    find_range(&p);
    p.x.from = left;
    p.x.to = width - 10;
    p.y.from = bottom;
    p.y.to = 34;
    snprintf(title, sizeof title, "Roofline of %.100s %.40s",
             r->group->metric ? r->group->metric : "", r->group->phase ? r->group->phase : "");
    svg_begin(
        &p.svg, html, width, height, title,
        "Each circle is a kernel, its area the share of the time. Right is more arithmetic per "
        "byte, up is faster; the lines are the measured limits. The table below has the figures.");
    svg_labels_init(&p.labels, left + 2, p.y.to - 12, p.x.to, bottom);
    svg_axis_y(&p.svg, &p.y, left, p.x.to, width > 500 ? 7 : 6, tick_flops, "FLOP/s, reached");
    svg_axis_x(&p.svg, &p.x, p.y.to, bottom, width > 500 ? 9 : 5, svg_tick_number,
               "arithmetic intensity, FLOP per byte");
    block_kernels(&p);
    draw_ceilings(&p);
    block_ceilings(&p);
    draw_kernels(&p);
    svg_end(&p.svg);
}
