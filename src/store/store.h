/* What sol measured, kept in one SQLite database: runs with their metrics, samples, kernels, advice
 * and files, the environments they ran in, optimisation iterations, and what was predicted against
 * what came true.
 *
 * Place: a folder (--store PATH, else $SOL_STORE, else $XDG_DATA_HOME/sol, else ~/.local/share/sol)
 * with store.db and artifacts/<run>/.
 * Safety: a call that returned SOL_OK is on disk; a process killed at any moment loses at most the
 * call it was in, whole. Several processes may read and write at once; a writer waits for the
 * others up to STORE_BUSY_MS. One handle is used by one thread at a time and not across fork().
 * Text handed in is copied. Fields named *_json take one JSON text, checked by the database. What
 * is read back belongs to the object that says so and lives until that is destroyed. Times are
 * nanoseconds since 1970 (UTC); 0 means "not set", and where a record is written "now".
 *
 * A typical writer:
 *     store_open_optional(path_or_null, &store);       store is NULL where nothing can be kept
 *     store_environment_add(store, json_text, environment_id);
 *     store_run_begin(store, &(struct store_run){.kind = "bench", ...}, id);
 *     store_run_add(store, id, &(struct store_batch){.metrics = m, .n_metrics = 1});
 *     store_run_finish(store, id, STORE_OK, NULL, payload_text);
 * and reader:
 *     store_find(store, "last~1", "bench", id);
 *     store_record_read(store, id, &record); ... store_record_destroy(record); */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    STORE_SCHEMA = 3,     /* PRAGMA user_version */
    STORE_ID_SIZE = 16,   /* "b1f09c3a7" and its NUL: a letter for the kind, 8 hex digits */
    STORE_HASH_SIZE = 17, /* 16 hex digits */
    STORE_BUSY_MS = 20000,
    STORE_LABEL_MAX = 100,
};

struct store;

/* ---- place and handle ---- */

/* The folder that would be used; `explicit_path` may be NULL. SOL_E_ARGUMENT when there is neither
 * a home directory nor any of the variables. */
enum sol_status store_folder(const char *explicit_path, char *out, size_t size);

/* Opens and, where it does not exist, makes the store; an older schema is migrated. SOL_E_IO:
 * cannot be read or written, or busy; SOL_E_FORMAT: not a store, or damaged; SOL_E_UNSUPPORTED:
 * written by a newer sol (the file is left untouched). */
enum sol_status store_open(const char *explicit_path, struct store **out);

/* For commands whose work does not depend on the store: where `explicit_path` is NULL and the store
 * cannot be opened, warns on stderr and returns SOL_OK with *out NULL. */
enum sol_status store_open_optional(const char *explicit_path, struct store **out);
void store_close(struct store *store);             /* takes NULL */
const char *store_path(const struct store *store); /* the folder */
/* SOL_E_ARGUMENT where a file to be written is the store's database. Both may be NULL. */
enum sol_status store_apart(const struct store *store, const char *output);

/* 16 hex digits that depend on every byte; not for security. */
void store_hash(const void *data, size_t size, char out[STORE_HASH_SIZE]);
int64_t store_now_ns(void); /* wall clock */

/* ---- environments ---- */

/* Keeps `json` under the hash of its text (the same text is kept once) and returns that id.
 * src/store/environment.h collects the text. */
enum sol_status store_environment_add(struct store *store, const char *json,
                                      char id[STORE_HASH_SIZE]);

/* ---- runs ---- */

enum store_state { STORE_RUNNING, STORE_OK, STORE_PARTIAL, STORE_INVALID, STORE_STATE_COUNT };
const char *store_state_name(enum store_state state); /* "running", "ok", "partial", "invalid" */

struct store_run {
    char id[STORE_ID_SIZE]; /* read only */
    const char *kind;    /* "bench", "serve", "train", "profile", "compare", "import", "opt", ...: a
                          * lower-case word */
    const char *label;   /* may be NULL; need not be unique: the newest run that has it counts */
    int64_t created_ns;  /* 0 when written: now */
    int64_t finished_ns; /* read only; 0 while running */
    enum store_state state; /* read only: _begin makes it running, _finish sets the rest */
    const char *reason;     /* read only; why partial or invalid, else NULL */
    const char *noise;      /* read only; why its figures are unsure: "tg32: other programs kept 1.2
                             * cores busy"; NULL: they are as sure as they say */
    const char *argv_json;  /* ["bench", "-p", "512"]; may be NULL */
    const char *cwd;        /* may be NULL */
    const char *environment;        /* id of an environment; may be NULL */
    const char *backend, *device;   /* "cpu", "AMD EPYC 9R14"; may be NULL */
    const char *model, *model_type; /* "gpt-oss-20b.gguf", "gpt-oss 20.91B"; may be NULL */
    int64_t model_size;             /* bytes of weights; 0 unknown */
    const char *payload_json;       /* what the kind's own report needs; may be NULL */
};

