/* The speed of training, measured: steps on random tokens, and the time of each op in one more. */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "stats/figure.h"
#include "train/trainer.h"

struct train_bench_params {
    int64_t warmup, steps;
    bool update;           /* the optimizer's step belongs to it; else forward and backward alone */
    int64_t micro_batches; /* of a step */
    uint64_t seed;         /* of the tokens */
};

/* The calls of one op by one variant in a step. */
struct train_op_time {
    const char *op, *variant;
    enum op_numerics numerics;
    int64_t calls, runs;     /* what the plan lists; what was timed */
    double ns, flops, bytes; /* of a step */
};

enum { TRAIN_OPS_MAX = 96 };

struct train_bench_result {
    int64_t steps, tokens;      /* of one step */
    struct figure step_ns;      /* over the steps */
    double micro_ns, update_ns; /* medians of a micro-batch and of an update, by themselves */
    struct train_op_time ops[TRAIN_OPS_MAX];
    int n_ops;
    double loss; /* of the last step: a number that is none makes all of this void */
};

/* Interruptible between steps: SOL_E_INTERRUPTED then. */
enum sol_status train_bench(struct trainer *trainer, const struct train_recipe *recipe,
                            const struct train_bench_params *params,
                            struct train_bench_result *out);

#endif
