/* Where the difference of two runs of the same test comes from, in a sum that closes:
 *
 *     delta = kernels + gaps + clock + residual        (all in ns per token)
 *
 * A kernel's part is what it would have taken longer at the old clock; what the change of the clock
 * did to all kernels is a part of its own (it assumes that their time goes with 1 / clock: for
 * kernels bound by memory that is too much, and then the kernels' parts are too small by as much).
 * Gaps are time of the window in which nothing ran. The residual is what no figure explains; a
 * large one says that the kernels were not timed in the runs that were compared. */
#ifndef COMPARE_BLAME_H
#define COMPARE_BLAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct blame_kernel {
    const char *name, *variant; /* borrowed; variant may be NULL */
    const double *ns;           /* [n_runs] ns per token, borrowed */
};

/* One side: `n_runs` >= 1 runs, in which each kernel and the whole were timed. */
struct blame_side {
    const double *total_ns; /* [n_runs] */
    size_t n_runs;
    const struct blame_kernel *kernels;
    size_t n_kernels;
    double gaps_ns;   /* NAN: not known */
    double clock_mhz; /* 0: not known */
};

struct blame_part {
    char *name;                      /* of the kernel's op, owned */
    char *old_variant, *new_variant; /* owned; NULL: it did not run there */
    double old_ns, new_ns;           /* median; 0: it did not run there */
    double delta_ns;                 /* at the old clock */
    bool has_test;                   /* of paired runs */
    double p; /* of the signed ranks of the differences; of this kernel alone */
};

struct blame {
    double old_ns, new_ns, delta_ns; /* of the whole */
    struct blame_part *parts;        /* [n_parts] owned, the largest difference first */
    size_t n_parts;
    bool has_gaps, has_clock;
    double kernels_ns, gaps_ns, clock_ns, residual_ns;
};

/* `paired`: run i of one side belongs to run i of the other (the same n_runs); differences are then
 * Hodges-Lehmann shifts of the pairs' differences, else differences of medians. */
enum sol_status blame_between(const struct blame_side *old_side, const struct blame_side *new_side,
                              bool paired, struct blame *out);
void blame_free(struct blame *blame); /* takes a zeroed one */

/* The kernel that explains most of a difference that is there, among those that became slower (or
 * faster): the largest, or one of at least half its size when only that one is beyond chance
 * (p <= 0.05, each alone). The whole's own difference is not asked: it is noisier than the parts.
 * NULL when none went that way, or when the residual is larger than its part: then the kernels were
 * not timed in what was compared. */
const struct blame_part *blame_culprit(const struct blame *blame, bool slower);

#endif
