/* What training took, judged: its speed beside what the device can do, its kernels beside the
 * plan's; and kept in the store. A benchmark of steps and a training run are shown alike. */
#ifndef BENCH_TRAIN_H
#define BENCH_TRAIN_H

#include "bench/ceiling.h"
#include "bench/watch.h"
#include "store/store.h"
#include "train/bench.h"
#include "train/history.h"
#include "train/tuned.h"

struct train_report {
    const struct train_recipe *recipe;
    struct trainer *trainer;
    struct gpu *gpu; /* NULL: the CPU */
    bool bf16, updates;
    int64_t micro_batches;
    const struct train_tuned *tuned; /* of its plans' calls; NULL: nobody looked */
    size_t probe;                    /* bytes of what CORE and samples are computed with */
    const struct ceiling *ceiling;   /* measured in this process; zeroes: it was not */
    struct train_bench_result result;
    struct watch_result watch; /* what else ran meanwhile */
    size_t device_bytes;       /* of the GPU that are taken, as NVML says; 0 unknown */
};

/* Memory by what it is for; the last line is the sum. Returns how many lines there are. */
struct train_memory_line {
    const char *name;
    size_t bytes;
};
enum { TRAIN_MEMORY_LINES = 7 };
int train_memory_lines(const struct train_report *report,
                       struct train_memory_line lines[TRAIN_MEMORY_LINES]);
/* The most that was taken: of the GPU by this program, else of the process. */
size_t train_peak_bytes(const struct gpu *gpu);

/* NaN where unknown. Flops are counted in two ways: as nanochat does, where each token sees a whole
 * window, and with the keys that causal rows really see. */
struct train_speed {
    struct figure per_s;        /* tokens */
    double flops, causal_flops; /* a second */
    double peak;                /* flops a second that products reached here, of all ranks */
    const char *peak_of;        /* "bf16", "f32" */
    double mfu, causal_mfu;     /* the part of `peak` that they are */
    double sheet, sheet_mfu;    /* the published peak, of all; nanochat's count as a part of it */
    double limit_ns;            /* the least time that a token's flops could take, causal */
};
struct train_speed train_report_speed(const struct train_report *report);
int train_report_ranks(const struct train_report *report);

/* Why the figures cannot be used: kernels or calls that are not the plan's, more than
 * trace_preparing_most (trace/expected.h) for preparing what products read, a speed beyond the
 * limit. NULL: they can. Returns `text`. */
enum { TRAIN_REASON = 240 };
const char *train_invalid(const struct train_report *report, char text[TRAIN_REASON]);

/* ---- in the store ---- */

/* "2026-07 d20", and the device; a new run of `kind`. `payload_json` may be NULL. */
struct train_store_begin {
    const char *kind, *label, *payload_json;
    int argc;
    char *const *argv;
};
enum sol_status train_store_begin(struct store *store, const struct train_report *report,
                                  const struct train_store_begin *how, char id[STORE_ID_SIZE]);

/* A benchmark, whole: "train" (without the optimizer "forward and backward") in ns/token, a sample
 * a step, and beside it micro-batch and update, both MFUs, memory; its ops as kernels of that
 * metric. Ends the run, invalid where train_invalid says so. `payload` as JSON text. */
enum sol_status train_store_bench(struct store *store, const char *id,
                                  const struct train_report *report, const char *payload);

/* Pieces of it, for the store of a training run. `metric`: what kernels belong to. */
enum { TRAIN_SINGLES = 8 };
struct train_singles {
    struct store_metric metrics[TRAIN_SINGLES];
    struct store_sample samples[TRAIN_SINGLES];
    char names[TRAIN_SINGLES][80];
    size_t count;
};
/* A metric "METRIC: what" of one value; nothing for NaN. */
void train_add_single(struct train_singles *to, const char *metric, const char *what,
                      const char *unit, enum store_better better, double value);
void train_add_speed(struct train_singles *to, const char *metric, const struct train_speed *speed);
void train_add_memory(struct train_singles *to, const char *metric,
                      const struct train_report *report);
/* [times->count] */
void train_kernels_of(const struct train_report *report, const struct train_op_times *times,
                      const char *metric, int64_t tokens, struct store_kernel *out);

/* ---- a training run ---- */

enum { TRAIN_FOLDER = 4096 };
/* A run of the kind "train", which says in its payload that its checkpoints lie in `folder`, an
 * absolute path; NULL: it keeps none. `resumed`: the newest run of that folder goes on, where the
 * store has one that has ended. */
enum sol_status train_store_run_begin(struct store *store, const struct train_report *report,
                                      const struct train_store_begin *how, const char *folder,
                                      bool resumed, char id[STORE_ID_SIZE]);
/* What is known of it so far, as the file log.jsonl of the run. */
enum sol_status train_store_run_log(struct store *store, const char *id,
                                    const struct train_history *history);
/* The end of it, or of what this process did: that file; "train" in ns/token with a sample an
 * update, losses, MFUs and memory instead of what was there; the ops of the timed update. `report`
 * has the history's figures (train_report_of_history). */
enum sol_status train_store_run_end(struct store *store, const char *id,
                                    const struct train_report *report,
                                    const struct train_history *history, enum store_state state,
                                    const char *reason, const char *payload);
/* Fills steps, tokens and step_ns of the report's result. */
enum sol_status train_report_of_history(const struct train_history *history,
                                        struct train_report *report);

#endif
