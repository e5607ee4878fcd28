/* Drives another profiler where it is installed. */
#ifndef CLI_PROFILE_WITH_H
#define CLI_PROFILE_WITH_H

#include <stddef.h>

#include "sol/status.h"
#include "trace/timeline.h"

/* Runs `command` (ends with NULL) under `tool`, "nsys" or "ncu", or with sol's own library in it
 * ("cupti": counters without ncu, but not of kernels in CUDA graphs); NULL: ncu where it is
 * installed, else cupti. With its files in `folder`; `path`
 * gets the file to import. `counters`, for the last two: NULL or "quick" for what the rules read on
 * the first 200 launches, a group of kernels for the first 200 of those, "full" for everything on
 * every kernel. *exit_status: of the tool, which passes on the command's. SOL_E_UNSUPPORTED, with
 * how to get it, when the tool is not installed; SOL_E_ARGUMENT for another tool. */
enum sol_status profile_with(const char *tool, const char *counters, enum trace_level level,
                             char *const *command, const char *folder, char *path, size_t size,
                             int *exit_status);

#endif
