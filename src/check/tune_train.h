/* Searches for the fastest variant and choice of each problem of a training step: of a micro-step
 * (forward, backward, forms of the loss) and of an update, on a trainer's own buffers. `sol train
 * tune` keeps the result in the record that `sol tune` writes (ops/tuning_file.h). */
#ifndef CHECK_TUNE_TRAIN_H
#define CHECK_TUNE_TRAIN_H

#include "check/tune_search.h"
#include "train/trainer.h"

struct tune_train_params {
    struct trainer_params trainer; /* of one rank; its chooser's forces stay, and what they name is
                                      not searched; its record does not count */
    bool update;                   /* the optimizer's step too */
    double seconds;                /* for all; what is not reached stays as it was */
    bool list_only, again;         /* as in struct tune_search */
};

/* Adds what it finds to `found`, as tune_run does. A kernel that needs more scratch than fits
 * beside the trainer is not taken. SOL_E_MEMORY where the trainer does not fit. */
enum sol_status tune_train(const struct tune_train_params *params, struct tuning *found,
                           struct tune_report *report);

#endif
