/* A model of sol's own under the timers of its plans: prefill and decode, layer by layer and op by
 * op, at two depths of context, so that what grows with the context is told from what does not. */
#ifndef PROFILE_MODEL_H
#define PROFILE_MODEL_H

#include "bench/ceiling.h"
#include "bench/watch.h"
#include "infer/engine.h"
#include "profile/cpu_counters.h"
#include "stats/figure.h"
#include "store/store.h"
#include "trace/communication.h"
#include "trace/timeline.h"

enum { PROFILE_DEPTHS = 2, PROFILE_PHASES = 2 * PROFILE_DEPTHS, PROFILE_METRIC_SIZE = 80 };

struct profile_params {
    struct engine_params engine;    /* context, sequences and outputs are set for each depth */
    int64_t n_prompt, n_gen;        /* tokens of a repetition; either may be 0 */
    int64_t depths[PROFILE_DEPTHS]; /* ascending */
    int n_depths;
    int repetitions;
};

/* All calls of one kernel of one layer in the timed repetitions of a phase. */
struct profile_row {
    int layer; /* -1: outside the layers */
    const struct op *op, *parent;
    const char *variant;
    enum op_numerics numerics;
    uint64_t calls, expected; /* that ran, and that the plans call for */
    double ns; /* of all repetitions, had each been like the median one; on a GPU less event_ns a
                  call */
    double *of_repetition; /* [repetitions] ns, owned by the phase; not in copies that are sums */
    double flops, bytes;
};

struct profile_phase {
    const char *phase;                /* "prefill" or "decode" */
    char metric[PROFILE_METRIC_SIZE]; /* "tg16 @ d1024" */
    int64_t depth, tokens, steps;     /* of all timed repetitions */
    int repetitions;
    struct figure speed;   /* ns per token, of the repetitions; on a GPU without events, as a graph:
                            * as it runs when nobody looks */
    double timed_ns;       /* GPU: of all, kernel by kernel, with events; else 0 */
    double *of_repetition; /* [repetitions] ns, owned */
    struct profile_row *rows; /* [n_rows], owned; in the order of the plan */
    size_t n_rows, room;
    double counters[PROFILE_COUNTERS];
    /* Rows of an expert, and experts with any; mean over layers and steps; 0: no experts. */
    double experts_even, experts_busiest, experts_touched;
    /* Of several ranks, in the repetitions that `rows` are of; `shared_tokens`: what these did.
     * Devices of the time line are the ranks. */
    struct trace_communication communication;
    double shared_tokens;
    struct profile_window *windows; /* [steps], owned: on the clock of the time line's producer */
    size_t n_windows, window_room;
};

/* A step of one of the timed repetitions. */
struct profile_window {
    int64_t begin, end;
    int repetition;
};

struct profile_result {
    struct profile_phase phases[PROFILE_PHASES];
    int n_phases;
    struct timeline *timeline; /* finished: every call, on a device that is the processor or the
                                  GPU; of ranks one each, on one clock. Rows are of the first */
    double wakeup_ns;          /* until all threads work in a loop; 0 with one thread */
    int threads;               /* of a rank */
    int ranks;                 /* 1, or those of params.engine.team */
    const char *device;        /* what computes; lives as long as the GPU */
    bool on_gpu;
    double event_ns; /* GPU: what events add to the time of a call, measured with an empty kernel */
    struct watch_result watch; /* what else ran meanwhile */
    char no_counters[160];     /* why hardware counters are missing; "" when they are there */
};

enum sol_status profile_model(const struct model *model, const struct profile_params *params,
                              struct profile_result *out);
void profile_result_free(struct profile_result *result); /* takes a zeroed one */

/* Of all tokens, at the figure of speed; and of them all rows. On a processor rows are a part of
 * the whole; on a GPU, where kernels overlap in the graph, they may be more. ns. */
double profile_phase_ns(const struct profile_phase *phase);
double profile_rows_ns(const struct profile_phase *phase);

/* The least time for a row's work here; NaN where limits were not measured. */
double profile_row_limit_ns(const struct ceiling *ceiling, const struct profile_row *row);

/* Decode time per token = constant + slope x depth, from the phases at both depths. False when
 * there are not two. `row` NULL: of the whole; else of the rows that are the same op, parent and
 * variant in all layers. ns, and ns per position. */
bool profile_kv_slope(const struct profile_result *result, const struct profile_row *row,
                      double *constant, double *slope);

/* Adds metrics (ns/token of each phase) and kernels to run `id`; the payload for its end, to be
 * freed. */
enum sol_status profile_model_store(struct store *store, const char *id,
                                    const struct profile_result *result,
                                    const struct ceiling *ceiling);
enum sol_status profile_model_payload(const struct profile_result *result,
                                      const struct ceiling *ceiling, char **out);

#endif
