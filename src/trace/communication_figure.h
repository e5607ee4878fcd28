/* Exposed communication (communication.h) as the one figure that is printed, kept in a run's
 * payload and read back: of one rank, of a step or a token. */
#ifndef TRACE_COMMUNICATION_FIGURE_H
#define TRACE_COMMUNICATION_FIGURE_H

#include <jansson.h>

#include "trace/communication.h"

struct communication_figure {
    int ranks;
    double collectives; /* a step, also below */
    double window_ns;   /* the step */
    double total_ns, exposed_ns;
    double waiting_ns; /* of exposed; NaN: not told */
    double worth;      /* how many GPUs' work all ranks do: their time that is not exposed */
};

/* Of the rank on `device`; `each`: so many steps (or tokens) the times are of. False where the
 * device is no rank, or the only one of a program that does not share its work. */
bool communication_figure_of(const struct trace_communication *c, uint16_t device, double each,
                             struct communication_figure *out);

/* {"ranks", "collectives", "window_ns", "total_ns", "exposed_ns", "exposed_share", "waiting_ns",
 * "moving_ns", "worth_gpus", "each": [{"device", "collectives", "total_ns", "exposed_ns",
 * "waiting_ns"}]}, null for what is not told; JSON null where communication_figure_of says false.
 * NULL without memory. */
json_t *communication_json(const struct trace_communication *c, uint16_t device, double each);
/* False where it is none. */
bool communication_figure_read(const json_t *json, struct communication_figure *out);

/* What travels, of what is exposed; all of it where waiting is not told. */
double communication_moving_ns(const struct communication_figure *f);

#endif
