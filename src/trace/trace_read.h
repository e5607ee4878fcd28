/* Reads trace files (trace/trace_file.h) into a time line. */
#ifndef TRACE_TRACE_READ_H
#define TRACE_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "sol/status.h"
#include "trace/timeline.h"

/* Whether a file begins as trace files do. */
bool trace_read_begins(const void *data, size_t size);

/* Adds what the file holds. A file that ends early is no error: what is whole is added, the rest
 * counted in lost. SOL_E_FORMAT when it is no trace file or of a version this program does not
 * know; nothing was added then. `name` is for messages. The data must be aligned to 8 bytes. */
enum sol_status trace_read_memory(struct timeline *t, const void *data, size_t size,
                                  const char *name);

enum sol_status trace_read_file(struct timeline *t, const char *path);

/* Every trace file of a folder, in the order of their names; then finishes the time line. A file
 * that is no trace becomes a note. SOL_E_FORMAT when there is none. */
enum sol_status trace_read_folder(struct timeline *t, const char *folder);

#endif
