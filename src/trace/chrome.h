/* A time line as JSON for chrome://tracing and ui.perfetto.dev. */
#ifndef TRACE_CHROME_H
#define TRACE_CHROME_H

#include <stdio.h>

#include "sol/status.h"
#include "trace/timeline.h"

/* Written event by event, so that size is no matter. Devices and programs are processes of the
 * trace, streams and threads their tracks; ranks (communication.h) come first, in their order, and
 * their collectives say how long they waited for a slower one. Times are us since the first event;
 * an arrow leads from each launch to what it launched. SOL_E_MEMORY; SOL_E_IO when `to` does not
 * take it; `name` is for that message.
 */
enum sol_status chrome_write(const struct timeline *t, FILE *to, const char *name);

#endif
