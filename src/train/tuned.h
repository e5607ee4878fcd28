/* Which calls of a training step are served by what tuning found, instead of the usual kernel. */
#ifndef TRAIN_TUNED_H
#define TRAIN_TUNED_H

#include "ops/plan.h"

struct trainer;

enum { TRAIN_TUNED_MAX = 64 };

/* Calls of one op that are served alike. */
struct train_tuned_op {
    const struct tuning_entry *entry; /* of one of them; the record's */
    int64_t calls;
};

struct train_tuned {
    const struct chooser *chooser; /* set before the first call is seen */
    struct train_tuned_op ops[TRAIN_TUNED_MAX];
    int count;
    int64_t calls, tuned; /* all that were seen; of them those that are served otherwise */
};

/* For trainer_params.on_choice, with a struct train_tuned as `arg`. Composites count beside what
 * they consist of. */
void train_tuned_see(void *arg, const struct op *op, const void *args, int chosen);
/* Behind trainer_create: nothing is tuned where the trainer has left its record out. */
void train_tuned_settle(struct train_tuned *tuned, const struct trainer *trainer);
/* Whether a step of a plan that `chooser` made is one of those calls. */
bool train_tuned_step(const struct chooser *chooser, const struct plan_step *step);

#endif
