/* Runs of ops that several ranks make together (op.collective). */
#ifndef CHECK_VERIFY_RANKS_H
#define CHECK_VERIFY_RANKS_H

#include "ops/plan.h"

struct arena;
struct gpu;

enum { VERIFY_RANKS_MAX = 16 };

/* Runs the op as `chooser` has it: this thread is one of the ranks that the problem of `args` has,
 * which one follows from the problem; the others are threads, whose inputs follow from their
 * ranks, so that a second run gets the same. On a GPU each of them has its own. `numerics`: of
 * what ran; may be NULL. */
enum sol_status verify_ranks(const struct op *op, const void *args, const struct chooser *chooser,
                             const struct op_context *context, enum op_numerics *numerics);
/* Whether there are GPUs enough, where `chooser` has one. */
bool verify_ranks_fit(const struct op *op, const void *args, const struct chooser *chooser,
                      char why[OP_REASON_MAX]);

/* Keeps the GPUs that runs of the op may need started between the runs: starting one takes half a
 * second. */
void verify_ranks_hold(const struct op *op, const struct chooser *chooser,
                       struct gpu *held[VERIFY_RANKS_MAX]);
void verify_ranks_release(struct gpu *held[VERIFY_RANKS_MAX]);

/* Memory for inputs: on a GPU what it can reach and the host too. */
enum sol_status verify_arena(struct gpu *gpu, struct arena **out);

#endif
