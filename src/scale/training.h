/* Ways to train on many GPUs: by the plans of a rank's micro-batches and update (trainer_outline),
 * from the step that one GPU was measured with. */
#ifndef SCALE_TRAINING_H
#define SCALE_TRAINING_H

#include "scale/model.h"
#include "train/trainer.h"

struct scale_training {
    struct trainer_params params; /* with a recipe, sequences, and a GPU that may be described */
    struct work_limits limits;
    int64_t micro_batches; /* of the step that was measured */
    int64_t tokens;        /* of an update, of all GPUs; 0: each has what was measured */
};

/* Of rank 0 of `ranks`, in micro-batches of `sequences`; memory of both is all of it. */
enum sol_status scale_training_work(const struct scale_training *t, int64_t ranks,
                                    int64_t sequences, struct work *micro, struct work *update);

/* A step's parts on one GPU. */
struct scale_trained {
    double step_ns;
    double update_ns; /* 0: the step is split by the least that both could take */
};

/* As scale_model_ways. GPUs that an update's tokens do not divide among have no ways. */
enum sol_status scale_training_ways(const struct scale_training *t, const struct network *network,
                                    const struct scale_trained *measured, int64_t gpus,
                                    size_t memory, struct scale_way ways[SCALE_WAYS_MAX], int *n);

#endif
