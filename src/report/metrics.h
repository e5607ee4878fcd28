/* Figures of a run's report. Private to the room. */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H

#include "report/html.h"
#include "report/run_data.h"

/* Cards and the table: a row a test, with what was measured beside it ("tg32: peak memory") in
 * columns of that row. */
void metrics_figures(struct html *html, const struct run_data *data);
bool metrics_has_spread(const struct run_data *data); /* a metric with two repetitions or more */
void metrics_spread(struct html *html, const struct run_data *data);

#endif
