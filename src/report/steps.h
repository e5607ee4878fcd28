/* The time line of a step, from the trace that a run kept. Private to the room. */
#ifndef REPORT_STEPS_H
#define REPORT_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/html.h"
#include "report/run_data.h"
#include "trace/communication.h"
#include "trace/timeline.h"

/* What a piece of a lane is, which its colour says. */
enum step_class {
    STEP_MATMUL,
    STEP_ATTENTION,
    STEP_MOE,
    STEP_ELEMENTWISE,   /* with norm, rope and the like */
    STEP_COPY,          /* copies and sets */
    STEP_OTHER,         /* kernels of other kinds, and whole graphs */
    STEP_GAP,           /* the device does nothing */
    STEP_CALL,          /* of the program into the driver */
    STEP_WAIT,          /* and one that waits for the device */
    STEP_COMMUNICATION, /* collectives of ranks */
    STEP_LATE,          /* their first part, in which a slower rank is waited for */
    STEP_CLASSES
};

struct step_piece {
    double begin, end; /* ns since the start of the step */
    uint32_t name;     /* string of the time line; TRACE_NONE: a gap, or a wait for a rank */
    enum step_class class;
};

/* A stream of the device, its gaps or a thread of the host. */
struct step_lane {
    char name[32];
    struct step_piece *pieces; /* in order of their begin */
    size_t count, room;
    uint64_t key;    /* private: process, context and stream, or thread */
    uint16_t device; /* private */
    double busy;     /* ns, overlaps count twice */
};

enum { STEP_RANKS_MAX = 8, STEP_LANES_MAX = 2 + 3 * STEP_RANKS_MAX };
struct step {
    const struct timeline *t;
    double span_ns;
    struct step_lane lanes[STEP_LANES_MAX]; /* host first; of each rank its streams, gaps last */
    size_t n_lanes;
    size_t works, other_streams, other_threads; /* others: without a lane, not shown */
    size_t ranks, other_ranks;                  /* with lanes, and without; 0: one device */
    struct {
        size_t count;
        double ns;
    } sums[STEP_CLASSES]; /* of all lanes, those without one too */
};

/* The events of [begin, end) on `device` and of the host; where several ranks share the work
 * (`ranks`, may be NULL) on each of theirs. Sums and works are those of `device`. Freed with
 * step_free, also after an error. */
enum sol_status step_make(const struct timeline *t, const struct trace_communication *ranks,
                          uint16_t device, int64_t begin, int64_t end, struct step *out);
void step_free(struct step *step);

void chart_step(struct html *html, double width, const void *data); /* struct step */
const char *step_class_name(enum step_class class);                 /* "matmul" */

/* The typical step of what a run kept; of a trace without steps all of it. */
struct kept_step;
/* *out is NULL for a run that kept no trace with work of a device, and where `store` is NULL. A
 * trace that cannot be read is no error: the section says so. SOL_E_MEMORY. */
enum sol_status kept_step_load(const struct store *store, const struct store_record *record,
                               struct kept_step **out);
void kept_step_destroy(struct kept_step *kept);                      /* takes NULL */
void steps_section(struct html *html, const struct kept_step *kept); /* takes NULL: nothing */

#endif
