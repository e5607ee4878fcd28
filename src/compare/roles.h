/* Two engines side by side by what their kernels do (trace/role.h), however many kernels each needs
 * for it and whatever they are called. The parts of a side add up to its time: what could not be
 * placed is a part of its own, and so is the time in which nothing ran. */
#ifndef COMPARE_ROLES_H
#define COMPARE_ROLES_H

#include <stdio.h>

#include <jansson.h>

#include "base/table.h"
#include "store/store.h"
#include "trace/role.h"
#include "trace/timeline.h"
#include "trace/window.h"

enum { ROLES_IDLE = ROLE_COUNT, ROLES_PARTS };

struct roles_kernel {
    char *name;
    enum kernel_role role;
    double ns, calls; /* of a token */
};

struct roles_side {
    char *name;      /* as it was asked for */
    char *metric;    /* "step", "tg16 @ d1024" */
    double whole_ns; /* of a token */
    double ns[ROLES_PARTS], calls[ROLES_PARTS];
    struct roles_kernel *kernels; /* longest first */
    size_t n_kernels;
};

/* The typical step of a time line; `tokens` of it. What runs at the same time counts for the work
 * that began first. SOL_E_ARGUMENT where no step repeats. */
enum sol_status roles_of_timeline(const struct timeline *t, const struct trace_window_set *windows,
                                  double tokens, const char *name, struct roles_side *out);
/* The kernels of one test of a stored run: `metric`, or NULL for the first of generation, else the
 * first with kernels. Their sum may be more than the test's time where they ran at the same time
 * there and were timed apart; the idle time is below 0 then. */
enum sol_status roles_of_record(const struct store_record *record, const char *metric,
                                const char *name, struct roles_side *out);
void roles_side_free(struct roles_side *side); /* takes a zeroed one */

/* role, A, B, difference, share of the difference. */
enum sol_status roles_print(const struct roles_side sides[2], enum table_format format, FILE *to);
/* {"schema": "sol.roles.1", "sides": [{"name", "metric", "ns_per_token"}], "roles": [{"role",
 * "old_ns", "new_ns", "delta_ns", "share_percent", "old_calls", "new_calls", "old_kernels":
 * [{"name", "ns", "calls"}], "new_kernels"}], "delta_ns_per_token"}; NULL without memory. */
json_t *roles_json(const struct roles_side sides[2]);

#endif
