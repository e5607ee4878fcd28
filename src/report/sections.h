/* Sections of a run's report beside its figures and kernels. Private to the room. */
#ifndef REPORT_SECTIONS_H
#define REPORT_SECTIONS_H

#include "report/html.h"
#include "report/run_data.h"

/* Of a comparison, from its payload: {"verdict", "reason", "old", "new", "delta_percent",
 * "metrics": [{"name", "change_percent", "ci95_percent": [low, high], "verdict", "role", "old",
 * "new", "unit"}], "next"}. */
bool sections_has_changes(const struct run_data *data);
void sections_changes(struct html *html, const struct run_data *data);

void sections_gaps(struct html *html, const struct run_data *data); /* of profiles; else nothing */
void sections_advice(struct html *html, const struct run_data *data);
void sections_environment(struct html *html, const struct run_data *data);
void sections_repeat(struct html *html, const struct run_data *data);

#endif