/* A lower-case letter and 8 hex digits. A store that holds another one is not of sol's making:
 * finding or reading that run is SOL_E_FORMAT, lists leave it out. */
bool store_id_valid(const char *id);

/* Makes the run, `running`, and gives its id. */
enum sol_status store_run_begin(struct store *store, const struct store_run *run,
                                char id[STORE_ID_SIZE]);

/* Ends it. `reason` and `payload_json` may be NULL; a NULL payload keeps what _begin wrote. A run
 * whose process dies without this call is `partial` for whoever opens the store next on that
 * machine. */
enum sol_status store_run_finish(struct store *store, const char *id, enum store_state state,
                                 const char *reason, const char *payload_json);

/* Makes a run that has ended `running` again, of this process: what comes is more of the same. Its
 * contents stay. */
enum sol_status store_run_resume(struct store *store, const char *id);

/* SOL_E_ARGUMENT, with the reason, where runs cannot be found by `label` or it would break lists:
 * empty, `last`, with a ~, longer than STORE_LABEL_MAX bytes, not of UTF-8, with a control
 * character. NULL, no label, is fine. store_run_begin and store_run_label ask it; long work should
 * ask before. */
enum sol_status store_label_check(const char *label);
enum sol_status store_run_label(struct store *store, const char *id, const char *label);
/* Says why the figures of a run are unsure; see store_run.noise. */
enum sol_status store_run_noise(struct store *store, const char *id, const char *noise);
/* What stands beside a run wherever it is shown: its state, or "noisy" where it is ok but unsure.
 */
const char *store_run_badge(const struct store_run *run);

/* With its samples, kernels, advice, artifact files and its environment where no other run has it.
 * SOL_E_FORMAT, the run deleted: it named files that are not its own, which were left alone. */
enum sol_status store_run_delete(struct store *store, const char *id);

/* The id of the run that `text` names: an id, `last`, a label, or the start of just one id (in
 * this order), each with `~N` behind it (last~2, baseline~1) for the N-th before of the same name;
 * an id takes no ~N. `last` counts runs that are not running. `kind` limits all but full ids to
 * runs of that kind; may be NULL. SOL_E_ARGUMENT, with the candidates named, when there is none or
 * more than one. */
enum sol_status store_find(struct store *store, const char *text, const char *kind,
                           char id[STORE_ID_SIZE]);

/* What a command wants of a run. */
enum store_use {
    STORE_FOR_FIGURES, /* to compare: benchmarks, loads and imports with samples, else any run with
                          some */
    STORE_FOR_ADVICE,  /* times of kernels, a trace, or advice that is kept */
};
/* store_find among the runs of that use, so that `last` is the newest one that a command can work
 * with. Where none of that name is, what store_find gives, for the command to say what it lacks. */
enum sol_status store_find_for(struct store *store, const char *text, enum store_use use,
                               char id[STORE_ID_SIZE]);

/* ---- what a run holds ---- */

enum store_better { STORE_LOWER, STORE_HIGHER };
enum {
    STORE_WARMUP = 1,   /* not counted in any summary */
    STORE_OUTLIER = 2,  /* outside Tukey's fences; counted all the same */
    STORE_REPEATED = 4, /* repeated for the external cause in `cause`; counted all the same */
};

struct store_sample {
    double value;       /* in the metric's unit; one repetition */
    int64_t started_ns; /* 0 unknown */
    unsigned flags;     /* OR of STORE_WARMUP... */
    int process;        /* number of the process start it came from, 0 for the run's own */
    const char *cause;  /* why it was repeated; may be NULL */
};

/* A metric's name says the test: "pp512", "tg128 @ d4096", "tg32 x8". For speed the unit is
 * "ns/token" and lower is better; readers show 1e9/value tokens per second. Other metrics put a
 * word behind: "tg128 @ d4096: peak memory" in "bytes". */
struct store_metric {
    const char *name, *unit;
    enum store_better better;
    double limit;          /* the value at this machine's limit, same unit; 0 unknown */
    const char *test_json; /* {"n_prompt": 0, "n_gen": 128, "n_depth": 4096, ...}; may be NULL */
    const struct store_sample *samples;
    size_t n_samples;
};

