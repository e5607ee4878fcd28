/* A part of a time line as a trace file (trace/trace_file.h), to be kept where the whole is not. */
#ifndef TRACE_TRACE_WRITE_H
#define TRACE_TRACE_WRITE_H

#include <stddef.h>

#include "sol/status.h"
#include "trace/timeline.h"
#include "trace/window.h"

/* Steps around the typical one: 24, or as many as fit into `most` bytes, at least 3, with the calls
 * and waits of the host that belong to them and the ranges that mark them; of the process that did
 * most in them. *data is NULL where there is no step, or 3 do not fit; freed by the caller. */
enum sol_status trace_write_steps(const struct timeline *t, const struct trace_window_set *windows,
                                  size_t most, char **data, size_t *size);

#endif
