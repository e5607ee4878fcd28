/* From one GPU's measured step to a step of many: pure functions of accounts of work, of links and
 * of what was measured on one GPU. Nothing is fitted on what several GPUs did.
 *
 * A step of one GPU is taken for calls that last `call_ns` each whatever their size, and the rest,
 * which grows with the least time that an op could take (work.h). So of many GPUs, a part's step
 * takes its calls, and of each op's rest the share that its part of the op has. Ops that are on one
 * side alone (what is one op on one GPU is two where ranks meet in between) are compared together,
 * and taken for the same kernels. Collectives stand in the step's own stream: all of them is
 * waited for. */
#ifndef SCALE_SCALE_H
#define SCALE_SCALE_H

#include <stdbool.h>

#include "scale/network.h"
#include "scale/work.h"

struct scale_measured {
    double step_ns; /* of one GPU */
    double call_ns; /* 0: all of a step grows with its work */
    /* Of the ops by their names, where most were timed; scaled to add up to the step. */
    const struct scale_op_time {
        const char *op;
        double ns;
    } * ops;
    int n_ops;
    /* Steps of the first rank's part of a model that so many share, alone on one GPU. */
    const struct scale_part_time {
        int64_t ranks;
        double ns;
    } * parts;
    int n_parts;
};

/* What calls take of a step of one row beyond the least it could take, for each of them: 0 where
 * that is not known. */
double scale_call_ns(const struct work *row, double row_ns);

/* The step of `part`, without its collectives. `part` the same as `one`: step_ns. */
double scale_compute_ns(const struct work *one, const struct work *part,
                        const struct scale_measured *measured);
/* All collectives of a step. */
double scale_messages_ns(const struct work *part, const struct network *network,
                         struct network_ranks ranks);

/* ---- ways to use so many GPUs ---- */

/* What one step of one copy of the model does. */
struct scale_goal {
    int64_t gpus;
    double tokens; /* that a step of one GPU is for */
    double one_ns; /* what it takes there: what efficiency is of */
    size_t memory; /* of a GPU; 0 unknown */
};

struct scale_way {
    int64_t tensor, data, expert, stages;    /* 1: not so; their product is the GPUs */
    bool part_measured;                      /* compute_ns was, of a part on one GPU */
    bool built;                              /* sol does it; else an estimate of what it might do */
    double compute_ns, messages_ns, idle_ns; /* of a step; idle: stages that wait for others */
    double tokens;                           /* of a step of all GPUs */
    size_t memory;                           /* bytes of a GPU; 0 unknown */
    /* by scale_settle */
    double step_ns, tokens_per_s,
        efficiency; /* of so many GPUs that did as one does: 0..1 and more */
    bool fits;
};
void scale_settle(struct scale_way *way, const struct scale_goal *goal);

/* Of those that sol can do and that fit: the one with the most tokens a second, and the one with
 * the shortest step; -1: none. */
int scale_most(const struct scale_way *ways, int n);
int scale_soonest(const struct scale_way *ways, int n);

#endif
