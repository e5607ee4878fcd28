/* The speed of training, measured: steps on random tokens, and the time of each op in one more.
 * Ranks measure together, each with tokens of its own. */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "stats/samples.h"
#include "train/op_times.h"

struct train_bench_params {
    int64_t warmup, steps;
    bool update;           /* the optimizer's step belongs to it; else forward and backward alone */
    int64_t micro_batches; /* of a step, each rank's */
    uint64_t seed;         /* of the tokens */
};

/* Kernels of a GPU: by the plan, and as the driver counted them. -1: not counted. */
struct train_kernels {
    int64_t plan, launched;
};

struct train_bench_result {
    int64_t steps, tokens;      /* of one step, all ranks' */
    struct figure step_ns;      /* over the steps */
    struct sample *samples;     /* [steps], owned: of a step */
    double *micros, *updates;   /* [steps], owned: ns of a micro-batch, of an update */
    double micro_ns, update_ns; /* their medians, by themselves */
    struct train_kernels micro, update;
    struct train_op_times ops;
    double loss; /* of the last step: a number that is none makes all of this void */
};

/* Interruptible between steps: SOL_E_INTERRUPTED then. The result is to be freed in any case. */
enum sol_status train_bench(struct trainer *trainer, const struct train_recipe *recipe,
                            const struct train_bench_params *params,
                            struct train_bench_result *out);
void train_bench_result_free(struct train_bench_result *result); /* takes a zeroed one */

#endif
