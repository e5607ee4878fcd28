/* What a step would take if something were different: kernels that take another share of their
 * time, kernels fused or run beside each other, gaps gone. Answered by a replay of the schedule
 * (trace/replay.h), not by a sum: a gap that the host caused stays when the kernel ahead of it gets
 * shorter.
 *
 *   NAME=FACTOR       kernels of that name take FACTOR of their time
 *   fuse A B          B right behind A becomes one kernel with it, as long as the longer of both;
 *                     not shorter than what the device must read for both, where that is known
 *   overlap A B       B starts together with the A before it; neither slows the other down, but
 *                     for the same limit
 *   gap=FACTOR        of all idle time; gap.host, gap.launch: of that behind late launches, of the
 *                     rest
 *
 * NAME is a kernel's role (trace/role.h), its op, variant or category, else an extended regular
 * expression that is searched in kernels' names. */
#ifndef ADVISE_WHATIF_H
#define ADVISE_WHATIF_H

#include <stdio.h>

#include <jansson.h>

#include "store/store.h"
#include "trace/timeline.h"
#include "trace/window.h"

enum { WHATIF_CHANGES_MAX = 64 };

struct whatif_result {
    const char *change; /* "all together": all of them at once */
    double kernels;     /* of a step (or token) that it touches; NAN for gaps */
    double kernels_ns;  /* their time */
    double step_ns;     /* the new one */
};

/* One kind of step: that of a trace, or a test of a stored model's profile. */
struct whatif_steps {
    char *metric;   /* "step", "tg16 @ d1024" */
    bool per_token; /* times below are of a token, not of a step */
    size_t count;   /* steps that were replayed; 0: kernels in their order, without times */
    double measured_ns;
    struct whatif_result results[WHATIF_CHANGES_MAX + 1];
    size_t n_results;
};

struct whatif_report {
    struct whatif_steps *steps;
    size_t n_steps;
    bool gpu; /* else a processor's */
};

/* SOL_E_ARGUMENT, with what there is, for a change that cannot be read or touches nothing. Freed
 * with whatif_report_free, also after an error. */
enum sol_status whatif_of_timeline(const struct timeline *t, const struct trace_window_set *windows,
                                   const char *const *changes, size_t n, struct whatif_report *out);
/* The kernels of each test of a stored run; `phase` NULL: all of them. */
enum sol_status whatif_of_record(const struct store_record *record, const char *phase,
                                 const char *const *changes, size_t n, struct whatif_report *out);
void whatif_report_free(struct whatif_report *report); /* takes a zeroed one */

/* `run` is its id, or NULL. */
enum sol_status whatif_print(const struct whatif_report *report, const char *run, FILE *to);
/* {"schema": "sol.whatif.1", "run", "steps": [{"metric", "per", "steps", "measured_ns", "changes":
 * [{"change", "kernels", "kernels_ns", "step_ns", "saved_percent"}]}], "error": {...}}; a new
 * reference, NULL without memory. */
json_t *whatif_json(const struct whatif_report *report, const char *run);

/* How far replays were off for changes that were really made (whatif_error.json, made by
 * bench/whatif.sh): of the measured step, as parts of one. */
struct whatif_error {
    size_t count; /* 0: none was tried on such a device, all below is NAN then */
    double median, worst;
    char device[96]; /* "NVIDIA H200"; the last one's */
};
enum sol_status whatif_error_known(bool gpu, struct whatif_error *out);
/* The same of any text, for tests. SOL_E_FORMAT where it is no such record. */
enum sol_status whatif_error_parse(const char *text, size_t length, bool gpu,
                                   struct whatif_error *out);

#endif
