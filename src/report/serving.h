/* Load on a server: latency over load, goodput, how gaps between chunks are distributed. Private to
 * the room. */
#ifndef REPORT_SERVING_H
#define REPORT_SERVING_H

#include "report/html.h"
#include "report/run_data.h"

/* The run is of sol bench --serve, and has levels. */
bool serving_known(const struct run_data *data);
/* The sections "Load" and "Over the load"; nothing of a run that has none. */
enum sol_status serving_sections(struct html *html, const struct run_data *data);

#endif
