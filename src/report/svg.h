/* Charts as SVG inside HTML: a frame with title and description for readers who do not see it,
 * scales with ticks at round numbers, axes, and labels that keep out of each other's way.
 *
 * Colours come from classes of style.css, so that one drawing serves both colour schemes. A chart
 * is drawn once for desktops and once for phones (svg_figure); letters have the same size in
 * both. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>

#include "report/html.h"

enum {
    SVG_WIDE = 720, /* widths of the two drawings, in pixels */
    SVG_NARROW = 340,
    SVG_SMALL = 320, /* of one of many charts side by side */
    SVG_TEXT = 13,   /* height of letters of class "t"; "s" has 12 */
};

struct svg {
    struct html *html;
    double width, height;
};

/* `draw` writes one svg of this width. */
typedef void svg_draw(struct html *html, double width, const void *data);

/* The chart in both widths, of which the page shows one, with a caption that may be NULL. */
void svg_figure(struct html *html, svg_draw *draw, const void *data, const char *caption);

/* `title` names the chart; `description` says what it shows, for who cannot see it. */
void svg_begin(struct svg *svg, struct html *html, double width, double height, const char *title,
               const char *description);
void svg_end(struct svg *svg);

void svg_line(const struct svg *svg, const char *class, double x1, double y1, double x2, double y2);
void svg_rect(const struct svg *svg, const char *class, double x, double y, double width,
              double height);
enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };
/* `y` is the base line. Escapes `text`. */
void svg_text(const struct svg *svg, const char *class, enum svg_anchor anchor, double x, double y,
              const char *text);

/* Shapes that differ in form, not in colour alone. */
enum svg_mark {
    SVG_DOT,
    SVG_RING,
    SVG_DIAMOND,
    SVG_TRIANGLE,
    SVG_TRIANGLE_DOWN,
    SVG_SQUARE,
    SVG_CROSS
};
/* `hint` is shown where a pointer rests; may be NULL. */
void svg_mark(const struct svg *svg, enum svg_mark mark, const char *class, double x, double y,
              double radius, const char *hint);

/* About the width of `text` in letters of `size`; rather too much than too little. */
double svg_text_width(const char *text, double size);
/* Cuts `text` to `width` with an ellipsis. Returns `out`. */
char *svg_text_fit(const char *text, double width, double size, char *out, size_t out_size);

/* ---- scales ---- */

enum { SVG_TICKS_MAX = 24 };
struct svg_scale {
    bool log;
    double low, high; /* values; above 0 where log */
    double from, to;  /* pixels */
};
double svg_at(const struct svg_scale *scale, double value); /* pixel; not cut to the range */
/* Widens low and high to round numbers; a range of nothing becomes one of something. */
void svg_scale_round(struct svg_scale *scale, int about);

struct svg_ticks {
    double values[SVG_TICKS_MAX];
    size_t count;
    double step; /* between two; 0 where log */
};
/* About so many, within low and high: 1, 2 or 5 times a power of ten, powers where log. */
void svg_ticks(const struct svg_scale *scale, int about, struct svg_ticks *out);

/* What a tick says: FIGURE_SIZE bytes. */
typedef void svg_tick_text(double value, double step, char *text);
void svg_tick_number(double value, double step, char *text);
void svg_tick_time(double ns, double step, char *text);
void svg_tick_percent(double value, double step, char *text); /* of a fraction */

/* Lines across the plot and numbers left of it (x1 < x2) or below it. `title`, with the unit,
 * stands above the numbers or at the right end. */
void svg_axis_y(const struct svg *svg, const struct svg_scale *scale, double x1, double x2,
                int about, svg_tick_text *text, const char *title);
void svg_axis_x(const struct svg *svg, const struct svg_scale *scale, double y1, double y2,
                int about, svg_tick_text *text, const char *title);

/* ---- labels beside points ---- */

enum { SVG_BOXES_MAX = 384, SVG_LINES_MAX = 256 };
struct svg_labels {
    double left, top, right, bottom; /* of the area they must stay in */
    double boxes[SVG_BOXES_MAX][4];  /* taken: left, top, right, bottom */
    size_t count;
    double lines[SVG_LINES_MAX][4]; /* not to be written over: x1, y1, x2, y2 */
    size_t n_lines, ignored;        /* `ignored`: the line that a label belongs to; else n_lines */
};
void svg_labels_init(struct svg_labels *labels, double left, double top, double right,
                     double bottom);
/* What lies there is not written over. */
void svg_labels_block(struct svg_labels *labels, double left, double top, double right,
                      double bottom);
void svg_labels_line(struct svg_labels *labels, double x1, double y1, double x2, double y2);
bool svg_labels_free(const struct svg_labels *labels, double left, double top, double right,
                     double bottom);
/* Writes `text` beside, above or below the point, where there is room; false when there is none. */
bool svg_label(const struct svg *svg, struct svg_labels *labels, const char *class, double x,
               double y, double radius, const char *text);

#endif
