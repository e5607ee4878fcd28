/* A plan: the op calls of one step with their chosen variants and buffers, made once per model and
 * batch shape, then run many times. Executor, profiler and cost accounting walk the same list.
 * Variants are chosen while it is made (chooser.h), and nowhere else. */
#ifndef OPS_PLAN_H
#define OPS_PLAN_H

#include <stdio.h>

#include "ops/chooser.h"

struct plan;

struct plan_step {
    const struct op *op;
    const struct op *parent;      /* the composite this call belongs to, or the op itself */
    int layer;                    /* -1: outside the layers */
    const char *variant, *choice; /* choice: "" where the variant has none */
    int choice_index;
    enum op_numerics numerics;
    unsigned narrow; /* the variant's */
    void (*run)(const struct op_context *context, const void *args);
    void *args, *workspace;
    int together;     /* steps from this one on that its run does; 0: one before it does this one,
                       * and has the time of all */
    uint64_t ns;      /* time spent in this step, summed over timed runs */
    uint64_t began;   /* of the last timed run: clock_ns; on a GPU as far as the host can tell */
    uint64_t runs;    /* how often it ran since plan_reset_times */
    bool beside;      /* it runs beside what follows */
    bool meets;       /* it waits for what runs beside */
    double slow;      /* of chooser_slow; 0 but in tests of the lab */
    uint64_t fastest; /* call of a slowed step, in ns */
};

enum sol_status plan_create(const struct chooser *chooser, struct plan **out);
void plan_destroy(struct plan *plan); /* takes NULL */
/* On a GPU the first `runs` runs launch kernel by kernel, the next one makes a graph; without this
 * call it is the second run. To make one of 300 kernels takes the host some 4 ms; it saves 0.2 us a
 * kernel and run. Ranks of a team must say the same. */
void plan_graph_after(struct plan *plan, int64_t runs);
/* What ops need while they run lies there, as it may for other plans that never run at the same
 * time; it stays the caller's. Without this call a plan takes its own. */
void plan_share(struct plan *plan, void *memory, size_t size);

/* Adds a call; `args` is copied. What fails is reported by plan_finish, so that a forward pass
 * reads as a plain list. */
void plan_call(struct plan *plan, const struct op *op, const void *args);
void plan_layer(struct plan *plan, int layer); /* layer of the calls that follow */
/* The calls that follow may run beside those behind them, on the context's second stream where
 * there is one: each begins behind all before it in the list. What reads what they write, or writes
 * what they read, comes behind plan_meet; collectives meet by themselves, and so does the list's
 * end. A call that takes scratch stays in its place. */
void plan_beside(struct plan *plan, bool beside);
void plan_meet(struct plan *plan);
/* For explanations: called for every call, composites included, when the list ends, with the
 * variant that was chosen for it (a number for op_variant_name). */
typedef void (*plan_choice_fn)(void *arg, const struct op *op, const void *args, int chosen);
void plan_on_choice(struct plan *plan, plan_choice_fn fn, void *arg);
/* For compose, which may be called again for the same args: a matrix that lives until the end of
 * the composite. 256-byte aligned; for args of this plan only. */
struct matrix plan_scratch(struct plan *plan, int64_t rows, int64_t cols);
struct matrix plan_scratch_of(struct plan *plan, enum dtype dtype, int64_t rows, int64_t cols);

/* Ends the list: chooses variants, and reserves what they need. */
enum sol_status plan_finish(struct plan *plan);
/* Behind plan_finish: scratch and workspaces get bytes of 0xff, which are NaN in all formats, so
 * that a kernel that reads what nobody wrote is seen. */
enum sol_status plan_spoil(struct plan *plan, struct gpu_stream *stream);
/* The same without taking memory: to be looked at, not run. */
enum sol_status plan_finish_dry(struct plan *plan);
/* Behind plan_finish: what passes between two kernels lies in bf16 where the one behind rounds it
 * so in any case (op_variant.narrow). The same bits in less time; whoever reads buffers between the
 * kernels of such a plan must know. */
void plan_narrow(struct plan *plan);
extern void *const plan_nowhere; /* stands for the address of memory that nobody has */

/* after_layer: called after the last step of every layer (layer -1: after what precedes or follows
 * them). after_step: on the CPU, after every step, whose results it may change; NULL: nobody is
 * called. What fails there ends the run. */
struct plan_observer {
    enum sol_status (*after_layer)(void *arg, int layer);
    enum sol_status (*after_step)(void *arg, const struct plan_step *step);
    void *arg;
};

/* Runs every step in order. `timed`: adds each step's time to step->ns. `observer` may be NULL. On
 * a GPU the steps are put on the context's stream, and only timing and observing wait for them:
 * gpu_wait says whether they went well. `context` has the pool, or a stream of the chooser's GPU.
 */
enum sol_status plan_run(struct plan *plan, const struct op_context *context, bool timed,
                         const struct plan_observer *observer);

/* Puts the steps before that with these args, which are what on_choice saw; none where no step has
 * them. */
enum sol_status plan_run_until(struct plan *plan, const struct op_context *context,
                               const void *args);

/* On a GPU, behind a run: how many kernels a run launches by the list, of which each step is asked
 * by itself. What gpu_stream_kernels counts of a run is to be the same. */
enum sol_status plan_kernels(const struct plan *plan, const struct op_context *context,
                             int64_t *kernels);

int plan_step_count(const struct plan *plan);
const struct plan_step *plan_step_at(const struct plan *plan, int index);
enum op_numerics plan_numerics(const struct plan *plan); /* the loosest of its steps */
/* How far two numbers of a row of its result may be apart, in standard deviations of the row, for
 * the ops' tolerances to allow the other order: errors of ops add as independent ones do, and so do
 * those of the two numbers. */
double plan_margin(const struct plan *plan);
void plan_reset_times(struct plan *plan);          /* and the counts of runs */
struct op_cost plan_cost(const struct plan *plan); /* of the present batch contents */
size_t plan_bytes(const struct plan *plan);        /* scratch and workspaces: what it needs */
size_t plan_list_bytes(const struct plan *plan);   /* the list itself, and its graph on a GPU */

#endif
