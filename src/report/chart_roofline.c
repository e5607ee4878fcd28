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

/* ---- ceilings ---- */

/* Where a ceiling's line runs; false: outside the plot. */
static bool ceiling_line(const struct plot *p, const struct run_ceiling *c, double line[4])
{
    double bytes = highest(p->r, true), flops = highest(p->r, false), x1, x2, y1, y2;
    if (c->memory) {
        double roof = flops > 0 ? flops : p->y.high;
        x1 = fmax(p->x.low, p->y.low / c->rate);
        x2 = fmin(p->x.high, roof / c->rate);
        y1 = x1 * c->rate;
        y2 = x2 * c->rate;
    } else {
        x1 = bytes > 0 ? fmax(p->x.low, c->rate / bytes) : p->x.low;
        x2 = p->x.high;
        y1 = y2 = c->rate;
    }
    if (x2 <= x1 || y1 < 0.999 * p->y.low) return false;
    line[0] = svg_at(&p->x, x1);
    line[1] = svg_at(&p->y, y1);
    line[2] = svg_at(&p->x, x2);
    line[3] = svg_at(&p->y, y2);
    return true;
}

/* Whether a slanted text that starts at (x, y) covers nothing; its place is taken then. */
static bool claim_slanted(struct svg_labels *l, double x, double y, double wide, double angle)
{
    double piece = fmin(8, wide / 2);
    int pieces = (int)ceil(wide / piece);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i <= pieces; i++) {
            double at = fmin(i * piece, wide), px = x + at * cos(angle), py = y + at * sin(angle);
            if (round)
                svg_labels_block(l, px - 7, py - 11, px + 7, py + 4);
            else if (!svg_labels_free(l, px - 5, py - 10, px + 5, py + 3))
                return false;
        }
    return true;
}

/* Above the line or below it, wherever along it there is room. */
static void name_slanted(struct plot *p, const double line[4], const char *text)
{
    double length = hypot(line[2] - line[0], line[3] - line[1]), wide = svg_text_width(text, 12);
    double angle = atan2(line[3] - line[1], line[2] - line[0]);
    const double offs[] = {-6, 15};
    for (int side = 0; side < 2; side++)
        for (int step = 0; 8 * step + wide < length - 16; step++) {
            double at = 10 + 8 * step, x = line[0] + at * cos(angle) - offs[side] * sin(angle),
                   y = line[1] + at * sin(angle) + offs[side] * cos(angle);
            if (!claim_slanted(&p->labels, x, y, wide, angle)) continue;
            html_print(p->svg.html,
                       "<text class=\"s halo\" transform=\"translate(%.1f %.1f) "
                       "rotate(%.1f)\">%s</text>\n",
                       x, y, angle * 57.29578, text);
            return;
        }
}

static void name_flat(struct plot *p, const double line[4], const char *text)
{
    double wide = svg_text_width(text, 12), y = line[1];
    const double bases[] = {y - 6, y + 15};
    struct svg_labels *l = &p->labels;
    for (int side = 0; side < 2; side++)
        for (int step = 0; line[2] - 2 - wide - 12 * step >= p->x.from; step++) {
            double end = line[2] - 2 - 12 * step;
            if (!svg_labels_free(l, end - wide, bases[side] - 11, end, bases[side] + 4)) continue;
            svg_text(&p->svg, "s halo", SVG_END, end, bases[side], text);
            svg_labels_block(l, end - wide - 4, bases[side] - 12, end + 4, bases[side] + 5);
            return;
        }
}

static void draw_ceilings(struct plot *p)
{
    double line[4];
    for (size_t i = 0; i < p->r->n_ceilings; i++) {
        if (!ceiling_line(p, &p->r->ceilings[i], line)) continue;
        svg_line(&p->svg, "roof", line[0], line[1], line[2], line[3]);
        svg_labels_line(&p->labels, line[0], line[1], line[2], line[3]);
    }
}

/* After the circles, so that none covers a name. */
static void name_ceilings(struct plot *p)
{
    double line[4];
    size_t drawn = 0;
    for (size_t i = 0; i < p->r->n_ceilings; i++) {
        const struct run_ceiling *c = &p->r->ceilings[i];
        char rate[FIGURE_SIZE], text[FIGURE_SIZE + 64];
        if (!ceiling_line(p, c, line)) continue;
        p->labels.ignored = drawn++;
        figure_si(c->rate, c->memory ? "B/s" : "FLOP/s", rate);
        snprintf(text, sizeof text, "%s %s", c->name, rate);
        if (c->memory)
            name_slanted(p, line, text);
        else
            name_flat(p, line, text);
    }
    p->labels.ignored = SVG_LINES_MAX;
}

/* ---- kernels ---- */

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
               r = radius_of(p, k) + 1;
        svg_labels_block(&p->labels, x - r, y - r, x + r, y + r);
        dots++;
    }
}

static void draw_kernels(struct plot *p)
{
    const struct run_group *g = p->r->group;
    size_t dots = 0;
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
}

static void name_kernels(struct plot *p)
{
    const struct run_group *g = p->r->group;
    size_t labels = 0;
    for (size_t i = 0; i < g->n_kernels && labels < LABELS_MAX; i++) {
        const struct run_kernel *k = &g->kernels[i];
        if (!chart_roofline_shows(g, i)) continue;
        char name[64];
        svg_text_fit(k->label, 190, SVG_TEXT, name, sizeof name);
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
    draw_ceilings(&p);
    draw_kernels(&p);
    block_kernels(&p);
    name_ceilings(&p);
    name_kernels(&p);
    svg_end(&p.svg);
}
