/* The figure of a stored metric, as every reader of a run shows it. */
#ifndef STATS_METRIC_H
#define STATS_METRIC_H

#include <jansson.h>

#include "stats/figure.h"
#include "store/store.h"

struct metric_figure {
    bool speed;           /* in ns per token, shown as tokens per second */
    const char *unit;     /* of what is shown: "t/s", "ms" */
    double factor;        /* from the stored value to the shown one, where it is no speed */
    struct figure stored; /* in the metric's unit */
    struct figure shown;  /* in `unit` */
    size_t warmups, outliers, repeated;
};

/* `metric` must live longer. SOL_E_MEMORY. */
enum sol_status metric_figure_of(const struct store_metric *metric, struct metric_figure *out);
/* A stored value as shown. */
double metric_shown(const struct metric_figure *figure, double value);

/* {"value", "unit", "ci95", "half_width_percent", "limit", "limit_percent", "repetitions",
 * "starts"}, as shown; null where unknown. A new reference; NULL without memory. */
json_t *metric_figure_json(const struct metric_figure *figure);

/* The stored value of the figure alone; NaN where there is none. */
double metric_figure_value(const struct store_metric *metric);
/* The tokens that a row's calls are of; 1 where that is not known. */
double metric_row_tokens(const struct store_kernel *row);

/* store_record_json with each metric's "figure". */
json_t *metric_record_json(const struct store_record *record);

#endif
