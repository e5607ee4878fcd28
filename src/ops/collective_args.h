/* Arguments of the ops that all ranks of a communicator run together (op.collective). */
#ifndef OPS_COLLECTIVE_ARGS_H
#define OPS_COLLECTIVE_ARGS_H

#include "ops/matrix.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* all_reduce: x = the sum of all ranks' x, the same bits for each; x is [m][n]. Of the mean: that
 * sum times 1 / ranks, rounded once more.
 * reduce_scatter: block r of rank r's x = the sum of all ranks' block r; the other blocks stay as
 * they are. all_gather: block r of x = rank r's block r. In both x is [ranks * m][n], and block r
 * has m rows.
 *
 * A sum is ((x0 + x1) + (x2 + x3)) + ...: of neighbours, then of neighbouring sums, so that a power
 * of two of ranks adds up as one that did it all in such a tree. */
struct collective_args {
    int64_t ranks; /* the communicator's size */
    int64_t m, n;
    struct matrix x; /* in place */
    bool mean;       /* of all_reduce */
    uint8_t pad[7];
};

#pragma GCC diagnostic pop

#endif