/* All calls of one kernel in one phase. Unknown numbers are NaN, unknown counts -1, unknown texts
 * NULL. */
struct store_kernel {
    const char *metric;   /* name of the metric that it belongs to */
    const char *phase;    /* "prefill", "decode"; "step" of training */
    int layer;            /* -1: all layers together */
    const char *op;       /* of the ops table: "moe_up" */
    const char *variant;  /* "avx512_vnni" */
    const char *name;     /* as a profiler shows it */
    const char *category; /* attention, matmul, moe, norm, rope, elementwise, copy, other; of
                           * training also embedding, loss, optimizer, quantize */
    const char *numerics; /* "exact", "bf16", "i8", ... */
    int64_t calls;        /* that ran, in the phase's measured window */
    int64_t expected;     /* that the plan or the manifest calls for, in the same window */
    double calls_per_token;
    double total_ns, bytes, flops; /* of all `calls` */
    double limit_ns;               /* the least that all `calls` could take here */
};

struct store_advice {
    const char *rule;          /* "gap.host" */
    const char *subject;       /* what it is about: a kernel, a phase */
    const char *text;          /* plain words; may be NULL */
    const char *evidence_json; /* may be NULL */
    double window_ns;          /* the time that the gain is taken from: one token, one prefill */
    double ceiling_ns;         /* of window_ns, at most */
    double likely_ns;          /* ceiling x store_rule_factor */
};

struct store_batch {
    const struct store_metric *metrics; /* a known name gets the samples appended, and the limit
                                         * where one is given */
    size_t n_metrics;
    const struct store_kernel *kernels;
    size_t n_kernels;
    const struct store_advice *advice;
    size_t n_advice;
};

/* All of it or nothing, in one transaction. */
enum sol_status store_run_add(struct store *store, const char *id, const struct store_batch *batch);
/* The same in place of the metrics and kernels that the run has. */
enum sol_status store_run_replace(struct store *store, const char *id,
                                  const struct store_batch *batch);

struct store_artifact {
    const char *kind; /* "trace", "steps" (some of a trace), "report", "diff" */
    const char *path; /* relative to the store's folder */
    int64_t size;     /* bytes */
    const char *hash; /* store_hash of the bytes */
};

/* Copies the file `source` into the store as `name` (no slash). The same name again replaces it. */
enum sol_status store_artifact_add(struct store *store, const char *id, const char *kind,
                                   const char *name, const char *source);
/* The same from memory. */
enum sol_status store_artifact_write(struct store *store, const char *id, const char *kind,
                                     const char *name, const void *data, size_t size);
/* The whole file of an artifact of run `id`; free() it. SOL_E_FORMAT: its path leads elsewhere than
 * into the run's folder; SOL_E_IO: it is not there, or a link. */
enum sol_status store_artifact_read(const struct store *store, const char *id,
                                    const struct store_artifact *artifact, char **data,
                                    size_t *size);

/* Everything about a run. */
struct store_record {
    struct store_run run;
    const char *environment_json; /* NULL when the run has none */
    struct store_metric *metrics; /* in the order they were added, samples in order of index */
    size_t n_metrics;
    struct store_kernel *kernels;
    size_t n_kernels;
    struct store_advice *advice;
    size_t n_advice;
    struct store_artifact *artifacts;
    size_t n_artifacts;
};
enum sol_status store_record_read(struct store *store, const char *id, struct store_record **out);
void store_record_destroy(struct store_record *record); /* takes NULL */
/* NULL when it has none of that name. */
const struct store_metric *store_record_metric(const struct store_record *record, const char *name);

/* Runs, the newest first. Text fields of a filter that are NULL do not filter. */
struct store_filter {
    const char *kind, *label, *model, *device, *environment;
    bool states_set;
    unsigned states; /* OR of 1u << enum store_state, when states_set */
    int64_t since_ns;
    int64_t limit; /* at most so many; 0: all */
};
struct store_list {
    struct store_run *runs;
    size_t count;
};
enum sol_status store_list_read(struct store *store, const struct store_filter *filter,
                                struct store_list **out);
void store_list_destroy(struct store_list *list); /* takes NULL */

/* ---- optimisation: iterations and the ledger of predictions ---- */

/* One attempt of `sol opt`. Gains are fractions of the time saved: 0.05 is 5 % less time per token;
 * NaN where not known. Runs are ids, NULL where there is none yet. */
