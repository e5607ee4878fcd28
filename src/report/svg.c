#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/figures.h"

void svg_figure(struct html *html, svg_draw *draw, const void *data, const char *caption)
{
    html_raw(html, "<figure><div class=\"wide\">");
    draw(html, SVG_WIDE, data);
    html_raw(html, "</div><div class=\"narrow\">");
    draw(html, SVG_NARROW, data);
    html_raw(html, "</div>");
    if (caption) html_print(html, "<figcaption>%s</figcaption>", caption);
    html_raw(html, "</figure>\n");
}

void svg_begin(struct svg *svg, struct html *html, double width, double height, const char *title,
               const char *description)
{
    int id = html_next_id(html);
    *svg = (struct svg){html, width, height};
    html_print(
        html,
        "<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" "
        "aria-labelledby=\"t%d d%d\"><title id=\"t%d\">%s</title><desc id=\"d%d\">%s</desc>\n",
        width, height, width, height, id, id, id, title, id, description);
}

void svg_end(struct svg *svg)
{
    html_raw(svg->html, "</svg>\n");
}

void svg_line(const struct svg *svg, const char *class, double x1, double y1, double x2, double y2)
{
    html_print(svg->html, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>", class, x1, y1, x2, y2);
}

void svg_rect(const struct svg *svg, const char *class, double x, double y, double width,
              double height)
{
    html_print(svg->html,
               "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", class,
               x, y, fmax(width, 0), fmax(height, 0));
}

void svg_text(const struct svg *svg, const char *class, enum svg_anchor anchor, double x, double y,
              const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    html_print(svg->html, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\"", class, x, y);
    html_raw(svg->html, anchors[anchor]);
    html_print(svg->html, ">%s</text>\n", text);
}

void svg_mark(const struct svg *svg, enum svg_mark mark, const char *class, double x, double y,
              double r, const char *hint)
{
    struct html *html = svg->html;
    html_print(html, "<g class=\"%s\">", class);
    if (hint) html_print(html, "<title>%s</title>", hint);
    switch (mark) {
    case SVG_DOT:
    case SVG_RING:
        html_print(html, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>",
                   mark == SVG_RING ? "ring" : "dot", x, y, r);
        break;
    case SVG_DIAMOND:
        html_print(html, "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x, y - 1.3 * r,
                   1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r);
        break;
    case SVG_TRIANGLE:
    case SVG_TRIANGLE_DOWN: {
        double up = mark == SVG_TRIANGLE ? 1 : -1;
        html_print(html, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - 1.2 * r * up, 1.2 * r,
                   2.1 * r * up, -2.4 * r);
        break;
    }
    case SVG_SQUARE:
        html_print(html, "<path d=\"M%.1f %.1fh%.1fv%.1fh%.1fz\"/>", x - r, y - r, 2 * r, 2 * r,
                   -2 * r);
        break;
    case SVG_CROSS:
        html_print(html, "<path class=\"cross\" d=\"M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f\"/>",
                   x - r, y - r, 2 * r, 2 * r, x - r, y + r, 2 * r, -2 * r);
        break;
    }
    html_raw(html, "</g>\n");
}

/* ---- width of text ---- */

/* In parts of the height, of a wide sans serif (DejaVu); most faces need less. */
static double letter_width(const char *text, size_t length)
{
    if (length != 1) return length > 2 ? 1 : 0.64;
    if (strchr("iljI.,:;'|!", *text)) return 0.38;
    if (strchr("mwMW%@", *text)) return 0.98;
    if (strchr(" ft()[]r/-", *text)) return 0.42;
    return *text >= 'A' && *text <= 'Z' ? 0.72 : 0.64;
}

double svg_text_width(const char *text, double size)
{
    double width = 0;
    while (*text) {
        size_t length = html_utf8_length(text);
        width += letter_width(text, length);
        text += length ? length : 1;
    }
    return width * size;
}

char *svg_text_fit(const char *text, double width, double size, char *out, size_t out_size)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    size_t at = 0, cut = 0;
    double used = 0;
    if (svg_text_width(text, size) <= width && strlen(text) < out_size) {
        strcpy(out, text);
        return out;
    }
    while (text[at]) {
        size_t length = html_utf8_length(text + at), step = length ? length : 1;
        used += letter_width(text + at, length) * size;
        if (used + size > width || at + step + sizeof ellipsis > out_size) break;
        at += step;
        cut = at;
    }
    memcpy(out, text, cut);
    memcpy(out + cut, ellipsis, sizeof ellipsis);
    return out;
}

