/* The kernels that take most of the time, each with what its counters say in the order in which one
 * would ask: how near the limits it is, how many warps there are, what they wait for, and so what.
 */
#ifndef ADVISE_LARGEST_H
#define ADVISE_LARGEST_H

#include <jansson.h>
#include <stdio.h>

#include "advise/counters.h"

enum { LARGEST_KERNELS = 5 };

/* Prints a few lines for each; nothing without counters. */
void largest_print(const struct counters *counters, FILE *to);
/* [{"kernel", "share", "calls", "ns", "bound", "compute_percent", "memory_percent",
 * "flop_per_byte", "occupancy_percent", "occupancy_possible_percent", "stalls": [{"reason",
 * "meaning", "share"}], "so"}]; null where a counter is missing. NULL without memory. */
json_t *largest_json(const struct counters *counters);

#endif
