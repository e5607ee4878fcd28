/* The charts of a report, one file each. All are of type svg_draw: `data` is what is named beside
 * them, and they are called only where it holds something to show. */
#ifndef REPORT_CHARTS_H
#define REPORT_CHARTS_H

#include "report/run_data.h"
#include "report/svg.h"

/* Repetitions of one metric in the order of time: struct run_metric with 2 counted samples or more.
 */
void chart_strip(struct html *html, double width, const void *data);

/* Arithmetic intensity against speed, both logarithmic, below the measured ceilings. */
struct roofline {
    const struct run_group *group;
    const struct run_ceiling *ceilings;
    size_t n_ceilings;
};
bool chart_roofline_shows(const struct run_group *group,
                          size_t kernel); /* has flops, bytes, time */
void chart_roofline(struct html *html, double width, const void *data);

/* From a sum that is the limit, step by step, to what was measured. */
enum { WATERFALL_STEPS_MAX = 16 };
struct waterfall_step {
    char name[96];
    double ns;  /* added; of a total: the total */
    bool total; /* starts at 0 */
};
struct waterfall {
    const char *title, *per; /* "a token"; NULL: sums */
    struct waterfall_step steps[WATERFALL_STEPS_MAX];
    size_t n_steps;
};
bool waterfall_make(const struct run_group *group, struct waterfall *out); /* false: no times */
void chart_waterfall(struct html *html, double width, const void *data);

/* A metric over runs, in their order. */
struct history_point {
    const char *label, *day;  /* below the axis */
    double median, low, high; /* as shown; low and high may be NaN */
    const char *verdict;      /* of the attempt that the run belongs to; may be NULL */
    bool valid;               /* the run is */
    const char *hint;
};
struct history {
    const char *metric, *unit;
    const struct history_point *points;
    size_t n_points;
    double limit; /* of the newest run; NaN unknown */
    bool higher_is_better;
};
void chart_history(struct html *html, double width, const void *data);
/* The mark of a verdict ("faster"; NULL: none) and its class. */
enum svg_mark verdict_mark(const char *verdict, const char **class);

/* Lines over the updates of training runs. `class` is one of style.css: "c0 l0" has a colour, and
 * dashes of its own. Numbers that are none break a line. */
struct curve_point {
    double x, y;
};
struct curve {
    const char *name, *class;
    const struct curve_point *points; /* by rising x */
    size_t count;
    bool marks; /* few of them: each is marked */
};
struct curves {
    const char *title, *unit, *over; /* over: what x counts */
    const char *at;                  /* between a value and its x; NULL: "after" */
    const struct curve *items;
    size_t count;
    int digits;     /* behind the point, of the number at a line's end */
    bool from_zero; /* the axis begins there */
};
void chart_curves(struct html *html, double width, const void *data);

/* Predicted against realised gains. */
void chart_ledger(struct html *html, double width, const void *data); /* struct store_ledger */

/* Changes with their intervals, from the payload of a comparison. */
struct change {
    const char *name, *verdict;
    double change, low, high; /* fractions; low and high may be NaN */
    bool deciding;
};
struct changes {
    const struct change *items;
    size_t count;
    double delta; /* smallest effect that counts; NaN unknown */
};
void chart_changes(struct html *html, double width, const void *data);

#endif
