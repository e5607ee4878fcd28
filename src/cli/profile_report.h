/* Prints what a profile shows. */
#ifndef CLI_PROFILE_REPORT_H
#define CLI_PROFILE_REPORT_H

#include <stdio.h>

#include "base/next.h"
#include "sol/status.h"
#include "trace/communication_figure.h"
#include "trace/expected.h"
#include "trace/inflation.h"
#include "trace/summary.h"
#include "trace/timeline.h"
#include "trace/window.h"

enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSON };

struct profile_report {
    const struct timeline *timeline;
    const struct trace_summary *summary;
    const struct trace_window_set *windows;
    const struct trace_communication *ranks;
    const struct trace_launches *launches; /* beside the program's own plans, if it has any */
    int exit_status;                       /* of the command */
    int signal;
    struct trace_inflation inflation;
    const char *run;         /* id under which it is kept, or NULL */
    const struct next *next; /* what advice says to do, or NULL */
};

/* CSV holds the kernel table alone. */
enum sol_status profile_report_print(const struct profile_report *report, enum report_format format,
                                     FILE *to);

#endif
