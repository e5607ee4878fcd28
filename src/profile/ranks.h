/* What ranks cost each other, as text. */
#ifndef PROFILE_RANKS_H
#define PROFILE_RANKS_H

#include <stdio.h>

#include "trace/communication_figure.h"

/* A sentence about the rank on `device` and a table of all; nothing where there are none. `each`:
 * steps (or tokens) that the times are of, `per`: "step". */
enum sol_status profile_ranks_print(const struct trace_communication *c, uint16_t device,
                                    double each, const char *per, FILE *to);

#endif
