/* What making a plan (plan.c) and running it (plan_run.c) share. */
#ifndef OPS_PLAN_PRIVATE_H
#define OPS_PLAN_PRIVATE_H

#include "base/arena.h"
#include "ops/plan.h"

struct call {
    const struct op *op;
    int layer;
    bool beside, meets;
    void *args;
};

struct plan {
    struct chooser chooser;
    struct arena *arena;
    struct call *calls;
    struct plan_step *steps;
    int n_calls, calls_capacity, n_steps, steps_capacity;
    int layer;
    bool beside, meets;        /* of the next call */
    bool expanding;            /* calls come from composites */
    bool quiet;                /* the list is not the final one */
    const struct op *parent;   /* the outermost composite being expanded */
    int reference_depth;       /* inside a composite whose reference was chosen */
    double slow;               /* of the composites being expanded, the innermost that has one */
    void *memory;              /* of the stack */
    size_t size;               /* of that */
    bool shared;               /* it is the caller's */
    uintptr_t base;            /* of the stack, or of one that is not there */
    size_t top, need;          /* its height now, and at most */
    struct gpu_event **events; /* for timed runs on a GPU: one before each step and one behind */
    int n_events;
    struct gpu_graph *graph;  /* of all steps, on one stream; or NULL */
    int64_t single_runs;      /* that made no graph; the first loads the kernels */
    int64_t graph_after;      /* so many of them a graph is made */
    plan_choice_fn on_choice; /* may be NULL */
    void *on_choice_arg;
    enum sol_status status;
};

#endif
