/* Ways to run a model on many GPUs: what each costs by the plans of its ranks (infer/outline.h),
 * from the step that one GPU was measured with. */
#ifndef SCALE_MODEL_H
#define SCALE_MODEL_H

#include "infer/engine.h"
#include "scale/scale.h"

/* What a copy of the model does, with one of the first two or both. */
struct scale_task {
    int64_t sequences, depth; /* that generate together, and the tokens that each has */
    int64_t prompt; /* tokens: alone, in steps of `chunk`; of a step that generates, too */
    int64_t chunk;
};

enum { SCALE_WAYS_MAX = 32, SCALE_KEPT = 24 };

struct scale_model {
    const struct model *model;   /* opened for later; the caller's */
    struct engine_params engine; /* its chooser, with a GPU that may be described; cache */
    struct work_limits limits;
    struct scale_task task;
    /* private: accounts that were made */
    struct scale_kept {
        int64_t ranks, divide;
        struct work work;
    } * kept;
    int n_kept;
};

void scale_model_free(struct scale_model *m); /* what it keeps */

/* Of rank 0 of `ranks` that share a copy, whose step is the `divide`-th part of the task's: of
 * fewer sequences. SOL_E_UNSUPPORTED where the model cannot be shared so. */
enum sol_status scale_model_work(struct scale_model *m, int64_t ranks, int64_t divide,
                                 const struct work **out);
/* Of one row: sequences 1 at that depth. */
enum sol_status scale_model_row(struct scale_model *m, struct work *out);

double scale_task_tokens(const struct scale_task *task); /* that a step is counted for */

/* Ways to use `gpus`: copies of the model, each shared by some GPUs of a node, and what sol does
 * not do. Settled for GPUs of `memory` bytes (0 unknown). */
enum sol_status scale_model_ways(struct scale_model *m, const struct network *network,
                                 const struct scale_measured *measured, int64_t gpus, size_t memory,
                                 struct scale_way ways[SCALE_WAYS_MAX], int *n);

#endif
