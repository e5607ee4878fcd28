/* The time of each op in a step of training, by the timers of its plans. */
#ifndef TRAIN_OP_TIMES_H
#define TRAIN_OP_TIMES_H

#include "train/trainer.h"

/* The calls of one op by one variant in a step. */
struct train_op_time {
    const char *op, *variant;
    enum op_numerics numerics;
    bool tuned;              /* some by a record, not as usual */
    int64_t calls, runs;     /* what the plans list; what ran */
    double ns, flops, bytes; /* of a step */
};

enum { TRAIN_OPS_MAX = 96 };

struct train_op_times {
    struct train_op_time ops[TRAIN_OPS_MAX]; /* slowest first */
    int count;
    int64_t left_out; /* calls of more ops than there is room for */
};

/* Before a step whose micro-batches and update are timed. */
void train_op_times_reset(struct trainer *trainer);
/* Behind it. `update`: it had one. */
void train_op_times_read(struct trainer *trainer, int64_t micro_batches, bool update,
                         struct train_op_times *out);

double train_op_times_ns(const struct train_op_times *times); /* of all */
/* The part of it that quantises or transposes (trace/category.h). */
double train_op_times_preparing(const struct train_op_times *times);
/* Calls that ran, less those that the plans list; 0 is right. */
int64_t train_op_times_surplus(const struct train_op_times *times);

#endif