/* ---- scales ---- */

double svg_at(const struct svg_scale *s, double value)
{
    double part = s->log ? log(value / s->low) / log(s->high / s->low)
                         : (value - s->low) / (s->high - s->low);
    return s->from + part * (s->to - s->from);
}

/* 1, 2 or 5 times a power of ten that splits `range` in about so many. */
static double round_step(double range, int about)
{
    double raw = range / about, power = pow(10, floor(log10(raw))), part = raw / power;
    return power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
}

void svg_scale_round(struct svg_scale *s, int about)
{
    if (s->log) {
        s->low = pow(10, floor(log10(s->low) + 1e-9));
        s->high = pow(10, ceil(log10(s->high) - 1e-9));
        if (s->high <= s->low) s->high = 10 * s->low;
        return;
    }
    double least = 1e-3 * fmax(fabs(s->low), fabs(s->high)); /* 0.1 % fill the plot at most */
    if (least == 0) least = 1;
    if (s->high - s->low < least) {
        double middle = (s->low + s->high) / 2;
        s->low = s->low == 0 ? 0 : middle - least / 2;
        s->high = middle + least / 2;
    }
    /* The wider range may ask for a wider step, so that its ends would carry no number. */
    for (int i = 0; i < 4; i++) {
        double step = round_step(s->high - s->low, about);
        s->low = step * floor(s->low / step + 1e-9);
        s->high = step * ceil(s->high / step - 1e-9);
    }
}

static void log_ticks(const struct svg_scale *s, int about, struct svg_ticks *out)
{
    double first = ceil(log10(s->low) - 1e-9), last = floor(log10(s->high) + 1e-9);
    double every = fmax(1, ceil((last - first + 1) / about));
    for (double e = first; e <= last && out->count < SVG_TICKS_MAX; e += every)
        out->values[out->count++] = pow(10, e);
}

void svg_ticks(const struct svg_scale *s, int about, struct svg_ticks *out)
{
    *out = (struct svg_ticks){.count = 0};
    if (!(s->high > s->low) || !isfinite(s->low) || !isfinite(s->high)) return;
    if (s->log) {
        log_ticks(s, about, out);
        return;
    }
    out->step = round_step(s->high - s->low, about);
    double first = ceil(s->low / out->step - 1e-9);
    for (int i = 0; out->count < SVG_TICKS_MAX; i++) {
        double value = (first + i) * out->step;
        if (value > s->high + 1e-9 * out->step) return;
        out->values[out->count++] = fabs(value) < 1e-9 * out->step ? 0 : value;
    }
}

void svg_tick_time(double ns, double step, char *text)
{
    (void)step;
    if (ns == 0)
        strcpy(text, "0");
    else
        figure_trim(figure_time(ns, text));
}

void svg_tick_number(double value, double step, char *text)
{
    int places = step > 0 && step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    figure_number(value, text);
    if (step == 0 || fabs(value) >= 1e12) {
        figure_trim(text);
    } else if (places == 0) {
        char plain[FIGURE_SIZE];
        figure_count((int64_t)llround(fabs(value)), plain);
        snprintf(text, FIGURE_SIZE, "%s%s", value < 0 ? "\xe2\x88\x92" : "", plain);
    } else {
        snprintf(text, FIGURE_SIZE, "%s%.*f", value < 0 ? "\xe2\x88\x92" : "",
                 places > 9 ? 9 : places, fabs(value));
    }
}

void svg_tick_percent(double value, double step, char *text)
{
    int places = step >= 0.00999 ? 0 : (int)ceil(-log10(100 * step) - 1e-9);
    snprintf(text, FIGURE_SIZE, "%s%.*f\xc2\xa0%%", value < 0 ? "\xe2\x88\x92" : "",
             places > 6 ? 6 : places, fabs(100 * value));
}

void svg_axis_y(const struct svg *svg, const struct svg_scale *s, double x1, double x2, int about,
                svg_tick_text *text, const char *title)
{
    struct svg_ticks ticks;
    char number[FIGURE_SIZE];
    svg_ticks(s, about, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        double y = svg_at(s, ticks.values[i]);
        svg_line(svg, ticks.values[i] == 0 ? "axis" : "grid", x1, y, x2, y);
        text(ticks.values[i], ticks.step, number);
        svg_text(svg, "s", SVG_END, x1 - 8, y + 4, number);
    }
    svg_text(svg, "s unit", SVG_START, 0, fmin(s->from, s->to) - 12, title);
}

