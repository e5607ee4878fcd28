/* Arguments of the ops that all ranks of a communicator run together (op.collective). */
#ifndef OPS_COLLECTIVE_ARGS_H
#define OPS_COLLECTIVE_ARGS_H

#include "ops/matrix.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* all_reduce: x = the sum of all ranks' x, the same bits for each; x is [m][n].
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
};

/* all_reduce_add: x += the sum of all ranks' part; part = 0, for who adds to it next. The sum is
 * that of all_reduce, and the same bits for each rank; x may be each rank's own. A variant that
 * rounds activations rounds parts on their way, and may round their sum, but never x. */
struct all_reduce_add_args {
    int64_t ranks;
    int64_t m, n;
    struct matrix part, x; /* [m][n], in place */
};

/* send_recv: x of rank `to` = x of rank `from`. Only these two pass something; for others it is
 * nothing to do. */
struct send_recv_args {
    int64_t ranks;
    int64_t from, to;
    int64_t m, n;
    struct matrix x; /* [m][n], in place */
};

#pragma GCC diagnostic pop

#endif
