/* Runs a command to its end and reports what it printed and used. */
#ifndef LAB_COMPARE_PROCESS_H
#define LAB_COMPARE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { PROCESS_OUTPUT_MAX = 16 << 20 }; /* of each stream; more is an error */

struct process_result {
    char *output, *errors; /* NUL-terminated, owned */
    size_t output_size, errors_size;
    int exit_status; /* 128 + signal when one ended it */
    bool timed_out;  /* ended by us */
    bool not_found;  /* there is no such command, or it cannot be executed */
    double wall_s, user_s, system_s;
};

/* `command` is split at blanks and started directly when it is plain words, else it is given to
 * /bin/sh. It runs in a process group of its own without standard input; when its first process
 * ends, the others of the group are killed. SOL_E_INTERRUPTED after Ctrl-C (the group is ended
 * first), SOL_E_IO when no process can be made. A command that fails is SOL_OK with its exit
 * status. Not for several threads at once. */
enum sol_status process_run(const char *command, double timeout_s, struct process_result *out);
void process_result_free(struct process_result *result); /* takes a zeroed one */

#endif
