/* Hardware counters of kernels, whoever read them: one record for each kernel name. Unknown values
 * are NaN; every rule that needs one checks it. */
#ifndef ADVISE_COUNTERS_H
#define ADVISE_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

/* Why a warp did not issue, as the hardware names the reasons. */
enum stall_reason {
    STALL_LONG_SCOREBOARD,  /* a load from memory beyond L1 */
    STALL_SHORT_SCOREBOARD, /* shared memory, special functions */
    STALL_BARRIER,
    STALL_MEMBAR,
    STALL_MATH_PIPE,
    STALL_MIO,
    STALL_LG,  /* queue of local and global memory */
    STALL_TEX, /* queue of the texture unit */
    STALL_WAIT,
    STALL_NO_INSTRUCTION,
    STALL_DISPATCH,
    STALL_DRAIN,
    STALL_IMC, /* constants */
    STALL_BRANCH,
    STALL_SLEEPING,
    STALL_MISC,
    STALL_NOT_SELECTED, /* ready, another warp went first */
    STALL_SELECTED,     /* it did issue */
    STALL_COUNT
};
/* As in the metric's name: "long_scoreboard"; "?" out of range. */
const char *stall_name(enum stall_reason reason);
const char *stall_meaning(enum stall_reason reason); /* "waiting for memory beyond L1" */

/* Means over `calls`, each call weighted by its duration. */
struct kernel_counters {
    char *name; /* owned by the list */
    int64_t calls;
    double duration_ns; /* of one call */
    double sm, memory;  /* speed of light: % of the peak that the busiest unit reached */
    double l1, l2, dram;
    double dram_bytes, flops;          /* of one call */
    double occupancy, occupancy_limit; /* %, achieved and theoretical */
    double issue_active;               /* instructions per cycle and scheduler, 0..1 */
    double stalls[STALL_COUNT];        /* cycles between two instructions of a warp, by reason */
    double bytes_per_sector;           /* of global loads and stores that were used; 32 is all */
    double sectors, local_sectors;     /* of one call */
    double wavefronts, conflicts;      /* of shared memory, one call; conflicts are among both */
    double waves;                      /* of thread blocks */
    double tensor;                     /* % of the tensor cores' peak */
};

struct counters {
    struct kernel_counters *kernels;
    size_t count;
};

void kernel_counters_init(struct kernel_counters *k); /* everything unknown, one call */

/* Adds a call (or several) of k->name, which is copied. Values that only one side knows are kept.
 */
enum sol_status counters_add(struct counters *list, const struct kernel_counters *k);
const struct kernel_counters *counters_find(const struct counters *list, const char *name);
void counters_free(struct counters *list); /* takes a zeroed one */

#endif