struct store_iteration {
    char id[STORE_ID_SIZE]; /* "" when new: _save makes one ("o" and 8 hex digits) */
    int64_t number;         /* read only: 1, 2, 3... within `tree` */
    int64_t created_ns, finished_ns;
    const char *tree;       /* the working directory that is optimised, an absolute path */
    const char *state;      /* open, recorded, accepted, reverted, rejected, abandoned */
    const char *hypothesis; /* what is tried, in the user's words */
    const char *rule;       /* advice rule it follows; may be NULL */
    const char *metric;     /* name of the metric that decides; may be NULL */
    double predicted;       /* gain */
    double realised;        /* gain; of the deciding metric */
    double realised_low, realised_high; /* 95 % interval */
    const char *verdict; /* faster, slower, same, inconclusive, invalid, incorrect; may be NULL */
    const char *base_commit; /* may be NULL */
    const char *files_json;  /* read only: ["src/a.c"] of the newest change; may be NULL */
    const char *environment; /* id; may be NULL */
    const char *baseline_run, *bench_run, *profile_run, *compare_run;
    double perplexity_base, perplexity;
    const char *verify_json;  /* what the correctness gate saw; may be NULL */
    const char *notes;        /* may be NULL */
    const char *payload_json; /* may be NULL */
};

/* Writes all fields: a new one where id is "", which is then filled in, as are number and
 * (where it is 0) created_ns, else over the old. */
enum sol_status store_iteration_save(struct store *store, struct store_iteration *iteration);

struct store_iterations {
    struct store_iteration *items;
    size_t count;
};
/* The newest first. `tree` and `state` may be NULL; limit 0: all. */
enum sol_status store_iterations_read(struct store *store, const char *tree, const char *state,
                                      int64_t limit, struct store_iterations **out);
void store_iterations_destroy(struct store_iterations *iterations); /* takes NULL */
/* `text`: id, start of just one id, "#3" or "3" for a number within `tree`, `last`, `last~2`. The
 * result holds that one. */
enum sol_status store_iteration_find(struct store *store, const char *tree, const char *text,
                                     struct store_iterations **out);

/* What an iteration's tree held when it was recorded, as differences from its base commit. Changes
 * are numbered 1, 2, ... and none is ever replaced or removed, so that no later record can cost an
 * earlier one. */
struct store_change {
    int64_t number;         /* set by _add */
    int64_t created_ns;     /* set by _add */
    const char *content;    /* git's hash of the whole tree; may be NULL in old stores */
    const char *staged;     /* that of the index; NULL: nobody looked (old stores) */
    const char *files_json; /* ["src/a.c"]: what differs from the base */
    const void *diff;       /* binary-safe unified diff, any bytes; may be empty */
    size_t diff_size;
    const void *staged_diff; /* base to index; NULL where that is the base or the content above */
    size_t staged_size;
};
enum sol_status store_change_add(struct store *store, const char *iteration,
                                 struct store_change *change);
/* Number 0: the newest. *out is NULL where there is no such change. Freed with _destroy. */
enum sol_status store_change_read(struct store *store, const char *iteration, int64_t number,
                                  struct store_change **out);
void store_change_destroy(struct store_change *change); /* takes NULL */

/* One prediction that was tried out. */
struct store_ledger_entry {
    const char *rule;
    double predicted, realised; /* gains, as above; realised may be negative */
    const char *iteration;      /* id; may be NULL */
    const char *device;         /* may be NULL */
    int64_t created_ns;
};
struct store_ledger {
    struct store_ledger_entry *items;
    size_t count;
};
enum sol_status store_ledger_add(struct store *store, const struct store_ledger_entry *entry);
/* Oldest first. `rule` may be NULL. */
enum sol_status store_ledger_read(struct store *store, const char *rule, struct store_ledger **out);
void store_ledger_destroy(struct store_ledger *ledger); /* takes NULL */

/* How much of a prediction by `rule` tends to come true, 0..1: the mean over the ledger of
 * realised / predicted, each cut to 0..1, with one entry of 0.5 added for a start. `entries` (may
 * be NULL) gets the number of ledger entries. A NULL store gives 0.5 and 0. */
enum sol_status store_rule_factor(struct store *store, const char *rule, double *factor,
                                  int64_t *entries);

/* ---- measured facts that are kept for reuse, by key ---- */

/* For example ("ceiling", "cpu:<hash of the machine>"). Replaces what was there. */
enum sol_status store_fact_write(struct store *store, const char *kind, const char *key,
                                 const char *json);
/* *json is NULL when there is none; free() it. `created_ns` may be NULL. */
enum sol_status store_fact_read(struct store *store, const char *kind, const char *key, char **json,
                                int64_t *created_ns);

#endif