void svg_axis_x(const struct svg *svg, const struct svg_scale *s, double y1, double y2, int about,
                svg_tick_text *text, const char *title)
{
    struct svg_ticks ticks;
    char number[FIGURE_SIZE];
    svg_ticks(s, about, &ticks);
    for (size_t i = 0; i < ticks.count; i++) {
        double x = svg_at(s, ticks.values[i]);
        svg_line(svg, ticks.values[i] == 0 ? "axis" : "grid", x, y1, x, y2);
        text(ticks.values[i], ticks.step, number);
        double half = svg_text_width(number, 12) / 2;
        double at = fmin(fmax(x, half), svg->width - half);
        svg_text(svg, "s", SVG_MIDDLE, at, y2 + 17, number);
    }
    svg_text(svg, "s unit", SVG_END, s->to, y2 + 35, title);
}

/* ---- labels ---- */

void svg_labels_init(struct svg_labels *l, double left, double top, double right, double bottom)
{
    l->left = left;
    l->top = top;
    l->right = right;
    l->bottom = bottom;
    l->count = l->n_lines = 0;
    l->ignored = SVG_LINES_MAX;
}

void svg_labels_block(struct svg_labels *l, double left, double top, double right, double bottom)
{
    if (l->count == SVG_BOXES_MAX) return;
    double *box = l->boxes[l->count++];
    box[0] = left;
    box[1] = top;
    box[2] = right;
    box[3] = bottom;
}

void svg_labels_line(struct svg_labels *l, double x1, double y1, double x2, double y2)
{
    if (l->n_lines == SVG_LINES_MAX) return;
    double *line = l->lines[l->n_lines++];
    line[0] = x1;
    line[1] = y1;
    line[2] = x2;
    line[3] = y2;
}

/* The part of the line that lies between two parallel edges; false when there is none. */
static bool clip(double from, double step, double low, double high, double part[2])
{
    if (step == 0) return from > low && from < high;
    double a = (low - from) / step, b = (high - from) / step;
    part[0] = fmax(part[0], fmin(a, b));
    part[1] = fmin(part[1], fmax(a, b));
    return part[0] < part[1];
}

static bool line_hits(const double line[4], double left, double top, double right, double bottom)
{
    double part[2] = {0, 1};
    return clip(line[0], line[2] - line[0], left, right, part) &&
           clip(line[1], line[3] - line[1], top, bottom, part);
}

bool svg_labels_free(const struct svg_labels *l, double left, double top, double right,
                     double bottom)
{
    if (left < l->left || right > l->right || top < l->top || bottom > l->bottom) return false;
    for (size_t i = 0; i < l->count; i++)
        if (left < l->boxes[i][2] && right > l->boxes[i][0] && top < l->boxes[i][3] &&
            bottom > l->boxes[i][1])
            return false;
    for (size_t i = 0; i < l->n_lines; i++)
        if (i != l->ignored && line_hits(l->lines[i], left, top, right, bottom)) return false;
    return true;
}

bool svg_label(const struct svg *svg, struct svg_labels *l, const char *class, double x, double y,
               double radius, const char *text)
{
    double width = svg_text_width(text, SVG_TEXT), gap = radius + 5;
    const struct {
        enum svg_anchor anchor;
        double x, base; /* of the text */
    } places[] = {
        {SVG_START, x + gap, y + 4},
        {SVG_END, x - gap, y + 4},
        {SVG_MIDDLE, x, y - gap},
        {SVG_MIDDLE, x, y + gap + 9},
        {SVG_START, x + gap - 2, y - gap},
        {SVG_END, x - gap + 2, y - gap},
        {SVG_START, x + gap - 2, y + gap + 9},
        {SVG_END, x - gap + 2, y + gap + 9},
    };
    if (l->count == SVG_BOXES_MAX) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        double left = places[i].x - (places[i].anchor == SVG_START ? 0
                                     : places[i].anchor == SVG_END ? width
                                                                   : width / 2);
        double top = places[i].base - 11, bottom = places[i].base + 4;
        if (!svg_labels_free(l, left, top, left + width, bottom)) continue;
        svg_labels_block(l, left - 3, top - 1, left + width + 3, bottom + 1);
        svg_text(svg, class, places[i].anchor, places[i].x, places[i].base, text);
        return true;
    }
    return false;
}
