/* What a report of a run shows, worked out of the store's record: summaries of the metrics, kernels
 * gathered per test and phase, and what the run's own notes (its payload) add.
 *
 * Read from the payload, where it is there:
 *   "records": [{"n_prompt", "n_gen", "n_depth", "n_parallel", "rating", "rated_against":
 * {"baseline", "good", "excellent", "source"}, "limits"}]   as sol bench writes them "limits" (also
 * of a record or of the environment): {"..._gb_s": 20.1 or {"best": 20.1},
 *                "..._gflop_s", "..._tflop_s"}               ceilings of the roofline
 *   "device_time": {"span_ns", "busy_ns", "gap_ns", "tracer_ns", "gaps", "gap_max_ns"}
 *   "gap_list": [{"ns", "before", "after", "cause"}]          the longest gaps
 *   "communication": of a traced run's steps; of a metric: in its record (communication_figure.h)
 * Texts belong to the record and to the data. */
#ifndef REPORT_RUN_DATA_H
#define REPORT_RUN_DATA_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"
#include "stats/metric.h"
#include "store/store.h"
#include "trace/communication_figure.h"

struct run_metric {
    const struct store_metric *metric;
    struct metric_figure figure;
    const char *rating;    /* "good"; NULL: not rated */
    json_t *rated_against; /* borrowed; may be NULL */
    const char *stopped;   /* why no more repetitions were made; may be NULL */
};

/* Kernels of one name together; sums of all calls, per token where the group is. */
struct run_kernel {
    const char *name, *detail; /* detail: variant or numerics; may be "" */
    const char *shown;         /* the name for tables, shortened among those of its group */
    const char *label; /* for charts, shorter: the name, or the variant where several share it */
    const char *category, *numerics;
    int64_t calls, expected; /* as stored; -1 unknown */
    bool wrong_count;
    double ns, bytes, flops, limit_ns; /* NaN unknown */
    size_t merged;                     /* records of the store that it stands for */
};

struct run_group {
    const char *metric, *phase;
    const char *per; /* figures are of "a token" or "a step"; NULL: of the measured window */
    struct run_kernel *kernels; /* longest first */
    size_t n_kernels;
    double ns, limit_ns;    /* sums; limit NaN where none of the kernels has one */
    double unlimited_ns;    /* of kernels without a limit */
    double untimed;         /* kernels without a time */
    double measured_ns;     /* of the metric, per token; NaN unless all its kernels are here */
    double metric_limit_ns; /* NaN unknown */
    /* What ranks cost each other, of the same token or step; without ranks: its `ranks` is 0. The
     * kernels are those of one rank. */
    struct communication_figure communication;
    size_t wrong_counts;
    size_t place;  /* of its metric in the run */
    bool headline; /* shown in full, the others folded up */
};

struct run_ceiling {
    char name[48];
    bool memory; /* bytes/s, else flop/s */
    double rate; /* per second */
};

struct run_gap {
    double ns;
    const char *before, *after, *cause; /* may be NULL */
};

enum { RUN_CEILINGS_MAX = 12, RUN_GAPS_MAX = 12, RUN_HEADLINES_MAX = 4 };
struct run_data {
    const struct store_record *record;
    json_t *payload, *environment; /* NULL: none */
    struct run_metric *metrics;
    size_t n_metrics, n_speed;
    struct run_group *groups; /* headlines first */
    size_t n_groups;
    struct run_ceiling ceilings[RUN_CEILINGS_MAX];
    size_t n_ceilings;
    double span_ns, busy_ns, gap_ns, tracer_ns, gap_max_ns; /* NaN: no time line */
    int64_t gap_count;
    struct run_gap gaps[RUN_GAPS_MAX];
    size_t n_gaps;
    struct arena *arena;
};

/* `record` must live longer. */
enum sol_status run_data_create(const struct store_record *record, struct run_data **out);
void run_data_destroy(struct run_data *data); /* takes NULL */

#endif
