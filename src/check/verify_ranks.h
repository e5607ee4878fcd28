/* Runs of ops that several ranks make together (op.collective). */
#ifndef CHECK_VERIFY_RANKS_H
#define CHECK_VERIFY_RANKS_H

#include "ops/plan.h"

/* Runs the op as `chooser` has it: this thread is one of the ranks that the problem of `args` has,
 * which one follows from the problem; the others are threads, whose inputs follow from their
 * ranks, so that a second run gets the same. */
enum sol_status verify_ranks(const struct op *op, const void *args, const struct chooser *chooser,
                             const struct op_context *context);

#endif
