/* One figure of repeated measurements: its estimate, the interval that belongs to it, and how much
 * of a limit it reaches. Whatever shows a figure, shows this one.
 *
 * The unit is the start of a process: repetitions within one share its memory layout, its clocks
 * and its neighbours, so they are less different than starts are. Of several starts the estimate is
 * the median of the starts' medians. Of one it is the median of the repetitions, and its interval
 * says what the same process would measure again, no more. */
#ifndef STATS_FIGURE_H
#define STATS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum {
    FIGURE_LEAST = 6,       /* values without which there is no interval of 95 % */
    FIGURE_WIDE_PERCENT = 3 /* an interval whose half is more than this is wide */
};

struct figure {
    size_t count, starts;  /* repetitions, and the process starts that they came from */
    double value;          /* NaN with count 0 */
    double low, high;      /* 95 %: order statistics around the median, no normal distribution
                            * assumed; NaN with fewer than FIGURE_LEAST starts, or repetitions of
                            * one start */
    double half;           /* (high - low) / 2 over value; NaN likewise */
    double least, most;    /* of all repetitions; NaN with none */
    double sd;             /* of the repetitions, over their mean; NaN with one */
    double limit, reached; /* what is possible, same unit, and the part of it; NaN unknown */
};

/* A value of start number `start`, above 0 where parts of it are to mean anything. */
struct figure_value {
    double value;
    int start;
};

/* The values of one start may stand anywhere; their order changes. `count` may be 0. */
enum sol_status figure_of(struct figure_value *values, size_t count, struct figure *out);
/* All of one start. */
enum sol_status figure_of_one(const double *values, size_t count, struct figure *out);

/* The median of each start, in the order of their numbers; `medians` has room for `count`. */
enum sol_status figure_medians(struct figure_value *values, size_t count, double *medians,
                               size_t *starts);

/* `limit` not above 0, or NaN: unknown. `rate`: more is better. */
void figure_set_limit(struct figure *figure, double limit, bool rate);

/* A figure in ns per token as tokens per second; the interval turns around. */
struct figure figure_per_second(const struct figure *ns);

/* In another unit. */
struct figure figure_scaled(const struct figure *figure, double factor);

/* A fraction as percent with two digits that count, "0.52", "8.4", "150"; "-" for NaN. Returns
 * `text`. */
char *figure_percent_text(double fraction, char text[24]);

/* With an interval whose half is beyond FIGURE_WIDE_PERCENT. */
bool figure_is_wide(const struct figure *figure);

#endif
