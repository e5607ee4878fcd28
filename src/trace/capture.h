/* Runs a command with the tracing library in it. */
#ifndef TRACE_CAPTURE_H
#define TRACE_CAPTURE_H

#include <stdbool.h>

#include "sol/status.h"
#include "trace/timeline.h"

struct capture_options {
    const char *library; /* the injected library; absolute path */
    const char *folder;  /* where trace files go; absolute path, exists */
    enum trace_level level;
};

struct capture_result {
    int exit_status; /* of the command; 128 + signal when a signal ended it; 126 or 127, with an
                        error, when it could not be started or was not found */
    int signal;      /* that ended it; 0: none */
};

/* Waits for `command` (ends with NULL; found by PATH), which shares the standard streams of this
 * process. An interrupt from the terminal is the command's business; SIGTERM and SIGHUP are passed
 * on to it, and should sol be killed, the command is too. SOL_E_ARGUMENT when the command cannot be
 * started. */
enum sol_status capture_run(char *const *command, const struct capture_options *options,
                            struct capture_result *result);

#endif
